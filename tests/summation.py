"""Honest ways to compute a product of matrices in float32, and the operands to try them on."""

from collections.abc import Callable

import numpy as np
from nibblespec.reference.rounding import Array, Float32, round_float32, round_float64


def draw(*shape: int, dtype: str = "float32", seed: int = 2, mean: float = 0.0) -> Array:
    values = mean + np.random.default_rng(seed).standard_normal(shape)
    return round_float64(values, dtype)


def in_order(x: Float32, w: Float32) -> np.float32:
    total = np.float32(0)
    for term in x * w:
        total += term
    return total


def in_reverse(x: Float32, w: Float32) -> np.float32:
    return in_order(x[::-1], w[::-1])


def pairwise(x: Float32, w: Float32) -> np.float32:
    terms = x * w
    while len(terms) > 1:
        terms = np.append(terms[0::2][: len(terms) // 2] + terms[1::2], terms[len(terms) & ~1 :])
    return np.float32(terms[0])


def in_blocks(x: Float32, w: Float32) -> np.float32:
    starts = range(0, len(x), 16)
    return in_order(
        np.array([in_order(x[i : i + 16], w[i : i + 16]) for i in starts]),
        np.ones(len(starts), np.float32),
    )


def largest_first(x: Float32, w: Float32) -> np.float32:
    order = np.argsort(-np.abs(x * w))
    return in_order(x[order], w[order])


def with_fused_multiply_add(x: Float32, w: Float32) -> np.float32:
    total = np.float32(0)
    for a, b in zip(x.astype(np.float64), w.astype(np.float64), strict=True):
        total = np.float32(round_float64(np.array(a * b + np.float64(total)), "float32"))
    return total


def truncated(value: np.float64) -> np.float64:
    """Cut to 24 bits, as matrix units do."""
    mantissa, exponent = np.frexp(value)
    return np.float64(np.ldexp(np.trunc(np.ldexp(mantissa, 24)), exponent - 24))


def with_truncation(x: Float32, w: Float32) -> np.float32:
    total = np.float64(0)
    for a, b in zip(x.astype(np.float64), w.astype(np.float64), strict=True):
        total = truncated(total + truncated(a * b))
    return np.float32(total)


def in_float64(x: Float32, w: Float32) -> np.float32:
    return np.float32(np.sum(x.astype(np.float64) * w.astype(np.float64)))


Dot = Callable[[Float32, Float32], np.float32]
"""Σ x·w for operands float32 [K]."""

HONEST: list[Dot] = [
    in_order,
    in_reverse,
    pairwise,
    in_blocks,
    largest_first,
    with_fused_multiply_add,
    with_truncation,
    in_float64,
]


def product(x: Array, weight: Array, dot: Dot, dtype: str) -> Array:
    rows = [[dot(a, w) for w in weight.astype(np.float32)] for a in x.astype(np.float32)]
    return round_float32(np.array(rows, np.float32), dtype)
