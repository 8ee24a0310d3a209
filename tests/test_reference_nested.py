"""Nested weights and the nested layer of the reference, against rational arithmetic."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.backend import ReferenceBackend, backend
from nibblespec.reference.nested import (
    nested_linear,
    nested_reconstruct,
    prefill_f16_linear,
    segments,
)
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, round_float64
from nibblespec.spec.operations import FloatDtype, Nibbles, Plane

from tests.nested_layers import Nested, bits, nested

PLANES: tuple[Plane, ...] = ("draft", "target")
SCALES = [0x0000, 0x0001, 0x0003, 0x03FF, 0x0400, 0x2E66, 0x3C00, 0x3FFF, 0x7BFF]
"""float16 codes: zero, subnormals, the smallest normal, 0.1, 1, 1.999, the largest."""


def code(layer: Nested, plane: Plane, row: int, column: int) -> int:
    """Return the code that a plane reads, as a Python integer."""
    q4, qr = int(layer.q4[row, column]), int(layer.qr[row, column])
    return q4 if plane == "draft" else 16 * q4 + qr


def exact_weight(layer: Nested, plane: Plane, row: int, column: int) -> Fraction:
    """Return the weight as a rational number."""
    width = layer.q4.shape[1] // layer.scale.shape[1]
    scale = Fraction(float(layer.scale[row, column // width]))
    return code(layer, plane, row, column) * (scale if plane == "draft" else scale / 16)


def all_codes() -> tuple[Nibbles, Nibbles]:
    """Return every legal pair of codes, [1, 248]."""
    pairs = [(q4, qr) for q4 in range(-8, 8) for qr in range(-8, 8) if q4 > -8 or qr >= 0]
    q4, qr = np.array(pairs, np.int8).T[:, np.newaxis, :]
    return np.ascontiguousarray(q4), np.ascontiguousarray(qr)


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_code_with_every_kind_of_scale_is_exact_in_float32(plane: Plane, scale: int) -> None:
    q4, qr = all_codes()
    hi, lo = pack_planes(q4, qr)
    scales = np.array([[scale]], np.uint16).view(np.float16)
    weight = nested_reconstruct(hi, lo, scales, plane, "float32")
    layer = Nested(hi, lo, scales, q4, qr)
    expected = [exact_weight(layer, plane, 0, column) for column in range(q4.shape[1])]
    assert [Fraction(value) for value in weight[0].astype(float).tolist()] == expected


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scale", SCALES)
def test_narrow_weights_are_the_exact_ones_rounded_once(
    plane: Plane, dtype: FloatDtype, scale: int
) -> None:
    q4, qr = all_codes()
    hi, lo = pack_planes(q4, qr)
    scales = np.array([[scale]], np.uint16).view(np.float16)
    exact = nested_reconstruct(hi, lo, scales, plane, "float32").astype(np.float64)
    weight = nested_reconstruct(hi, lo, scales, plane, dtype)
    assert bits(weight) == bits(round_float64(exact, dtype))


def test_a_sixteenth_of_a_subnormal_scale_keeps_its_bits() -> None:
    hi, lo = pack_planes(np.array([[0, 1]], np.int8), np.array([[1, 0]], np.int8))
    smallest = np.array([[2.0**-24]], np.float16)
    weight = nested_reconstruct(hi, lo, smallest, "target", "float32")
    assert weight.tolist() == [[2.0**-28, 2.0**-24]]


def test_a_negative_code_with_a_zero_scale_is_minus_zero() -> None:
    hi, _ = pack_planes(np.array([[-3, 3]], np.int8), np.array([[0, 0]], np.int8))
    weight = nested_reconstruct(hi, None, np.zeros((1, 1), np.float16), "draft", "bfloat16")
    assert bits(weight) == [0x8000, 0x0000]


def test_a_weight_beyond_float16_is_infinite() -> None:
    hi, _ = pack_planes(np.array([[-8, 7]], np.int8), np.array([[0, 0]], np.int8))
    scale = np.array([[9360]], np.float16)
    weight = nested_reconstruct(hi, None, scale, "draft", "float16")
    assert weight.tolist() == [[-np.inf, np.inf]]


@pytest.mark.parametrize("groups", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("plane", PLANES)
def test_each_group_of_each_row_uses_its_own_scale(plane: Plane, groups: int) -> None:
    layer = nested(groups, 5, 12, groups)
    weight = nested_reconstruct(layer.hi, layer.lo, layer.scale, plane, "float32")
    for row, column in np.ndindex(5, 12):
        assert Fraction(float(weight[row, column])) == exact_weight(layer, plane, row, column)


@pytest.mark.parametrize("lo", ["none", "zeros", "own"])
def test_the_draft_does_not_look_at_lo(lo: str) -> None:
    layer = nested(1, 3, 8, 2)
    low = {"none": None, "zeros": np.zeros_like(layer.lo), "own": layer.lo}[lo]
    weight = nested_reconstruct(layer.hi, low, layer.scale, "draft", "float32")
    own = nested_reconstruct(layer.hi, layer.lo, layer.scale, "draft", "float32")
    assert np.array_equal(weight, own)


@pytest.mark.parametrize(
    ("columns", "counts", "expected"),
    [
        (6, (1, 1), [(0, 6)]),
        (6, (3, 1), [(0, 2), (2, 4), (4, 6)]),
        (6, (1, 3), [(0, 2), (2, 4), (4, 6)]),
        (6, (3, 2), [(0, 2), (2, 3), (3, 4), (4, 6)]),
        (12, (3, 2), [(0, 4), (4, 6), (6, 8), (8, 12)]),
        (8, (4, 2), [(0, 2), (2, 4), (4, 6), (6, 8)]),
    ],
)
def test_segments_are_the_common_refinement(
    columns: int, counts: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert segments(columns, *counts) == expected


@pytest.mark.parametrize("count", [0, 4, 7])
def test_segments_need_groups_that_divide_the_columns(count: int) -> None:
    with pytest.raises(ValueError, match="groups: expected"):
        segments(6, 3, count)


def activations(seed: int, rows: int, columns: int, group: int) -> tuple[Nibbles, Float32]:
    x = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    return quantize_activations(x, group)


def exact_product(
    xq: Nibbles, sx: Float32, layer: Nested, bias: Array | None, plane: Plane, m: int, n: int
) -> Fraction:
    """Return one element of the layer, column by column, as a rational number."""
    width = xq.shape[1] // sx.shape[1]
    total = Fraction(0 if bias is None else float(bias[n]))
    for column in range(xq.shape[1]):
        x = int(xq[m, column]) * Fraction(float(sx[m, column // width]))
        total += x * exact_weight(layer, plane, n, column)
    return total


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("group", [-1, 2, 3, 4, 6, 12, 24])
def test_the_layer_is_the_scaled_sum_whatever_the_groups(
    group: int, plane: Plane, bias: bool
) -> None:
    layer = nested(2, 3, 24, 6)
    xq, sx = activations(3, 2, 24, group)
    offset = np.array([1, -2, 0.1], np.float16) if bias else None
    y = nested_linear(xq, sx, layer.hi, layer.lo, layer.scale, offset, plane, "float32")
    for m, n in np.ndindex(2, 3):
        exact = exact_product(xq, sx, layer, offset, plane, m, n)
        # Ten float64 operations, then one rounding to float32.
        assert abs(Fraction(float(y[m, n])) - exact) <= abs(exact) / 2**23


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("group", [-1, 3, 4, 8])
def test_powers_of_two_as_scales_give_exact_results(group: int, plane: Plane) -> None:
    layer = nested(4, 5, 24, 3, power_of_two=True)
    xq, sx = activations(5, 4, 24, group)
    sx = (2.0 ** np.rint(np.log2(sx))).astype(np.float32)
    y = nested_linear(xq, sx, layer.hi, layer.lo, layer.scale, None, plane, "float32")
    for m, n in np.ndindex(4, 5):
        exact = exact_product(xq, sx, layer, None, plane, m, n)
        assert Fraction(float(y[m, n])) == exact


def test_the_largest_integer_product_is_exact() -> None:
    columns = 1024
    hi, lo = pack_planes(np.full((1, columns), -8, np.int8), np.zeros((1, columns), np.int8))
    scale = np.full((1, 1), 16, np.float16)
    xq, sx = np.full((1, columns), -128, np.int8), np.ones((1, 1), np.float32)
    y = nested_linear(xq, sx, hi, lo, scale, None, "target", "float32")
    assert y.tolist() == [[128 * 128 * 1024]]


def test_a_product_past_float32s_integers_is_rounded_only_at_the_end() -> None:
    q4 = np.full((1, 2048), 7, np.int8)
    xq = np.full((1, 2048), 127, np.int8)
    xq[0, -1] = 126
    hi, lo = pack_planes(q4, q4)
    sx, scale = np.ones((1, 1), np.float32), np.full((1, 1), 16, np.float16)
    y = nested_linear(xq, sx, hi, lo, scale, None, "target", "float32")
    assert y[0, 0] == np.float32(2047 * 127 * 119 + 126 * 119)


def test_the_bias_is_added_before_the_rounding() -> None:
    hi, _ = pack_planes(np.array([[1, 0]], np.int8), np.array([[0, 0]], np.int8))
    xq, sx = np.array([[1, 0]], np.int8), np.full((1, 1), 1 + 2.0**-8, np.float32)
    scale, bias = np.ones((1, 1), np.float16), np.array([2.0**-12], np.float16)
    y = nested_linear(xq, sx, hi, None, scale, bias, "draft", "bfloat16")
    assert y[0, 0] == 1 + 2.0**-7  # without the bias, a tie that goes to 1


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("group", [-1, 8])
def test_a_row_does_not_depend_on_the_others(dtype: FloatDtype, group: int) -> None:
    layer = nested(6, 9, 64, 4)
    xq, sx = activations(7, 11, 64, group)
    rest = (layer.hi, layer.lo, layer.scale, None)
    together = nested_linear(xq, sx, *rest, "target", dtype)
    for m in range(11):
        alone = nested_linear(xq[m : m + 1], sx[m : m + 1], *rest, "target", dtype)
        assert bits(alone) == bits(together[m : m + 1])


def test_no_rows_give_no_rows() -> None:
    layer = nested(8, 3, 8, 2)
    xq, sx = np.zeros((0, 8), np.int8), np.zeros((0, 1), np.float32)
    y = nested_linear(xq, sx, layer.hi, layer.lo, layer.scale, None, "target", "float16")
    assert y.shape == (0, 3)
    assert y.dtype == np.float16


@pytest.mark.parametrize("plane", PLANES)
def test_prefill_multiplies_operands_that_float16_holds(plane: Plane) -> None:
    layer = nested(9, 3, 24, 2)
    xq, sx = activations(10, 2, 24, 8)
    y = prefill_f16_linear(xq, sx, layer.hi, layer.lo, layer.scale, None, plane, "float32")
    weight = nested_reconstruct(layer.hi, layer.lo, layer.scale, plane, "float16")
    for m, n in np.ndindex(2, 3):
        x = [np.float16(np.float32(xq[m, k]) * sx[m, k // 8]) for k in range(24)]
        terms = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, weight[n], strict=True)]
        exact = sum(terms, Fraction(0))
        assert abs(Fraction(float(y[m, n])) - exact) <= abs(exact) / 2**23


def call(xq: Nibbles, sx: Float32, layer: Nested) -> tuple[Any, ...]:
    """Return the arguments of a call for the target, to float32."""
    return xq, sx, layer.hi, layer.lo, layer.scale, None, "target", "float32"


def test_prefill_differs_from_the_integer_sum() -> None:
    layer = nested(11, 8, 64, 2)
    xq, sx = activations(12, 4, 64, -1)
    arguments = call(xq, sx, layer)
    assert (prefill_f16_linear(*arguments) != nested_linear(*arguments)).any()


def test_a_backend_switches_to_prefill_at_the_rows_it_declares() -> None:
    layer = nested(13, 8, 64, 2)
    switching = ReferenceBackend(prefill_f16_from=3)
    assert switching.capabilities().prefill_f16_from == 3
    for rows in (2, 3, 4):
        xq, sx = activations(14, rows, 64, -1)
        arguments = call(xq, sx, layer)
        expected = nested_linear if rows < 3 else prefill_f16_linear
        assert bits(switching.nested_linear(*arguments)) == bits(expected(*arguments))
        assert bits(backend.nested_linear(*arguments)) == bits(nested_linear(*arguments))


LAYER = nested(15, 3, 8, 2)
XQ, SX = activations(16, 2, 8, 4)


WEIGHT = {
    "hi": LAYER.hi,
    "lo": LAYER.lo,
    "scale": LAYER.scale,
    "plane": "target",
    "dtype": "float32",
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hi": LAYER.hi.view(np.int8)}, TypeError, "hi: expected dtype uint8"),
        ({"hi": LAYER.hi[0]}, ValueError, "hi: expected shape"),
        ({"hi": LAYER.hi[:0], "lo": LAYER.lo[:0]}, ValueError, "no axis of size 0"),
        ({"lo": None}, TypeError, "lo: expected a NumPy array"),
        ({"lo": LAYER.lo[:, :2]}, ValueError, "lo: expected shape"),
        ({"hi": LAYER.hi * 0, "lo": LAYER.lo * 0}, ValueError, "BN1-CODES-INT8"),
        ({"scale": LAYER.scale.astype(np.float32)}, TypeError, "scale: expected dtype float16"),
        ({"scale": LAYER.scale[:1]}, ValueError, r"scale: expected shape \[3, G\]"),
        ({"scale": LAYER.scale[:, :0]}, ValueError, "no axis of size 0"),
        ({"scale": np.ones((3, 3), np.float16)}, ValueError, "divisor of K = 8, found 3"),
        ({"scale": LAYER.scale * np.inf}, ValueError, "scale: expected finite elements"),
        ({"scale": -LAYER.scale}, ValueError, "scale: expected no negative element"),
        ({"dtype": "float64"}, ValueError, "dtype: expected one of"),
        ({"dtype": None}, TypeError, "dtype: expected a string"),
        ({"plane": "both"}, ValueError, "plane: expected one of draft, target"),
    ],
)
def test_reconstruction_refuses(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        nested_reconstruct(**{**WEIGHT, **changes})


@pytest.mark.parametrize("linear", [nested_linear, prefill_f16_linear])
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"xq": XQ.astype(np.int16)}, TypeError, "xq: expected dtype int8"),
        ({"xq": XQ[:, :6]}, ValueError, r"xq: expected shape \[M, 8\], found \[2, 6\]"),
        ({"sx": SX.astype(np.float64)}, TypeError, "sx: expected dtype float32"),
        ({"sx": SX[:1]}, ValueError, r"sx: expected shape \[2, groups\]"),
        ({"sx": SX[:, :0]}, ValueError, "groups of sx: expected at least 1"),
        ({"sx": np.ones((2, 3), np.float32)}, ValueError, "divisor of K = 8, found 3"),
        ({"sx": SX * np.nan}, ValueError, "sx: expected finite elements"),
        ({"bias": np.ones(3, np.float32)}, TypeError, "bias: expected dtype float16"),
        ({"bias": np.ones(2, np.float16)}, ValueError, r"bias: expected shape \[3\]"),
        ({"bias": np.full(3, np.inf, np.float16)}, ValueError, "bias: expected finite"),
        ({"scale": -LAYER.scale}, ValueError, "scale: expected no negative element"),
        ({"lo": None}, TypeError, "lo: expected a NumPy array"),
        ({"dtype": "float8_e5m2"}, ValueError, "dtype: expected one of"),
    ],
)
def test_the_layer_refuses(
    linear: Callable[..., Array], changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {**WEIGHT, "xq": XQ, "sx": SX, "bias": None}
    with pytest.raises(error, match=message):
        linear(**{**arguments, **changes})
