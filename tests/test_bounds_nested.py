"""The bound of the nested layer: it holds for float32 in any order, and sees one wrong code."""

from collections.abc import Callable

import numpy as np
import pytest
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.bounds import outside
from nibblespec.reference.bounds_nested import nested_linear_bounded, prefill_f16_bounded
from nibblespec.reference.nested import (
    nested_linear,
    nested_reconstruct,
    prefill_f16_linear,
    segments,
)
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import FLOAT_DTYPES, Float32, round_float32
from nibblespec.spec.operations import Float16, FloatDtype, Nibbles, Plane

from tests.nested_layers import Nested, nested

PLANES: tuple[Plane, ...] = ("draft", "target")
BIAS = np.array([3.0, -1.0, 0.1, 100.0], np.float16)


def activations(seed: int, rows: int, columns: int, group: int) -> tuple[Nibbles, Float32]:
    x = np.random.default_rng(seed).normal(size=(rows, columns)) + 1
    return quantize_activations(x.astype(np.float32), group)


def float32_terms(xq: Nibbles, sx: Float32, layer: Nested, plane: Plane) -> list[Float32]:
    """Return the scaled integer products of the segments, float32 [M, N] each."""
    scale = layer.scale.astype(np.float32)
    codes = layer.q4.astype(int) if plane == "draft" else 16 * layer.q4.astype(int) + layer.qr
    step = scale if plane == "draft" else scale / np.float32(16)
    columns = xq.shape[1]
    terms = []
    for start, stop in segments(columns, scale.shape[1], sx.shape[1]):
        dot = (xq[:, start:stop].astype(int) @ codes[:, start:stop].T).astype(np.float32)
        x_scale = sx[:, start // (columns // sx.shape[1]), np.newaxis]
        w_scale = step[np.newaxis, :, start // (columns // scale.shape[1])]
        terms.append((dot * x_scale) * w_scale)
    return terms


def forwards(terms: list[Float32], bias: Float16) -> Float32:
    total = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total + bias.astype(np.float32)


def backwards_from_the_bias(terms: list[Float32], bias: Float16) -> Float32:
    total = np.zeros_like(terms[0]) + bias.astype(np.float32)
    for term in reversed(terms):
        total = total + term
    return total


def pairwise(terms: list[Float32], bias: Float16) -> Float32:
    terms = [*terms, np.zeros_like(terms[0]) + bias.astype(np.float32)]
    while len(terms) > 1:
        terms = [sum(terms[i + 1 : i + 2], terms[i]) for i in range(0, len(terms), 2)]
    return terms[0]


@pytest.mark.parametrize("add", [forwards, backwards_from_the_bias, pairwise])
@pytest.mark.parametrize("group", [-1, 4, 12])
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_float32_sums_in_any_order_are_inside(
    add: Callable[[list[Float32], Float16], Float32], group: int, plane: Plane, dtype: FloatDtype
) -> None:
    layer = nested(1, 4, 240, 30)
    xq, sx = activations(2, 20, 240, group)
    y = round_float32(add(float32_terms(xq, sx, layer, plane), BIAS), dtype)
    bounded = nested_linear_bounded(xq, sx, layer.hi, layer.lo, layer.scale, BIAS, plane)
    assert not outside(y, bounded).any()


@pytest.mark.parametrize("plane", PLANES)
def test_the_reference_is_inside(plane: Plane) -> None:
    layer = nested(3, 4, 96, 8)
    xq, sx = activations(4, 5, 96, 16)
    arguments = (xq, sx, layer.hi, layer.lo, layer.scale, BIAS, plane)
    y = nested_linear(*arguments, "float32")
    assert not outside(y, nested_linear_bounded(*arguments)).any()
    y = prefill_f16_linear(*arguments, "float32")
    assert not outside(y, prefill_f16_bounded(*arguments)).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_one_residual_off_by_one_is_outside_in_most_elements(dtype: FloatDtype) -> None:
    layer = nested(5, 8, 256, 2)
    xq, sx = activations(6, 8, 256, -1)
    qr = layer.qr.copy()
    qr[:, 0] = np.where(qr[:, 0] == 7, 6, qr[:, 0] + 1)
    xq[:, 0] = 127
    hi, lo = pack_planes(layer.q4, qr)
    y = nested_linear(xq, sx, hi, lo, layer.scale, None, "target", dtype)
    bounded = nested_linear_bounded(xq, sx, layer.hi, layer.lo, layer.scale, None, "target")
    seen = outside(y, bounded).mean()
    assert seen == 1 if dtype == "float32" else seen > 0.2


def test_a_weight_rounded_to_float16_is_outside() -> None:
    layer = nested(7, 16, 256, 2)
    xq, sx = activations(8, 8, 256, -1)
    arguments = (xq, sx, layer.hi, layer.lo, layer.scale, None)
    y = prefill_f16_linear(*arguments, "target", "float32")
    assert outside(y, nested_linear_bounded(*arguments, "target")).mean() > 0.9


def test_float16_activations_against_the_mode_prefill_f16() -> None:
    layer = nested(9, 4, 64, 2)
    xq, sx = activations(10, 6, 64, -1)
    weight = nested_reconstruct(layer.hi, layer.lo, layer.scale, "target", "float16")
    x = (xq.astype(np.float32) * sx).astype(np.float16)
    total = np.zeros((6, 4), np.float32)
    for k in reversed(range(64)):
        total = total + x[:, k, np.newaxis].astype(np.float32) * weight[:, k].astype(np.float32)
    bounded = prefill_f16_bounded(xq, sx, layer.hi, layer.lo, layer.scale, None, "target")
    assert not outside(total, bounded).any()


def test_a_bias_of_another_length_is_refused() -> None:
    layer = nested(11, 4, 64, 2)
    xq, sx = activations(12, 2, 64, -1)
    arguments = (xq, sx, layer.hi, layer.lo, layer.scale, BIAS[:3])
    for bounded in (nested_linear_bounded, prefill_f16_bounded):
        with pytest.raises(ValueError, match=r"bias: expected shape \[4\], found \[3\]"):
            bounded(*arguments, "target")
