"""Correct attention: blocks with a running maximum, splits, powers of two, codes before scales."""

from collections.abc import Callable

import numpy as np
from nibblespec.reference.attention import attention_input, visible
from nibblespec.reference.rounding import Array, Float32, Float64, round_float32
from nibblespec.spec.operations import Bytes, FloatDtype, KvAttention, Plane

from tests.teeth.variant import Variant, computing

LOG2_E = np.float32(1.4426950408889634)

Part = tuple[np.float32, np.float32, Float32]
"""Largest score, sum of weights and weighted sum [D] of some keys."""

One = Callable[[Float32, Float32, Float32, np.float32], Float32]
"""One query: query [D], keys and values [L, D], softmax_scale; returns [D]."""


def by_query(one: One) -> KvAttention:
    """Attend with `one`, query by query, keys and values dequantized to float32."""

    def kv_attention(
        q: Array,
        k_hi: Bytes,
        k_lo: Bytes | None,
        k_scale: Float32,
        v_hi: Bytes,
        v_lo: Bytes | None,
        v_scale: Float32,
        v_offset: Array | None,
        position: int,
        plane: Plane,
        softmax_scale: float,
        dtype: FloatDtype,
    ) -> Array:
        given = attention_input(
            q, k_hi, k_lo, k_scale, v_hi, v_lo, v_scale, v_offset, position, plane, softmax_scale
        )
        result = np.empty(q.shape, np.float32)
        for batch, head, m in np.ndindex(*q.shape[:3]):
            keys, values, offset = visible(given, batch, head, m)
            query = given.queries[batch, head, m].astype(np.float32)
            mean = one(query, narrow(keys), narrow(values), np.float32(given.softmax_scale))
            result[batch, head, m] = mean if offset is None else mean + narrow(offset)
        return round_float32(result, dtype)

    return kv_attention


def narrow(values: Float64) -> Float32:
    """Round to float32, as `kv_dequantize` does."""
    return values.astype(np.float32)


def direct(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Softmax over all keys in float32."""
    part = attend(query * scale, keys, values)
    return part[2] / part[1]


def attend(query: Float32, keys: Float32, values: Float32) -> Part:
    """Treat some keys; `query` is scaled already."""
    scores = np.sum(keys * query, axis=1, dtype=np.float32)
    weights = np.exp(scores - scores.max())
    return scores.max(), weights.sum(), np.sum(weights[:, np.newaxis] * values, axis=0)


def combine(one: Part, other: Part) -> Part:
    """Rescale two parts to the larger of their maxima and add them."""
    largest = np.maximum(one[0], other[0])
    a, b = np.exp(one[0] - largest), np.exp(other[0] - largest)
    return largest, a * one[1] + b * other[1], a * one[2] + b * other[2]


def in_blocks(size: int) -> One:
    """Go through the keys in blocks with a running maximum (flash attention)."""

    def one(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
        running: Part = (np.float32(-np.inf), np.float32(0), np.zeros_like(query))
        for start in range(0, len(keys), size):
            block = slice(start, start + size)
            running = combine(running, attend(query * scale, keys[block], values[block]))
        return running[2] / running[1]

    return one


def in_splits(count: int) -> One:
    """Treat `count` splits apart and combine them in a tree (flash decoding)."""

    def one(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
        parts = [
            attend(query * scale, k, v)
            for k, v in zip(np.array_split(keys, count), np.array_split(values, count), strict=True)
            if len(k)
        ]
        while len(parts) > 1:
            parts = [combine(parts[0], parts[1]), *parts[2:]][::-1]
        return parts[0][2] / parts[0][1]

    return one


def by_logarithms(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Treat four splits apart; each hands over its mean and the logarithm of its sum."""
    parts = [
        attend(query * scale, k, v)
        for k, v in zip(np.array_split(keys, 4), np.array_split(values, 4), strict=True)
        if len(k)
    ]
    means = np.stack([total / weight for _, weight, total in parts])
    sums = np.array([largest + np.log(weight) for largest, weight, _ in parts], np.float32)
    weights = np.exp(sums - sums.max())
    mean: Float32 = np.sum(weights[:, np.newaxis] * means, axis=0) / weights.sum()
    return mean


def powers_of_two(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Multiply the scale by log₂e and use 2^x."""
    scores = np.sum(keys * query, axis=1, dtype=np.float32) * (scale * LOG2_E)
    weights = np.exp2(scores - scores.max())
    mean: Float32 = np.sum(weights[:, np.newaxis] * values, axis=0) / weights.sum()
    return mean


def reversed_keys(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Add from the last key to the first, element after element, times a reciprocal."""
    scores = np.cumsum((keys * query)[:, ::-1], axis=1, dtype=np.float32)[:, -1] * scale
    weights = np.exp(scores - scores.max())
    total = np.cumsum((weights[:, np.newaxis] * values)[::-1], axis=0, dtype=np.float32)[-1]
    mean: Float32 = total * (np.float32(1) / np.cumsum(weights[::-1], dtype=np.float32)[-1])
    return mean


def wide(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Compute in float64."""
    scores = scale.astype(np.float64) * (keys.astype(np.float64) @ query.astype(np.float64))
    weights = np.exp(scores - scores.max())
    return narrow(weights @ values.astype(np.float64) / weights.sum())


VARIANTS: tuple[Variant, ...] = tuple(
    computing(name, what, kv_attention=by_query(one))
    for name, what, one in (
        ("attention-in-float32", "a softmax over all keys in float32", direct),
        ("blocks-of-16", "a running maximum, blocks of 16 keys", in_blocks(16)),
        ("blocks-of-64", "a running maximum, blocks of 64 keys", in_blocks(64)),
        ("splits-in-7", "seven splits of the cache, combined by their maxima", in_splits(7)),
        ("splits-by-logarithms", "four splits, combined by logarithms", by_logarithms),
        ("powers-of-two", "softmax_scale · log₂e and powers of two", powers_of_two),
        ("reversed-keys", "keys and elements added backwards", reversed_keys),
        ("attention-in-float64", "float64 from float32 keys and values", wide),
    )
)
