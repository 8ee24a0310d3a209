"""Which elements are no finite numbers, by their bits: for each dtype against another library."""

from math import isfinite, isnan

import ml_dtypes
import numpy as np
import pytest
from nibblespec.conformance.artifacts.reading.blocks import Bytes, Run
from nibblespec.conformance.artifacts.reading.tensor_entries import DTYPE_BITS
from nibblespec.conformance.artifacts.scanning.float_contents import (
    FLOATS,
    float_value,
    scan_finite,
    scan_ones,
)
from nibblespec.conformance.artifacts.scanning.zero_groups import scan_scales

NUMPY = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
NARROW = [dtype for dtype, bits in FLOATS.items() if bits.size <= 2]
EDGES = {
    "F32": [
        0,
        1,
        0x7F7FFFFF,
        0x7F800000,
        0x7F800001,
        0x7FC00000,
        0x80000000,
        0xFF7FFFFF,
        0xFF800000,
    ],
    "F64": [0, 1, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF0000000000001, 0xFFF0000000000000],
}


def blocks(bits: list[int], dtype: str) -> tuple[Bytes, ...]:
    """Return elements, given by their bits, as the block of a tensor."""
    return (np.array(bits, f"<u{FLOATS[dtype].size}").view(np.uint8),)


def is_finite(bits: int, dtype: str) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(blocks([bits], dtype)[0].view(NUMPY[dtype]).astype(np.float64))[0])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_of_a_narrow_dtype_is_told_apart(dtype: str) -> None:
    for bits in range(2 ** (8 * FLOATS[dtype].size)):
        found = scan_finite(blocks([bits], dtype), 0, Run(), dtype=dtype).hits
        assert ("not finite" not in found) == is_finite(bits, dtype), hex(bits)
        assert isfinite(float_value(bits, dtype)) == is_finite(bits, dtype), hex(bits)


@pytest.mark.parametrize("dtype", EDGES)
def test_edges_of_a_wide_dtype_are_told_apart(dtype: str) -> None:
    for bits in EDGES[dtype]:
        found = scan_finite(blocks([bits], dtype), 0, Run(), dtype=dtype).hits
        assert ("not finite" not in found) == is_finite(bits, dtype), hex(bits)


@pytest.mark.parametrize("dtype", [*NARROW, "F32", "F64"])
def test_values_are_told_as_numpy_reads_them(dtype: str) -> None:
    for bits in range(0, 2 ** (8 * min(2, FLOATS[dtype].size)), 37):
        if is_finite(bits, dtype):
            value = float(blocks([bits], dtype)[0].view(NUMPY[dtype]).astype(np.float64)[0])
            assert float_value(bits, dtype) == value


def test_dtypes_that_are_left_out_cannot_hold_anything_but_numbers() -> None:
    integers = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"}
    assert set(DTYPE_BITS) - set(FLOATS) == integers | {"F4", "F6_E2M3", "F6_E3M2"}


def test_the_first_of_several_is_told_with_its_index_in_the_tensor() -> None:
    found = scan_finite(blocks([0, 0x7C00, 0, 0xFE00], "F16"), 2000, Run(), dtype="F16")
    hit = found.hits["not finite"]
    assert (hit.count, hit.first, hit.bits) == (2, 1001, 0x7C00)


def test_minus_zero_is_not_negative() -> None:
    assert scan_scales(blocks([0x8000], "F16"), 0, Run(), dtype="F16", codes=None).hits == {}


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F8_E4M3", "F8_E5M2"])
def test_the_smallest_negative_scale_is_negative(dtype: str) -> None:
    sign = 2 ** (8 * FLOATS[dtype].size - 1)
    found = scan_scales(blocks([1, sign + 1, sign + 2], dtype), 0, Run(), dtype=dtype, codes=None)
    assert (found.hits["negative"].first, found.hits["negative"].count) == (1, 2)


def test_a_negative_nan_is_not_finite_and_not_negative_too() -> None:
    found = scan_scales(blocks([0xFE00], "F16"), 0, Run(), dtype="F16", codes=None)
    assert list(found.hits) == ["not finite"]
    assert isnan(float_value(0xFE00, "F16"))


def test_one_is_one_and_its_neighbours_are_not() -> None:
    def found(bits: list[int]) -> list[str]:
        return list(scan_ones(blocks(bits, "BF16"), 0, Run(), dtype="BF16", kind="not one").hits)

    assert found([0x3F80]) == []
    assert found([0x3F81]) == ["not one"]
    assert found([0xBF80]) == ["not one"]


def test_minus_one_will_do_where_signs_are_asked_for() -> None:
    bits = blocks([0x3F800000, 0xBF800000], "F32")
    assert scan_ones(bits, 0, Run(), dtype="F32", kind="no sign").hits == {}
    bits = blocks([0x3F800000, 0xBF800001], "F32")
    assert list(scan_ones(bits, 0, Run(), dtype="F32", kind="no sign").hits) == ["no sign"]
