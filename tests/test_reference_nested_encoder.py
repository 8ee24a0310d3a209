"""The nested encoder of the reference: rules of the format, accuracy, and what is refused."""

from typing import Any

import numpy as np
import pytest
from nibblespec.reference.nested import nested_reconstruct
from nibblespec.reference.nested_encoder import encode_nested, encode_residual
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array, Float32

from tests.nested_layers import bits, float32


def encode_one(value: float, scale: float) -> tuple[int, int]:
    """Encode one float32 weight against a float16 scale with scalar float32 operations."""
    if scale == 0:
        return 0, 0
    q4 = max(-8, min(7, round(float(np.float32(value / scale)))))
    remainder = np.float32(value - float(np.float32(q4 * scale)))
    qr = round(float(np.float32(float(remainder) / (scale / 16))))
    return q4, max(0 if q4 == -8 else -8, min(7, qr))


def weights(seed: int, rows: int, columns: int) -> Float32:
    """Draw rows of many magnitudes, some in float16's subnormals."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-8, 2, (rows, 1))
    return drawn.astype(np.float32)


@pytest.mark.parametrize("group_size", [2, 3, 8, 24])
def test_codes_are_those_computed_one_by_one(group_size: int) -> None:
    weight = weights(group_size, 30, 24)
    q4, qr, scale = encode_nested(weight, group_size)
    for row, column in np.ndindex(30, 24):
        expected = encode_one(float(weight[row, column]), float(scale[row, column // group_size]))
        assert (int(q4[row, column]), int(qr[row, column])) == expected


def test_the_scale_is_a_seventh_of_the_largest_magnitude_in_float16() -> None:
    _, _, scale = encode_nested(float32(0.3, -0.7, 1.4, 0.1).reshape(1, 4), 2)
    assert scale.dtype == np.float16
    assert scale.tolist() == [[np.float16(0.1), np.float16(0.2)]]


def test_a_group_of_zeros_gets_zeros() -> None:
    q4, qr, scale = encode_nested(np.zeros((1, 4), np.float32), 4)
    assert not q4.any()
    assert not qr.any()
    assert bits(scale) == [0]


def test_weights_too_small_for_a_float16_scale_get_zeros() -> None:
    q4, qr, scale = encode_nested(np.full((1, 4), 1e-8, np.float32), 4)
    assert not q4.any()
    assert not qr.any()
    assert bits(scale) == [0]


def test_a_scale_rounded_down_to_a_subnormal_reaches_the_lowest_code() -> None:
    value = np.float32(9.5 * 2.0**-24)  # a seventh of it is 1.36 · 2⁻²⁴, stored as 2⁻²⁴
    q4, qr, scale = encode_nested(np.array([[-value, value]]), 2)
    assert bits(scale) == [1]
    assert q4.tolist() == [[-8, 7]]
    assert qr.tolist() == [[0, 7]]


@pytest.mark.parametrize("seed", range(3))
def test_every_code_fits_eight_bits(seed: int) -> None:
    q4, qr, _ = encode_nested(weights(seed, 60, 32), 16)
    hi, lo = pack_planes(q4, qr)  # refuses what does not fit
    assert hi.shape == lo.shape == (60, 16)


def test_the_residual_is_fitted_to_the_stored_scale() -> None:
    weight = np.random.default_rng(7).normal(size=(16, 128)).astype(np.float32)
    q4, qr, scale = encode_nested(weight, 64)
    hi, lo = pack_planes(q4, qr)
    target = nested_reconstruct(hi, lo, scale, "target", "float32")
    draft = nested_reconstruct(hi, None, scale, "draft", "float32")
    step = np.repeat(scale.astype(np.float32), 64, axis=1)
    inside = np.abs(weight) < 7 * step
    assert (np.abs(draft - weight) <= 0.5001 * step)[inside].all()
    assert (np.abs(target - weight) <= 0.0626 * step)[inside].all()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_narrow_weights_are_encoded_as_the_same_values_in_float32(dtype: str) -> None:
    weight = np.random.default_rng(8).normal(size=(4, 16)).astype(DTYPES[dtype])
    narrow, wide = encode_nested(weight, 8), encode_nested(weight.astype(np.float32), 8)
    assert [part.tolist() for part in narrow] == [part.tolist() for part in wide]


def test_a_residual_can_be_fitted_to_codes_from_elsewhere() -> None:
    weight, scale = float32(1.0, -2.0, 0.5, 3.0).reshape(1, 4), np.ones((1, 1), np.float16)
    q4 = np.array([[2, -8, 0, 3]], np.int8)
    assert encode_residual(weight, q4, scale).tolist() == [[-8, 7, 7, 0]]


W = np.ones((2, 6), np.float32)


@pytest.mark.parametrize(
    ("weight", "group_size", "error", "message"),
    [
        (W.astype(np.float64), 3, TypeError, "weight: expected dtype"),
        (W[0], 3, ValueError, "weight: expected shape"),
        (W[:0], 3, ValueError, "weight: expected no axis of size 0"),
        (W[:, :5], 5, ValueError, "divisor of K = 5, found 2"),
        (W * np.nan, 3, ValueError, "weight: expected finite elements"),
        (W, 4, ValueError, "group_size: expected a divisor of K = 6, found 4"),
        (W, 0, ValueError, "group_size: expected at least 1"),
        (W, 3.0, TypeError, "group_size: expected an integer"),
        (W * 458720, 3, ValueError, r"larger one in row 0, group 0; rescale the layer"),
    ],
)
def test_encoding_refuses(
    weight: Array, group_size: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        encode_nested(weight, group_size)


def test_the_largest_scale_is_accepted() -> None:
    _, _, scale = encode_nested(np.full((1, 2), 65519 * 7, np.float32), 2)
    assert scale.tolist() == [[65504]]


RESIDUAL: dict[str, Any] = {
    "weight": W,
    "q4": np.zeros((2, 6), np.int8),
    "scale": np.ones((2, 2), np.float16),
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"weight": W.astype(np.int8)}, TypeError, "weight: expected dtype"),
        ({"weight": W[:0]}, ValueError, "weight: expected no axis of size 0"),
        ({"weight": W * np.inf}, ValueError, "weight: expected finite elements"),
        ({"q4": np.zeros((2, 5), np.int8)}, ValueError, "q4: expected shape"),
        ({"q4": np.full((2, 6), 8, np.int8)}, ValueError, "q4: expected elements in -8 … 7"),
        ({"scale": np.ones((2, 2), np.float32)}, TypeError, "scale: expected dtype float16"),
        ({"scale": np.ones((2, 4), np.float16)}, ValueError, "divisor of K = 6, found 4"),
        ({"scale": np.ones((2, 0), np.float16)}, ValueError, "no axis of size 0"),
        ({"scale": np.full((2, 2), np.inf, np.float16)}, ValueError, "scale: expected finite"),
    ],
)
def test_the_residual_refuses(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        encode_residual(**{**RESIDUAL, **changes})
