"""The online Hadamard transform, in its canonical float32 evaluation.

    x [..., n]  ─ view, n = K·m ─→  [..., K, m]
    Walsh–Hadamard over m: butterflies at the strides 1, 2, 4, … m/2
    had_K over K: products summed in the order of the index
    times float32(1/√n), then one rounding to the output dtype

A matrix had_K is taken as it is given; `spec.bitnest_package.v1.hadamard_matrices` makes some.
"""

import math

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_choice,
    check_finite,
    check_not_empty,
)
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, round_float32
from nibblespec.spec.operations import FloatDtype


def hadamard(x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
    """Return the transform of the last axis, `dtype` of x's shape.

    x is float16, bfloat16 or float32 [..., K·2^k]; had_k is float32 [K, K], or None for K = 1.
    Implements BN1-HADAMARD-ORDER, BN1-HADAMARD-AXES, BN1-HADAMARD-MATRIX, BN1-HADAMARD-SCALE,
    BN1-HADAMARD-EXACT, BN1-HADAMARD-CANONICAL and BN1-HADAMARD-RANGE. Every step is elementwise
    over the leading axes, so that a row depends on nothing but itself (NUM-INVARIANT-ROWS).

    Raises TypeError for a wrong dtype; ValueError for a matrix that is not square, an axis that is
    no K·2^k, an element that is not finite, or an unknown dtype.
    """
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    check_array(x, "x", FLOAT_DTYPES, ("...", "n"))
    check_finite(x, "x")
    order, columns = split_axis(x.shape[-1], had_k)

    y = x.astype(np.float32).reshape(*x.shape[:-1], order, columns)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = walsh_hadamard(y)
        if had_k is not None:
            y = multiply_by_matrix(had_k, y)
        y = y * inverse_root(x.shape[-1])
    return round_float32(y.reshape(x.shape), dtype)


def split_axis(n: int, had_k: Float32 | None) -> tuple[int, int]:
    """Return (K, m) with n = K·m and m a power of two; K is the order of had_k, 1 without.

    Raises TypeError or ValueError where had_k is no finite square float32 matrix or n no K·2^k.
    """
    order = 1
    if had_k is not None:
        check_array(had_k, "had_k", "float32", ("K", "K"))
        check_not_empty(had_k, "had_k")
        order = had_k.shape[0]
        check_array(had_k, "had_k", "float32", (order, order))
        check_finite(had_k, "had_k")
    columns = n // order
    if columns * order != n or columns.bit_count() != 1:
        raise ValueError(f"x: expected a last axis of {order}·2^k elements, found {n}")
    return order, columns


def walsh_hadamard(x: Float32) -> Float32:
    """Return the unscaled Walsh–Hadamard transform of the last axis (a power of two) of x."""
    size = x.shape[-1]
    stride = 1
    while stride < size:
        pairs = x.reshape(*x.shape[:-1], size // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride *= 2
    return x


def multiply_by_matrix(had_k: Float32, x: Float32) -> Float32:
    """Return y[..., i, :] = Σ over l of had_k[i, l]·x[..., l, :], added in the order of l."""
    y = had_k[:, 0, np.newaxis] * x[..., 0:1, :]
    for column in range(1, had_k.shape[1]):
        y = y + had_k[:, column, np.newaxis] * x[..., column : column + 1, :]
    return y


def inverse_root(n: int) -> np.float32:
    """Return the float32 number nearest to 1/√n."""
    return np.float32(1 / math.sqrt(n))
