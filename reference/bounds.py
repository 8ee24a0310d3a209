"""Error bounds: what a result of the bounded class may be (Numerics, chapters 2 and 4 to 6)."""

from dataclasses import dataclass

import numpy as np
from nibblespec.reference.rounding import Array, Float64, round_float64
from numpy.typing import NDArray

STEP = 2.0**-23
"""ε: relative error of one float32 step that returns either neighbour of the exact result."""

UNDERFLOW = 2.0**-149
"""η: absolute error of a float32 product that underflows, the smallest subnormal."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Bounded:
    """The exact result of an operation, as float64, and how far a backend may be from it.

    `value` and `error` are float64 arrays of the result's shape. `error` counts the backend's
    steps before the last rounding, and the error of `value` itself; it is infinite where any
    result conforms.
    """

    value: Float64
    error: Float64


def gamma(steps: int, unit: float = STEP) -> float:
    """Return γ(n) = n·ε / (1 − n·ε): relative error of a term that passes through n steps.

    Each step multiplies by 1 + δ with |δ| ≤ ε; the product of n such factors, or of their
    reciprocals, differs from 1 by at most γ(n) (Higham, Accuracy and Stability of Numerical
    Algorithms, lemma 3.1). Raises ValueError where n·ε reaches 1 and there is no bound.
    """
    if steps * unit >= 1:
        raise ValueError(f"steps: expected fewer than {1 / unit:.0f}, found {steps}")
    return steps * unit / (1 - steps * unit)


def gamma_float64(steps: int) -> float:
    """Return γ(n) of float64 arithmetic that rounds to nearest: the oracle's own error."""
    return gamma(steps, 2.0**-53)


def interval(bounded: Bounded, dtype: str) -> tuple[Array, Array]:
    """Return the least and the greatest conforming result, `dtype` arrays.

    Rounding never reverses an order: what is within `error` of `value` before the last rounding
    is between the rounded ends after it, subnormals and overflow included.
    """
    with np.errstate(invalid="ignore"):
        low, high = bounded.value - bounded.error, bounded.value + bounded.error
    free = ~np.isfinite(bounded.value) | ~np.isfinite(bounded.error)
    low, high = np.where(free, -np.inf, low), np.where(free, np.inf, high)
    return round_float64(low, dtype), round_float64(high, dtype)


def outside(result: Array, bounded: Bounded) -> NDArray[np.bool_]:
    """Return where `result` does not conform: bool of its shape, for a result in its own dtype.

    NaN is outside, except where any result conforms.
    """
    low, high = interval(bounded, result.dtype.name)
    with np.errstate(invalid="ignore"):
        inside = (low <= result) & (result <= high)
    return ~(inside | ~np.isfinite(bounded.value + bounded.error))
