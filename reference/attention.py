"""Attention over the nested KV cache, one query at a time, in float64.

    planes, scales ─ code · scale, exact in float64 ─→ keys and values [L, D] of one head
    scores = t · Σ q·k   over the keys 0 … position + m
    weights = exp(scores − max), divided by their sum
    result = Σ weight·value, plus the offset, one rounding to the output dtype

A query is computed alone, from the keys that it sees: neither other queries nor the rest of the
cache can change a bit of its result (NUM-INVARIANT-ROWS).
"""

import math
from dataclasses import dataclass

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_choice,
    check_divides,
    check_finite,
    check_integer,
    check_not_empty,
)
from nibblespec.reference.planes import read_codes
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, Float64, round_float64
from nibblespec.spec.operations import Bytes, FloatDtype, Plane


@dataclass(frozen=True, slots=True)
class AttentionInput:
    """The checked operands of a call, every one exact in float64."""

    queries: Float64
    """[B, Hq, M, D]"""
    keys: Float64
    """[B, Hkv, L, D]"""
    values: Float64
    """[B, Hkv, L, D]"""
    offset: Float64 | None
    """[Hkv, D]"""
    position: int
    softmax_scale: float
    """A float32 number."""
    largest_key_scale: float


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
    """Return `dtype` [B, Hq, M, D]; query m sees the keys 0 … position + m.

    q is float16, bfloat16 or float32 [B, Hq, M, D]; planes uint8 [B, Hkv, L, D/2] (lo is not read
    for draft), scales float32 [B, Hkv, L]; v_offset in any of q's dtypes [Hkv, D], or None. Hq is a
    multiple of Hkv, and position + M is at most L. softmax_scale is positive; it is rounded to
    float32. Implements BN1-ATTENTION-CAUSAL, BN1-ATTENTION-HEADS, BN1-ATTENTION-OFFSET,
    BN1-ATTENTION-PLANE and BN1-ATTENTION-WIDEN.

    Raises TypeError for a wrong dtype or kind; ValueError for shapes that do not fit each other, an
    empty array, an element that is not finite, a position that the cache does not hold, codes that
    break BN1-CODES-INT8, or an unknown plane or dtype.
    """
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    given = attention_input(
        q, k_hi, k_lo, k_scale, v_hi, v_lo, v_scale, v_offset, position, plane, softmax_scale
    )
    result = np.empty_like(given.queries)
    for batch, head, m in np.ndindex(*q.shape[:3]):
        keys, values, offset = visible(given, batch, head, m)
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        result[batch, head, m] = weighted_mean(weights, values)
        if offset is not None:
            result[batch, head, m] += offset
    return round_float64(result, dtype)


def scores_and_weights(
    query: Float64, keys: Float64, softmax_scale: float
) -> tuple[Float64, Float64]:
    """Return scores and exp(score − largest score), [L] each, for query [D] and keys [L, D]."""
    scores: Float64 = softmax_scale * np.sum(keys * query, axis=1)
    return scores, np.exp(scores - scores.max())


def weighted_mean(weights: Float64, values: Float64) -> Float64:
    """Return Σ weights·values / Σ weights, [D], for weights [L] and values [L, D]."""
    total: Float64 = np.sum(weights[:, np.newaxis] * values, axis=0)
    return total / np.sum(weights)


def visible(
    given: AttentionInput, batch: int, head: int, m: int
) -> tuple[Float64, Float64, Float64 | None]:
    """Return the keys and values that a query sees, [L', D] each, and its offset [D]."""
    shared = head // (given.queries.shape[1] // given.keys.shape[1])
    count = given.position + m + 1
    offset = None if given.offset is None else given.offset[shared]
    return given.keys[batch, shared, :count], given.values[batch, shared, :count], offset


def attention_input(
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
) -> AttentionInput:
    """Check the arguments of `kv_attention` and widen them to float64."""
    check_array(q, "q", FLOAT_DTYPES, ("B", "Hq", "M", "D"))
    check_not_empty(q, "q")
    check_finite(q, "q")
    batch, heads, queries, head_dim = q.shape
    check_divides(2, head_dim, "codes per byte", "head_dim")
    check_array(k_hi, "k_hi", "uint8", (batch, "Hkv", "L", head_dim // 2))
    check_array(v_hi, "v_hi", "uint8", k_hi.shape)
    keys = exact_values(k_hi, k_lo, k_scale, plane, "k_")
    values = exact_values(v_hi, v_lo, v_scale, plane, "v_")
    check_divides(k_hi.shape[1], heads, "Hkv", "Hq")
    if v_offset is not None:
        check_array(v_offset, "v_offset", FLOAT_DTYPES, (k_hi.shape[1], head_dim))
        check_finite(v_offset, "v_offset")
    check_integer(position, "position", 0, k_hi.shape[2] - queries)
    return AttentionInput(
        queries=q.astype(np.float64),
        keys=keys,
        values=values,
        offset=None if v_offset is None else v_offset.astype(np.float64),
        position=int(position),
        softmax_scale=checked_softmax_scale(softmax_scale),
        largest_key_scale=float(np.abs(k_scale).max()),
    )


def exact_values(hi: Bytes, lo: Bytes | None, scale: Float32, plane: Plane, name: str) -> Float64:
    """Return codes times scales, [..., D], not rounded: 8 bits times 24 fit float64."""
    codes = read_codes(hi, lo, plane, name)
    check_array(scale, f"{name}scale", "float32", hi.shape[:-1])
    check_finite(scale, f"{name}scale")
    step = scale.astype(np.float64) / (1 if plane == "draft" else 16)
    return codes * step[..., np.newaxis]


def checked_softmax_scale(softmax_scale: float) -> float:
    """Return the float32 number nearest to softmax_scale, which has to be positive and finite."""
    if isinstance(softmax_scale, bool) or not isinstance(
        softmax_scale, float | int | np.floating | np.integer
    ):
        raise TypeError(f"softmax_scale: expected a number, found {softmax_scale!r}")
    try:
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(np.float32(softmax_scale))
    except OverflowError:  # an int beyond float64
        rounded = math.inf
    if not (math.isfinite(rounded) and rounded > 0):
        raise ValueError(
            f"softmax_scale: expected a positive finite float32 number, found {softmax_scale!r}"
        )
    return rounded
