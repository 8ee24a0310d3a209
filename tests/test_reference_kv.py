"""The nested KV cache of the reference, checked one element at a time, and what is refused."""

import numpy as np
import pytest
from nibblespec.reference.kv import kv_dequantize, kv_quantize
from nibblespec.reference.planes import unpack_nibbles
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array, Float32
from nibblespec.spec.operations import Plane

from tests.nested_layers import bits, float32


def quantize_one(vector: list[float]) -> tuple[list[int], list[int], np.float32]:
    """Quantize one vector of float32 numbers with scalar operations, each rounded to float32."""
    scale = max(np.float32(max(map(abs, vector)) / 7), np.float32(1e-8))
    q4s, qrs = [], []
    for value in vector:
        q4 = max(-8, min(7, round(float(np.float32(value / float(scale))))))
        product = np.float32(q4 * float(scale))
        remainder = np.float32(value - float(product))
        quotient = np.float32(float(remainder) / float(scale / np.float32(16)))
        q4s.append(q4)
        qrs.append(max(0 if q4 == -8 else -8, min(7, round(float(quotient)))))
    return q4s, qrs, scale


def vectors(seed: int, *shape: int) -> Float32:
    """Draw vectors of many magnitudes."""
    rng = np.random.default_rng(seed)
    drawn: Float32 = rng.normal(size=shape) * 10.0 ** rng.integers(-4, 4, (*shape[:-1], 1))
    return drawn.astype(np.float32)


