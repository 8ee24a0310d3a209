"""A8 activations of the reference: ties, floors, groups, true division, and what is refused."""

import ml_dtypes
import numpy as np
import pytest
from nibblespec.reference.activations import SMALLEST_SCALE, quantize_activations
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array

from tests.nested_layers import bits, float32


def one_by_one(x: Array, width: int) -> tuple[list[list[int]], list[list[np.float32]]]:
    """Quantize with Python loops; float64 divides two float32 so that rounding again is exact."""
    codes, scales = [], []
    for row in x.astype(np.float64).tolist():
        groups = [row[start : start + width] for start in range(0, len(row), width)]
        row_scales = [
            max(np.float32(max(map(abs, group)) / 127), np.float32(1e-8)) for group in groups
        ]
        quotients = [
            np.float32(value / float(scale))
            for group, scale in zip(groups, row_scales, strict=True)
            for value in group
        ]
        codes.append([max(-128, min(127, round(float(quotient)))) for quotient in quotients])
        scales.append(row_scales)
    return codes, scales


def test_ties_go_to_the_even_code_in_both_signs() -> None:
    x = float32(127, 0.5, 1.5, 2.5, 125.5, -0.5, -1.5, -2.5, -125.5).reshape(1, 9)
    codes, scale = quantize_activations(x, -1)
    assert scale.tolist() == [[1.0]]
    assert codes.tolist() == [[127, 0, 2, 2, 126, 0, -2, -2, -126]]


def test_the_largest_magnitude_gets_127_in_its_own_sign() -> None:
    codes, _ = quantize_activations(np.array([[-3.7, 1.0], [3.7, -1.0]], np.float32), -1)
    assert codes[:, 0].tolist() == [-127, 127]


def test_a_row_of_zeros_gets_the_smallest_scale() -> None:
    codes, scale = quantize_activations(np.zeros((1, 4), np.float32), -1)
    assert codes.tolist() == [[0, 0, 0, 0]]
    assert bits(scale) == [0x322BCC77]


@pytest.mark.parametrize("largest", [1e-45, 1e-20, 1e-8, 1.2e-6])
def test_small_rows_get_the_smallest_scale(largest: float) -> None:
    _, scale = quantize_activations(np.full((1, 2), largest, np.float32), -1)
    assert scale[0, 0] == SMALLEST_SCALE


def test_the_largest_floats_do_not_overflow() -> None:
    largest = np.finfo(np.float32).max
    codes, scale = quantize_activations(np.array([[largest, -largest]]), -1)
    assert codes.tolist() == [[127, -127]]
    assert np.isfinite(scale).all()


@pytest.mark.parametrize("group", [-1, 1, 3, 8, 24])
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_codes_and_scales_are_those_computed_one_by_one(dtype: str, group: int) -> None:
    rng = np.random.default_rng(24)
    x = (rng.normal(size=(50, 24)) * 10.0 ** rng.integers(-3, 3, (50, 1))).astype(DTYPES[dtype])
    codes, scale = quantize_activations(x, group)
    expected_codes, expected_scales = one_by_one(x, 24 if group == -1 else group)
    assert codes.dtype == np.int8
    assert scale.dtype == np.float32
    assert codes.tolist() == expected_codes
    assert scale.tolist() == expected_scales


def test_a_product_with_the_reciprocal_would_differ() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, 64)).astype(ml_dtypes.bfloat16)
    codes, scale = quantize_activations(x, -1)
    by_reciprocal = np.rint(x.astype(np.float32) * (np.float32(1) / scale)).astype(np.int8)
    assert (codes != by_reciprocal).any()


def test_each_group_has_its_own_scale() -> None:
    x = float32(1, 1, 2, 2, 4, 4).reshape(1, 6) * 127
    codes, scale = quantize_activations(x, 2)
    assert scale.tolist() == [[1, 2, 4]]
    assert (codes == 127).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_inputs_are_quantized_as_the_same_values_in_float32(dtype: str) -> None:
    x = np.random.default_rng(7).normal(size=(9, 10)).astype(DTYPES[dtype])
    narrow, wide = quantize_activations(x, 5), quantize_activations(x.astype(np.float32), 5)
    assert np.array_equal(narrow[0], wide[0])
    assert bits(narrow[1]) == bits(wide[1])


def test_no_rows_give_no_rows() -> None:
    codes, scale = quantize_activations(np.zeros((0, 6), np.float32), 3)
    assert codes.shape == (0, 6)
    assert scale.shape == (0, 2)


X = np.ones((2, 6), np.float32)


@pytest.mark.parametrize(
    ("x", "group", "error", "message"),
    [
        (X.tolist(), -1, TypeError, "x: expected a NumPy array"),
        (X.astype(np.float64), -1, TypeError, "x: expected dtype float16 or bfloat16 or float32"),
        (X[0], -1, ValueError, "x: expected shape"),
        (X[:, :0], -1, ValueError, "columns of x: expected at least 1, found 0"),
        (X * np.inf, -1, ValueError, r"x: expected finite elements, found inf at \[0, 0\]"),
        (X * np.nan, -1, ValueError, "x: expected finite elements, found nan"),
        (X, 4, ValueError, "group: expected a divisor of K = 6, found 4"),
        (X, 0, ValueError, "group: expected at least 1, found 0"),
        (X, -2, ValueError, "group: expected at least 1, found -2"),
        (X, 12, ValueError, "group: expected a divisor"),
        (X, 2.0, TypeError, "group: expected an integer"),
    ],
)
def test_it_refuses(x: Array, group: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quantize_activations(x, group)
