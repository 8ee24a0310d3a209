"""The Hadamard transform of the reference: definition, canonical bits, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
from nibblespec.reference.hadamard import hadamard, inverse_root
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array, Float32
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import ORDERS, hadamard_matrix
from nibblespec.spec.operations import FloatDtype

from tests.nested_layers import bits, float32

ROTATION = float32(1, 1, -1, 1).reshape(2, 2)
"""A ±1 matrix of order 2 that is not symmetric."""


def dense(n: int, had_k: Float32 | None) -> Array:
    """Return the matrix of the unscaled transform, element by element from the definition."""
    order = 1 if had_k is None else len(had_k)
    m = n // order
    matrix = np.empty((n, n))
    for row, column in np.ndindex(n, n):
        sign = (-1) ** ((row % m) & (column % m)).bit_count()
        weight = 1.0 if had_k is None else float(had_k[row // m, column // m])
        matrix[row, column] = weight * sign
    return matrix


def canonical(x: list[float], had_k: Float32 | None) -> list[np.float32]:
    """Evaluate with scalar float32 operations in the order of the text."""
    order = 1 if had_k is None else len(had_k)
    m = len(x) // order
    rows = [[np.float32(v) for v in x[i * m : (i + 1) * m]] for i in range(order)]
    for row in rows:
        stride = 1
        while stride < m:
            for start in range(0, m, 2 * stride):
                for j in range(start, start + stride):
                    a, b = row[j], row[j + stride]
                    row[j], row[j + stride] = a + b, a - b
            stride *= 2
    if had_k is not None:
        sums = []
        for i in range(order):
            total = [had_k[i, 0] * v for v in rows[0]]
            for other in range(1, order):
                row = rows[other]
                total = [t + had_k[i, other] * v for t, v in zip(total, row, strict=True)]
            sums.append(total)
        rows = sums
    factor = np.float32(1 / np.sqrt(np.float64(len(x))))
    return [v * factor for row in rows for v in row]


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 64])
def test_walsh_hadamard_is_in_the_order_of_sylvester(n: int) -> None:
    y = hadamard(np.eye(n, dtype=np.float32), None, "float32")
    assert np.allclose(y * np.sqrt(n), dense(n, None).T, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("order", "m"), [(2, 1), (2, 8), (12, 4), (20, 2), (28, 1)])
def test_the_matrix_acts_on_elements_m_apart(order: int, m: int) -> None:
    had_k = ROTATION if order == 2 else hadamard_matrix(order)
    n = order * m
    y = hadamard(np.eye(n, dtype=np.float32), had_k, "float32")
    assert np.allclose(y * np.sqrt(n), dense(n, had_k).T, rtol=1e-6, atol=0)


def test_a_transposed_matrix_gives_something_else() -> None:
    x = float32(1, 2, 3, 4)
    assert hadamard(x, ROTATION, "float32").tolist() == [5, -1, 2, 0]
    assert hadamard(x, np.ascontiguousarray(ROTATION.T), "float32").tolist() == [-2, 0, 5, -1]


@pytest.mark.parametrize(("order", "m"), [(1, 8), (1, 32), (2, 8), (12, 8), (20, 4), (28, 2)])
def test_the_bits_are_those_of_the_canonical_order(order: int, m: int) -> None:
    had_k = {1: None, 2: ROTATION}.get(order) if order < 3 else hadamard_matrix(order)
    x = np.random.default_rng(order).normal(size=(4, order * m)).astype(np.float32)
    y = hadamard(x, had_k, "float32")
    for row in range(4):
        expected = np.array(canonical(x[row].astype(float).tolist(), had_k), np.float32)
        assert bits(y[row]) == bits(expected)


def test_products_of_a_real_matrix_are_rounded_before_they_are_added() -> None:
    rng = np.random.default_rng(1)
    orthogonal, _ = np.linalg.qr(rng.normal(size=(7, 7)))
    had_k = (orthogonal * np.sqrt(7)).astype(np.float32)
    x = rng.normal(size=14).astype(np.float32)
    expected = np.array(canonical(x.astype(float).tolist(), had_k), np.float32)
    assert bits(hadamard(x, had_k, "float32")) == bits(expected)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_integers_at_a_power_of_four_are_exact(dtype: FloatDtype) -> None:
    x = np.random.default_rng(2).integers(-9, 10, (5, 64)).astype(np.float32)
    exact = (x.astype(float) @ dense(64, None)) / 8
    assert np.array_equal(hadamard(x, None, "float32"), exact)
    assert bits(hadamard(x, None, dtype)) == bits(exact.astype(np.float32).astype(DTYPES[dtype]))


@pytest.mark.parametrize("order", ORDERS)
def test_the_transform_keeps_the_norm(order: int) -> None:
    had_k = None if order == 1 else hadamard_matrix(order)
    x = np.random.default_rng(order).normal(size=(3, order * 8)).astype(np.float32)
    y = hadamard(x, had_k, "float32")
    assert np.allclose(np.linalg.norm(y, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)


def test_without_a_matrix_it_is_its_own_inverse() -> None:
    x = np.random.default_rng(3).integers(-9, 10, (2, 256)).astype(np.float32)
    assert np.array_equal(hadamard(hadamard(x, None, "float32"), None, "float32"), x)


def test_weights_and_inputs_transformed_alike_keep_their_product() -> None:
    rng = np.random.default_rng(4)
    weight, x = (rng.normal(size=(5, 96)).astype(np.float32) for _ in range(2))
    had_k = hadamard_matrix(12)
    product = hadamard(weight, had_k, "float32") @ hadamard(x, had_k, "float32").T
    assert np.allclose(product, weight @ x.T, atol=1e-4)


def test_float16_inputs_do_not_overflow_inside() -> None:
    y = hadamard(np.full(16384, 8, np.float16), None, "float16")
    assert y[0] == 8 * 128
    assert not y[1:].any()


@pytest.mark.parametrize("order", [1, *ORDERS])
def test_the_factor_is_the_float32_nearest_to_the_inverse_root(order: int) -> None:
    for k in range(16):
        n = order << k
        factor = inverse_root(n)
        below, above = (np.nextafter(factor, np.float32(end)) for end in (0, 2))
        low, high = (
            (Fraction(float(factor)) + Fraction(float(other))) / 2 for other in (below, above)
        )
        assert low * low * n < 1 < high * high * n


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_row_does_not_depend_on_the_others(dtype: FloatDtype) -> None:
    x = np.random.default_rng(5).normal(size=(2, 7, 48)).astype(DTYPES[dtype])
    together = hadamard(x, hadamard_matrix(12), dtype)
    for index in np.ndindex(2, 7):
        assert bits(hadamard(x[index], hadamard_matrix(12), dtype)) == bits(together[index])


def test_no_rows_give_no_rows() -> None:
    assert hadamard(np.zeros((0, 8), np.float16), None, "bfloat16").shape == (0, 8)


X = np.ones((2, 12), np.float32)


@pytest.mark.parametrize(
    ("x", "had_k", "dtype", "error", "message"),
    [
        (X.astype(np.float64), None, "float32", TypeError, "x: expected dtype"),
        (X.astype(np.int8), None, "float32", TypeError, "x: expected dtype"),
        (X, None, "float32", ValueError, r"x: expected a last axis of 1·2\^k .* found 12"),
        (X[:, :0], None, "float32", ValueError, "found 0"),
        (np.ones((), np.float32), None, "float32", ValueError, "x: expected shape"),
        (X, hadamard_matrix(20), "float32", ValueError, r"20·2\^k elements, found 12"),
        (X[:, :8], hadamard_matrix(12), "float32", ValueError, r"12·2\^k elements, found 8"),
        (X, np.ones((2, 3), np.float32), "float32", ValueError, "had_k: expected shape"),
        (X, np.ones(2, np.float32), "float32", ValueError, "had_k: expected shape"),
        (X, np.ones((0, 0), np.float32), "float32", ValueError, "had_k: expected no axis"),
        (X, np.ones((2, 2), np.float64), "float32", TypeError, "had_k: expected dtype float32"),
        (X, ROTATION * np.inf, "float32", ValueError, "had_k: expected finite elements"),
        (X * np.inf, hadamard_matrix(12), "float32", ValueError, "x: expected finite elements"),
        (X, hadamard_matrix(12), "float64", ValueError, "dtype: expected one of"),
    ],
)
def test_it_refuses(
    x: Array, had_k: Float32, dtype: FloatDtype, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        hadamard(x, had_k, dtype)
