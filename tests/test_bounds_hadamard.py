"""The bound of the Hadamard transform: it holds for other algorithms, and sees one wrong sign."""

import numpy as np
import pytest
from nibblespec.reference.bounds import outside
from nibblespec.reference.bounds_hadamard import (
    column_steps,
    hadamard_bounded,
    walsh_hadamard_float64,
)
from nibblespec.reference.hadamard import hadamard
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array, Float32
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix, sylvester
from nibblespec.spec.operations import FloatDtype

SHAPES = [(1, 64), (1, 2048), (12, 16), (28, 32), (148, 8), (172, 2)]


def matrix_of(order: int) -> Float32 | None:
    return None if order == 1 else hadamard_matrix(order)


def draw(seed: int, rows: int, n: int, mean: float = 0) -> Float32:
    drawn: Float32 = np.random.default_rng(seed).normal(mean, 1, (rows, n)).astype(np.float32)
    return drawn


def radix(x: Float32, size: int) -> Float32:
    """Transform the last axis in stages of `size`, each a sum in the order of the index."""
    done, m = 1, x.shape[-1]
    while done < m:
        radix_now = min(size, m // done)
        signs = sylvester(radix_now).astype(np.float32)
        parts = x.reshape(*x.shape[:-1], m // (radix_now * done), radix_now, done)
        total = signs[:, 0, np.newaxis] * parts[..., 0:1, :]
        for i in range(1, radix_now):
            total = total + signs[:, i, np.newaxis] * parts[..., i : i + 1, :]
        x = total.reshape(x.shape)
        done *= radix_now
    return x


def rows_backwards(x: Float32, had_k: Float32) -> Float32:
    """Multiply by the matrix, summing from the last row to the first."""
    total = had_k[:, -1, np.newaxis] * x[..., -1:, :]
    for row in reversed(range(len(had_k) - 1)):
        total = total + had_k[:, row, np.newaxis] * x[..., row : row + 1, :]
    return total


@pytest.mark.parametrize("mean", [0, 10])
@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize(("order", "m"), SHAPES)
def test_other_radices_and_orders_are_inside(order: int, m: int, size: int, mean: float) -> None:
    had_k, n = matrix_of(order), order * m
    x = draw(order, 4, n, mean)
    y = x.reshape(4, order, m) / np.float32(np.sqrt(m))  # scaled early, in two parts
    y = radix(y, size)
    if had_k is not None:
        y = rows_backwards(y, had_k)
    y = (y / np.float32(np.sqrt(order))).reshape(4, n)
    assert not outside(y, hadamard_bounded(x, had_k)).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize(("order", "m"), SHAPES)
def test_the_canonical_evaluation_is_inside(order: int, m: int, dtype: FloatDtype) -> None:
    x = draw(m, 4, order * m).astype(DTYPES[dtype])
    y = hadamard(x, matrix_of(order), dtype)
    assert not outside(y, hadamard_bounded(x, matrix_of(order))).any()


def test_a_real_orthogonal_matrix_is_inside() -> None:
    orthogonal, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(148, 148)))
    had_k = (orthogonal * np.sqrt(148)).astype(np.float32)
    x = draw(2, 4, 148 * 4)
    y = rows_backwards(radix(x.reshape(4, 148, 4), 4), had_k).reshape(x.shape)
    y = y / np.float32(np.sqrt(148 * 4))
    assert not outside(y, hadamard_bounded(x, had_k)).any()


@pytest.mark.parametrize(("order", "m"), SHAPES)
def test_one_wrong_sign_of_an_input_is_outside(order: int, m: int) -> None:
    x = draw(3, 1, order * m)
    wrong = x.copy()
    wrong[0, 1] = -wrong[0, 1]
    y = hadamard(wrong, matrix_of(order), "float32")
    assert outside(y, hadamard_bounded(x, matrix_of(order))).mean() > 0.99


@pytest.mark.parametrize("order", [12, 20, 44, 156])
def test_a_transposed_matrix_is_outside(order: int) -> None:
    had_k = hadamard_matrix(order)
    x = draw(4, 1, order * 4)
    y = hadamard(x, np.ascontiguousarray(had_k.T), "float32")
    assert outside(y, hadamard_bounded(x, had_k)).mean() > 0.5


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_missing_scale_is_outside(dtype: FloatDtype) -> None:
    x = draw(5, 1, 64)
    y = (hadamard(x, None, "float32") * np.float32(8)).astype(DTYPES[dtype])
    assert outside(y, hadamard_bounded(x, None)).all()


def test_float16_butterflies_are_outside() -> None:
    x = draw(6, 4, 4096).astype(np.float16)
    y = x
    stride = 1
    while stride < 4096:
        pairs = y.reshape(4, 4096 // (2 * stride), 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        y = np.stack([a + b, a - b], axis=2).reshape(4, 4096)
        stride *= 2
    y = y / np.float16(64)
    assert outside(y, hadamard_bounded(x, None)).mean() > 0.2


@pytest.mark.parametrize(
    ("columns", "steps"), [(1, 0), (2, 1), (4, 3), (8, 7), (16, 15), (32, 30), (512, 45)]
)
def test_sums_of_a_transform_in_radix_sixteen(columns: int, steps: int) -> None:
    assert column_steps(columns) == steps


@pytest.mark.parametrize("columns", [1, 8, 256, 512, 2048])
def test_the_float64_transform_is_the_definition(columns: int) -> None:
    row = np.random.default_rng(7).integers(columns)
    unit: Array = np.zeros(columns)
    unit[row] = 1
    signs = [(-1.0) ** (row & column).bit_count() for column in map(int, range(columns))]
    assert walsh_hadamard_float64(unit).tolist() == signs


def test_nothing_is_claimed_where_sums_may_overflow() -> None:
    x = np.full((1, 64), 1e37, np.float32)
    assert np.isinf(hadamard_bounded(x, None).error).all()
    assert np.isfinite(hadamard_bounded(x / 100, None).error).all()


def test_wrong_arguments_are_refused_as_in_the_operation() -> None:
    with pytest.raises(ValueError, match=r"expected a last axis of 1·2\^k elements, found 6"):
        hadamard_bounded(np.ones((1, 6), np.float32), None)
    with pytest.raises(TypeError, match="x: expected dtype"):
        hadamard_bounded(np.ones((1, 8)), None)
