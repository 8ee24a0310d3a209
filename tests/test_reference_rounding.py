"""Roundings of the reference, checked against the order of the codes rather than another cast."""

import numpy as np
import pytest
from nibblespec.reference.rounding import (
    DTYPES,
    Array,
    Float64,
    numpy_dtype,
    round_float32,
    round_float64,
)
from numpy.typing import NDArray

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def bits(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


def positive_codes(dtype: str) -> Array:
    """Return the codes of +0 and all positive finite values, in ascending order of value."""
    size = 8 * DTYPES[dtype].itemsize
    codes = np.arange(2 ** (size - 1), dtype=f"u{size // 8}")
    with np.errstate(invalid="ignore"):
        finite: NDArray[np.bool_] = np.isfinite(codes.view(DTYPES[dtype]))
    return codes[finite]


def values_of(codes: Array, dtype: str) -> Float64:
    return codes.view(DTYPES[dtype]).astype(np.float64)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_of_a_dtype_rounds_to_itself(dtype: str) -> None:
    codes = positive_codes(dtype)
    values = values_of(codes, dtype)
    assert np.array_equal(bits(round_float32(values.astype(np.float32), dtype)), codes)
    assert np.array_equal(bits(round_float64(values, dtype)), codes)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_tie_goes_to_the_even_code_and_its_neighbours_to_the_nearest(
    dtype: str, sign: float
) -> None:
    codes = positive_codes(dtype)
    lower, upper = codes[:-1], codes[1:]
    middle = sign * (values_of(lower, dtype) + values_of(upper, dtype)) / 2
    sign_bit = lower.dtype.type(0 if sign > 0 else 2 ** (8 * lower.itemsize - 1))
    even = np.where(lower % 2 == 0, lower, upper) | sign_bit
    away = np.float64(sign * np.inf)
    tie = middle.astype(np.float32)

    assert np.array_equal(tie.astype(np.float64), middle)
    assert np.array_equal(bits(round_float32(tie, dtype)), even)
    assert np.array_equal(bits(round_float64(middle, dtype)), even)
    for below, above, rounded in (
        (np.nextafter(tie, np.float32(0)), np.nextafter(tie, np.float32(away)), round_float32),
        (np.nextafter(middle, 0.0), np.nextafter(middle, away), round_float64),
    ):
        assert np.array_equal(bits(rounded(below, dtype)), lower | sign_bit)
        assert np.array_equal(bits(rounded(above, dtype)), upper | sign_bit)


def test_float64_rounds_to_float32_to_nearest_ties_to_even() -> None:
    rng = np.random.default_rng(5)
    lower = rng.integers(0, 0x7F7FFFFE, 100_000, dtype=np.uint32)
    lower = np.concatenate([lower, np.arange(2000, dtype=np.uint32)])
    value = lower.view(np.float32).astype(np.float64)
    middle = (value + (lower + 1).view(np.float32).astype(np.float64)) / 2
    even = lower + lower % 2
    assert np.array_equal(bits(round_float64(middle, "float32")), even)
    assert np.array_equal(bits(round_float64(np.nextafter(middle, 0), "float32")), lower)
    assert np.array_equal(bits(round_float64(np.nextafter(middle, np.inf), "float32")), lower + 1)


@pytest.mark.parametrize(
    ("dtype", "limit", "largest"),
    [
        ("float16", 65520.0, 65504.0),
        ("bfloat16", (2 - 2.0**-8) * 2.0**127, (2 - 2.0**-7) * 2.0**127),
    ],
)
def test_overflow_begins_at_half_a_step_beyond_the_largest_value(
    dtype: str, limit: float, largest: float
) -> None:
    values = np.array([limit, np.nextafter(limit, 0), 1e300, -limit, -1e300])
    expected = [np.inf, largest, np.inf, -np.inf, -np.inf]
    assert round_float64(values, dtype).astype(np.float64).tolist() == expected
    single = np.array([limit, np.nextafter(np.float32(limit), np.float32(0))], np.float32)
    assert round_float32(single, dtype).astype(np.float64).tolist() == [np.inf, largest]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_zeros_keep_their_sign_and_tiny_values_become_zeros_of_theirs(dtype: str) -> None:
    values = np.array([0.0, -0.0, 1e-300, -1e-300])
    rounded = round_float64(values, dtype)
    assert rounded.astype(np.float64).tolist() == [0, 0, 0, 0]
    assert np.signbit(rounded).tolist() == [False, True, False, True]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_infinities_and_nan_stay_what_they_are(dtype: str) -> None:
    values = np.array([np.inf, -np.inf, np.nan])
    for rounded in (round_float64(values, dtype), round_float32(values.astype(np.float32), dtype)):
        assert rounded.dtype == DTYPES[dtype]
        assert np.isposinf(rounded[0].astype(np.float64))
        assert np.isneginf(rounded[1].astype(np.float64))
        assert np.isnan(rounded[2])


def test_float64_to_bfloat16_is_rounded_once_where_the_cast_rounds_twice() -> None:
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert bits(round_float64(value, "bfloat16"))[0] == 0x3F81
    assert bits(value.astype(DTYPES["bfloat16"]))[0] == 0x3F80, "the cast is fixed: simplify"


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_rounding_keeps_the_shape(shape: tuple[int, ...]) -> None:
    assert round_float64(np.ones(shape), "bfloat16").shape == shape
    assert round_float32(np.ones(shape, np.float32), "float16").shape == shape


def test_rounding_returns_a_fresh_array() -> None:
    values = np.ones(3, np.float32)
    assert not np.shares_memory(round_float32(values, "float32"), values)


def test_a_wrong_input_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="values: expected float32, found float64"):
        round_float32(np.ones(1), "float16")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match="values: expected float64, found float32"):
        round_float64(np.ones(1, np.float32), "float16")


@pytest.mark.parametrize("name", ["fp16", "float64", "torch.float16", "FLOAT16", ""])
def test_a_dtype_name_that_is_not_canonical_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="dtype: expected one of float16, bfloat16"):
        numpy_dtype(name)
    with pytest.raises(ValueError, match="dtype: expected one of"):
        round_float32(np.ones(1, np.float32), name)
