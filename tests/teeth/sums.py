"""Honest ways to add float32 terms along the last axis, whatever the other axes hold."""

from collections.abc import Callable, Mapping

import numpy as np
from nibblespec.reference.rounding import Float32, Float64

Sum = Callable[[Float64], Float32]
"""Takes exact terms, float64 [..., n] products of two float32 numbers; returns float32 [...]."""


def in_order(terms: Float64) -> Float32:
    """Add from first to last."""
    total: Float32 = np.cumsum(terms.astype(np.float32), axis=-1, dtype=np.float32)[..., -1]
    return total


def in_reverse(terms: Float64) -> Float32:
    """Add from last to first."""
    return in_order(terms[..., ::-1])


def pairwise(terms: Float64) -> Float32:
    """Add neighbours, then their sums, and so on."""
    parts: Float32 = terms.astype(np.float32)
    while parts.shape[-1] > 1:
        if parts.shape[-1] % 2:
            parts = np.concatenate([parts, np.zeros_like(parts[..., :1])], axis=-1)
        parts = parts[..., 0::2] + parts[..., 1::2]
    return parts[..., 0]


def in_blocks(size: int) -> Sum:
    """Add in blocks of `size`, then the blocks' sums."""

    def add(terms: Float64) -> Float32:
        missing = -terms.shape[-1] % size
        padded = np.concatenate([terms, np.zeros((*terms.shape[:-1], missing))], axis=-1)
        return in_order(in_order(padded.reshape(*terms.shape[:-1], -1, size)).astype(np.float64))

    return add


def split(parts: int) -> Sum:
    """Split the terms in `parts`, as a device does over K, and add the parts pairwise."""

    def add(terms: Float64) -> Float32:
        sums = [in_order(part) for part in np.array_split(terms, parts, axis=-1) if part.shape[-1]]
        return pairwise(np.stack(sums, axis=-1).astype(np.float64))

    return add


def fused(terms: Float64) -> Float32:
    """Add by fused multiply-adds: products are not rounded before they are added."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for place in range(terms.shape[-1]):
        total = (total.astype(np.float64) + terms[..., place]).astype(np.float32)
    return total


def truncating(terms: Float64) -> Float32:
    """Add blocks of eight exact products to the sum at once and cut off, as matrix units do."""
    total = np.zeros(terms.shape[:-1], np.float64)
    for start in range(0, terms.shape[-1], 8):
        block = np.concatenate([total[..., np.newaxis], terms[..., start : start + 8]], axis=-1)
        _, exponent = np.frexp(np.abs(block).max(axis=-1))
        unit = np.ldexp(1.0, exponent - 26)[..., np.newaxis]
        total = _cut(np.sum(np.trunc(block / unit) * unit, axis=-1))
    return total.astype(np.float32)


def in_float64(terms: Float64) -> Float32:
    """Add in float64 and round once."""
    total: Float32 = np.sum(terms, axis=-1).astype(np.float32)
    return total


def _cut(values: Float64) -> Float64:
    mantissa, exponent = np.frexp(values)
    cut: Float64 = np.ldexp(np.trunc(np.ldexp(mantissa, 24)), exponent - 24)
    return cut


SUMS: Mapping[str, Sum] = {
    "in-reverse": in_reverse,
    "pairwise": pairwise,
    "in-blocks-of-64": in_blocks(64),
    "split-in-3": split(3),
    "fused": fused,
    "truncating": truncating,
    "in-float64": in_float64,
}
