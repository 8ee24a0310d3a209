"""Correct Hadamard transforms: other radices, other orders, dense products."""

import math

import numpy as np
from nibblespec.reference.bounds_hadamard import walsh_hadamard_float64
from nibblespec.reference.hadamard import (
    inverse_root,
    multiply_by_matrix,
    split_axis,
    walsh_hadamard,
)
from nibblespec.reference.rounding import Array, Float32, round_float32, round_float64
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import sylvester
from nibblespec.spec.operations import FloatDtype, Hadamard

from tests.teeth.sums import pairwise
from tests.teeth.variant import Variant, computing


def radix(r: int) -> Hadamard:
    """Take the columns in stages of radix r; a stage adds from the last addend to the first."""

    def hadamard(x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
        order, columns = split_axis(x.shape[-1], had_k)
        y = x.astype(np.float32).reshape(-1, order, columns)
        stride = 1
        while stride < columns:
            width = min(r, columns // stride)
            parts = y.reshape(len(y), order, -1, width, stride)
            signs = sylvester(width).astype(np.float32)[..., np.newaxis]
            total = signs[:, -1] * parts[..., -1:, :]
            for addend in range(width - 2, -1, -1):
                total = total + signs[:, addend] * parts[..., addend : addend + 1, :]
            y = total.reshape(len(y), order, columns)
            stride *= width
        if had_k is not None:
            y = multiply_by_matrix(had_k, y)
        return finished(y, x, dtype)

    return hadamard


def matrix_first(x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
    """Sum over K, pairwise, before the columns are transformed."""
    order, columns = split_axis(x.shape[-1], had_k)
    y = x.astype(np.float32).reshape(-1, order, columns)
    if had_k is not None:
        rows = [
            pairwise(np.moveaxis(row[:, np.newaxis].astype(np.float64) * y, 1, -1)) for row in had_k
        ]
        y = np.stack(rows, axis=1)
    return finished(walsh_hadamard(y), x, dtype)


def dense(x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
    """Multiply by the matrices in float64, row by row."""
    order, columns = split_axis(x.shape[-1], had_k)
    matrix = np.ones((1, 1)) if had_k is None else had_k.astype(np.float64)
    rows = x.astype(np.float64).reshape(-1, order, columns)
    result = np.empty(rows.shape, np.float64)
    for place, row in enumerate(rows):
        result[place] = matrix @ walsh_hadamard_float64(row) / math.sqrt(x.shape[-1])
    return round_float64(result.reshape(x.shape), dtype)


def divided(x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
    """Divide by √n."""
    order, columns = split_axis(x.shape[-1], had_k)
    y = walsh_hadamard(x.astype(np.float32).reshape(-1, order, columns))
    if had_k is not None:
        y = multiply_by_matrix(had_k, y)
    return round_float32((y / np.float32(math.sqrt(x.shape[-1]))).reshape(x.shape), dtype)


def finished(y: Float32, x: Array, dtype: FloatDtype) -> Array:
    """Scale by 1/√n and round once."""
    return round_float32((y * inverse_root(x.shape[-1])).reshape(x.shape), dtype)


VARIANTS: tuple[Variant, ...] = (
    computing("butterflies-of-radix-4", "stages of four addends", hadamard=radix(4)),
    computing("butterflies-of-radix-16", "stages of sixteen addends", hadamard=radix(16)),
    computing("matrix-first", "the sum over K comes first, pairwise", hadamard=matrix_first),
    computing("dense-in-float64", "products with dense matrices in float64", hadamard=dense),
    computing("divided-by-the-root", "divided by √n", hadamard=divided),
)