def same(found: tuple[Array, ...], expected: tuple[Array, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_single_vector_has_a_scale_without_axes() -> None:
    _, _, scale = kv_quantize(vectors(0, 8), None)
    assert isinstance(scale, np.ndarray)
    assert scale.shape == ()


@pytest.mark.parametrize("head_dim", [2, 64, 80, 96, 128, 192, 256])
def test_codes_and_scales_are_those_computed_one_by_one(head_dim: int) -> None:
    x = vectors(head_dim, 2, 3, 5, head_dim)
    hi, lo, scale = kv_quantize(x, None)
    q4, qr = unpack_nibbles(hi), unpack_nibbles(lo)
    assert scale.dtype == np.float32
    for index in np.ndindex(2, 3, 5):
        expected = quantize_one(x[index].astype(float).tolist())
        assert q4[index].tolist() == expected[0]
        assert qr[index].tolist() == expected[1]
        assert scale[index] == expected[2]


def test_a_fused_multiply_add_would_change_residuals() -> None:
    x = np.random.default_rng(1).normal(size=(400, 64)).astype(DTYPES["bfloat16"])
    hi, lo, scale = kv_quantize(x, None)
    q4, step = unpack_nibbles(hi), scale[:, np.newaxis].astype(np.float64)
    # float64 holds the product: only the difference is rounded.
    fused = (x.astype(float) - q4 * step).astype(np.float32)
    qr = np.clip(np.rint(fused / (scale[:, np.newaxis] / np.float32(16))), -8, 7)
    assert 0 < (qr != unpack_nibbles(lo)).mean() < 0.01


def test_half_a_step_is_clipped_to_seven_sixteenths() -> None:
    hi, lo, scale = kv_quantize(float32(7, 0.5, -3.5, 2.5), None)
    assert scale == 1
    assert unpack_nibbles(hi).tolist() == [7, 0, -4, 2]
    assert unpack_nibbles(lo).tolist() == [0, 7, 7, 7]


def test_minus_half_a_step_is_minus_eight_sixteenths() -> None:
    hi, lo, _ = kv_quantize(float32(7, -0.5, 3.5, -2.5), None)
    assert unpack_nibbles(hi).tolist() == [7, 0, 4, -2]
    assert unpack_nibbles(lo).tolist() == [0, -8, -8, -8]


def test_ties_of_the_residual_go_to_the_even_code() -> None:
    _, lo, _ = kv_quantize(float32(7, 1 / 32, 3 / 32, 5 / 32, -1 / 32, -3 / 32), None)
    assert unpack_nibbles(lo).tolist() == [0, 0, 2, 2, 0, -2]


def test_a_vector_of_zeros_gets_the_smallest_scale() -> None:
    hi, lo, scale = kv_quantize(np.zeros((1, 4), np.float32), None)
    assert bits(scale) == [0x322BCC77]
    assert (hi == 0x88).all()
    assert (lo == 0x88).all()


def test_scales_are_for_each_token_and_head() -> None:
    x = np.ones((1, 2, 3, 4), np.float32) * (7 * np.arange(1, 7).reshape(1, 2, 3, 1))
    _, _, scale = kv_quantize(x.astype(np.float32), None)
    assert scale.tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_the_offset_of_its_own_head_is_subtracted_first() -> None:
    x = vectors(3, 2, 3, 5, 8)
    offset = vectors(4, 3, 8)
    shifted = (x - offset[np.newaxis, :, np.newaxis, :]).astype(np.float32)
    assert same(kv_quantize(x, offset), kv_quantize(shifted, None))


def test_the_offset_is_subtracted_in_float32() -> None:
    x = np.array([[[1.0, 2.0**-12]]], np.float16)
    offset = np.array([[2.0**-12, 0.0]], np.float16)
    _, _, scale = kv_quantize(x, offset)
    assert scale == np.float32(1 - 2.0**-12) / np.float32(7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_inputs_are_quantized_as_the_same_values_in_float32(dtype: str) -> None:
    x = np.random.default_rng(5).normal(size=(2, 3, 16)).astype(DTYPES[dtype])
    offset = np.random.default_rng(6).normal(size=(2, 16)).astype(DTYPES[dtype])
    narrow = kv_quantize(x, offset)
    wide = kv_quantize(x.astype(np.float32), offset.astype(np.float32))
    assert same(narrow, wide)


def test_the_largest_float_does_not_overflow() -> None:
    x = np.full((1, 2), np.finfo(np.float32).max, np.float32)
    hi, lo, scale = kv_quantize(x, None)
    assert np.array_equal(kv_dequantize(hi, lo, scale, "target"), x)


@pytest.mark.parametrize("plane", ["draft", "target"])
def test_a_reader_sees_codes_times_scales_rounded_once(plane: Plane) -> None:
    hi, lo, scale = kv_quantize(vectors(8, 3, 5, 6), None)
    q4, qr = unpack_nibbles(hi).astype(int), unpack_nibbles(lo).astype(int)
    codes, steps = (q4, scale) if plane == "draft" else (16 * q4 + qr, scale / np.float32(16))
    exact = codes * steps[..., np.newaxis].astype(np.float64)
    read = kv_dequantize(hi, lo, scale, plane)
    assert read.dtype == np.float32
    assert np.array_equal(read, exact.astype(np.float32))


def test_the_target_is_sixteen_times_as_close() -> None:
    x = vectors(9, 50, 64)
    hi, lo, scale = kv_quantize(x, None)
    target = np.abs(kv_dequantize(hi, lo, scale, "target") - x) / scale[:, np.newaxis]
    draft = np.abs(kv_dequantize(hi, None, scale, "draft") - x) / scale[:, np.newaxis]
    assert draft.max() <= 0.5001
    assert target.max() <= 0.0626  # the residual is clipped at 7/16 of a step


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_token_does_not_depend_on_the_others(dtype: str) -> None:
    x = vectors(10, 2, 9, 16).astype(DTYPES[dtype])
    hi, lo, scale = kv_quantize(x, None)
    for token in range(9):
        one = slice(token, token + 1)
        alone = kv_quantize(np.ascontiguousarray(x[:, one]), None)
        assert same(alone, (hi[:, one], lo[:, one], scale[:, one]))


X, OFFSET = np.ones((2, 3, 4), np.float32), np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("x", "offset", "error", "message"),
    [
        (X.astype(np.float64), None, TypeError, "x: expected dtype"),
        (np.float32(1), None, TypeError, "x: expected a NumPy array"),
        (X[:, :, :3], None, ValueError, "divisor of head_dim = 3"),
        (X[:, :, :0], None, ValueError, "head_dim: expected at least 1"),
        (X * np.nan, None, ValueError, "x: expected finite elements"),
        (X, OFFSET.astype(np.float64), TypeError, "offset: expected dtype"),
        (X, OFFSET[:1], ValueError, r"offset: expected shape \[2, 4\], found \[1, 4\]"),
        (X, OFFSET[0], ValueError, "offset: expected shape"),
        (X[0], OFFSET, ValueError, "x: expected shape"),
        (X, OFFSET * np.inf, ValueError, "offset: expected finite elements"),
        (X * 3e38, OFFSET * -3e38, ValueError, "x - offset: expected finite elements"),
    ],
)
def test_writing_refuses(
    x: Array, offset: Array | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kv_quantize(x.astype(np.float32) if x.dtype == np.float32 and x.ndim else x, offset)


PLANE, SCALE = np.full((2, 3, 2), 0x88, np.uint8), np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("hi", "lo", "scale", "plane", "error", "message"),
    [
        (PLANE.view(np.int8), PLANE, SCALE, "target", TypeError, "hi: expected dtype uint8"),
        (PLANE, None, SCALE, "target", TypeError, "lo: expected a NumPy array"),
        (PLANE, PLANE[:1], SCALE, "target", ValueError, "lo: expected shape"),
        (PLANE[:0], PLANE[:0], SCALE[:0], "draft", ValueError, "no axis of size 0"),
        (PLANE, None, SCALE.astype(np.float16), "draft", TypeError, "scale: expected dtype"),
        (PLANE, None, SCALE[:, :2], "draft", ValueError, "scale: expected shape"),
        (PLANE, None, SCALE * np.inf, "draft", ValueError, "scale: expected finite elements"),
        (PLANE * 0, PLANE * 0, SCALE, "target", ValueError, "BN1-CODES-INT8"),
        (PLANE, PLANE, SCALE, "kv8", ValueError, "plane: expected one of draft, target"),
    ],
)
def test_reading_refuses(
    hi: Array, lo: Array, scale: Array, plane: Plane, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kv_dequantize(hi, lo, scale, plane)
