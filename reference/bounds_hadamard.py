"""The Hadamard transform in float64, and how far from that a conforming result may be.

Numerics, chapter 5, states the bound; this is its derivation. Steps are those of `bounds_linear`:
each is off by a relative ε = 2⁻²³ at most, products also by η = 2⁻¹⁴⁹.

Element [i, j] of the result is Σ over l and c of had_K[i, l]·S[j, c]/√n · x[l, c] with S = ±1: n
terms. Whatever the algorithm, the computed sum is Σ of terms·(1 + θ) with |θ| ≤ γ(steps), where
`steps` is the largest number of steps that any term passes through, hence an error of at most
γ(steps)·A[i] with A[i] = Σ over l of |had_K[i, l]|/√n · Σ over c of |x[l, c]|. The steps of a
term:

- over the columns: a stage of radix r ≤ 16 adds r numbers in some order, at most r − 1 sums, and
  settles log₂ r binary digits of c. So k digits take at most 15·⌈k/4⌉ sums in radix 16, no more
  than that in any smaller radix (1 sum a digit in radix 2, 3 for two, 7 for three), and no more
  than m − 1 in any case, for there are only m numbers to add;
- over the rows, if there is a matrix: one product and K − 1 sums;
- the scale: representing and applying 1/√n, in one piece or two (1/√K and 1/√m, say): 4 steps.

*Underflow.* Sums do not underflow inexactly. A product by a part of the scale is off by η at most,
at worst for each of the n inputs before they are multiplied by |had_K| ≤ h; a product by had_K by
η, before the scale, which is at most 1. All of it is below 4·n·(1 + h)·η.

*The oracle's own error*: the same analysis with 2⁻⁵³ for ε. It adds n terms directly, in at most n
steps and 4 more.
"""

import math

import numpy as np
from nibblespec.reference.arguments import check_array, check_finite
from nibblespec.reference.bounds import (
    LARGEST_FLOAT32,
    UNDERFLOW,
    Bounded,
    gamma,
    gamma_float64,
)
from nibblespec.reference.hadamard import split_axis
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, Float64
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import sylvester

RADIX_DIGITS = 4
"""Binary digits of the largest radix that the bound covers, 16."""

LARGEST_STAGE = (1 << RADIX_DIGITS) - 1
"""Sums in a stage of that radix."""

SCALE_STEPS = 4

LARGEST_DENSE = 256
"""Order of the largest S that is formed."""


def hadamard_bounded(x: Array, had_k: Float32 | None) -> Bounded:
    """Return value and error of `hadamard`, float64 of x's shape each (NUM-HADAMARD-BOUND).

    Arguments and errors as `nibblespec.reference.hadamard.hadamard`.
    """
    check_array(x, "x", FLOAT_DTYPES, ("...", "n"))
    check_finite(x, "x")
    n = x.shape[-1]
    order, columns = split_axis(n, had_k)
    matrix = np.ones((1, 1)) if had_k is None else had_k.astype(np.float64)
    wide = x.astype(np.float64).reshape(*x.shape[:-1], order, columns)

    value = matrix @ walsh_hadamard_float64(wide) / math.sqrt(n)
    magnitude = np.abs(matrix) @ np.abs(wide).sum(axis=-1, keepdims=True) / math.sqrt(n)
    largest = float(np.abs(matrix).max())
    steps = column_steps(columns) + (0 if had_k is None else order) + SCALE_STEPS
    relative = gamma(steps) + 2 * gamma_float64(n + 4)
    error = relative * magnitude + 4 * n * (1 + largest) * UNDERFLOW
    if n * np.abs(wide).max(initial=0) * max(1, largest) > LARGEST_FLOAT32 / 2:
        error = np.full_like(error, np.inf)
    return Bounded(
        value=value.reshape(x.shape), error=np.broadcast_to(error, wide.shape).reshape(x.shape)
    )


def column_steps(columns: int) -> int:
    """Return d: sums that an input passes through in the transform of 2^k columns."""
    digits = columns.bit_length() - 1
    stages = -(-digits // RADIX_DIGITS)
    return min(columns - 1, LARGEST_STAGE * stages)


def walsh_hadamard_float64(x: Float64) -> Float64:
    """Return the unscaled Walsh–Hadamard transform of the last axis, by dense products with S.

    S of order a·b is the Kronecker product of those of orders a and b: long axes go in parts.
    """
    columns = x.shape[-1]
    inner = min(columns, LARGEST_DENSE)
    parts: Float64 = x.reshape(*x.shape[:-1], columns // inner, inner) @ sylvester(inner)
    if columns > inner:
        parts = walsh_hadamard_float64(parts.swapaxes(-1, -2)).swapaxes(-1, -2)
    return parts.reshape(x.shape)
