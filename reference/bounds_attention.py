"""Attention in float64, and how far from that a conforming result may be.

Numerics, chapter 6, states the bound and which evaluations it covers; this is its derivation. One
query sees L keys of D elements. Steps are those of `bounds_linear`: each is off by a relative
ε = 2⁻²³ at most. Letters are those of the text: w = exp(score − max), p = w / Σw, y = Σ p·V.

1. *Scores.* A term q·k of a score passes through its product, D − 1 sums, two roundings of the key
   (code times scale, scale/16) and six more (scale, softmax_scale and log₂e: represented and
   applied). The computed score is s = score + Δ with |Δ| ≤ δ = γ(D + 8)·|t|·Σ|q·k|, where t is
   softmax_scale.

2. *Weights.* Let key j be taken in while the running maximum is m₁, and let the maximum grow to
   m₂, … mᵣ, in the order of the blocks or in the tree that combines the splits. Its weight becomes
   exp(s − m₁)·exp(m₁ − m₂)·…, which is exp(s − mᵣ) = w·exp(Δ)·c exactly, with a factor c common to
   all keys; the quotient cancels it. Each exponential is off by a relative (2·|a| + 4)·ε, its
   argument by ε·|a| for the difference, and exp(0) = 1 exactly. As the maxima only grow, Σ|a| is
   mᵣ − s, at most a[j] = max(score + δ) − (score − δ). (Where the score of the maximum itself is
   formed anew with another rounding, |a| is at most 2δ, which a[j] holds too.) Together: the weight
   is w·c·(1 + θ) with ln(1 + |θ|) ≤ 1.001·(δ + 3ε·a + 4ε·(R + 1)), if R of the maxima are other
   than the one before. 1.001 holds as long as an exponential is off by less than 10⁻³, thus for
   |a| < 2000; beyond that it is zero in float32, see 7.

3. *Ranks.* m₁ ≥ s, and every maximum that differs from the one before is the computed score of one
   more key, larger than s. Only keys with score + δ ≥ score[j] − δ[j] can be such: R[j] of them.

4. *Logarithms.* A split may hand over acc/l and m + ln l in place of acc, l and m, to be weighted
   by exp(m + ln l − the largest such). The same l divides and enters the logarithm, so that the
   weight of a key changes only by the error of the logarithm, 2ε·(1 + ln L), of the sum,
   ε·(max|score| + ln L), and by a longer argument, 3ε·2·ln L: less than
   λ = 4ε·(max|score| + 3·ln L + 1) in the exponent.

5. *Sums.* In the numerator, V has two roundings (as the key), p·V one, the division by l four, and
   the term passes through at most L − 1 sums and R[j] rescalings: 1 + ν' with
   |ν'| ≤ ν[j] = γ(L + R[j] + 8). In the denominator fewer: 1 + ν''. With y·Σw = Σ w·V, and W̃ for
   the computed denominator,

       ỹ − y = Σ w·(1 + θ)·((1 + ν')·V − (1 + ν'')·y) / W̃
             = Σ w·(θ·(V − y) + (1 + θ)·(ν'·V − ν''·y)) / W̃,

   and W̃ ≥ Σ w·(1 − θ[j] − ν[j] − θ[j]·ν[j]). Dividing numerator and denominator by Σw gives E.

6. *Quotient and offset.* A reciprocal with two units of error and a product, or one division: 4ε
   of ỹ, at most 4ε·(|y| + E). An added offset: ε of the sum.

7. *Underflow.* An exponential below 2⁻¹²⁶ may be anything between 0 and 2⁻¹²⁶; rescalings multiply
   by at most 1. Each of L keys is in at most L + 1 products of weights, which gives
   L·(L + 1)·2⁻¹²⁶·(|V| + |y|), as Σw ≥ 1. Products with V and scale are off by η each, far less.
   The bound has 4·L·(L + 8)·(1 + max|V|)·2⁻¹²⁶.

8. *The oracle's own error* is that of the same steps with 2⁻⁵³ for ε, which is 2⁻³⁰ of the bound.
   The factor 1 + 2⁻²⁰ covers it.
"""

import numpy as np
from nibblespec.reference.attention import (
    AttentionInput,
    attention_input,
    scores_and_weights,
    visible,
    weighted_mean,
)
from nibblespec.reference.bounds import (
    LARGEST_FLOAT32,
    STEP,
    UNDERFLOW,
    Bounded,
    gamma,
)
from nibblespec.reference.rounding import Array, Float32, Float64
from nibblespec.spec.operations import Bytes, Plane
from numpy.typing import NDArray

EXP_UNDERFLOW = 2.0**-126
"""Absolute error of an exponential whose result is below float32's normal range."""


def kv_attention_bounded(
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
) -> Bounded:
    """Return value and error of `kv_attention`, float64 [B, Hq, M, D] (NUM-ATTENTION-BOUND).

    Arguments and errors as `nibblespec.reference.attention.kv_attention`.
    """
    given = attention_input(
        q, k_hi, k_lo, k_scale, v_hi, v_lo, v_scale, v_offset, position, plane, softmax_scale
    )
    value, error = np.empty_like(given.queries), np.empty_like(given.queries)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for index in np.ndindex(*q.shape[:3]):
            value[index], error[index] = query_bounded(given, *index)
    return Bounded(value=value, error=error)


def query_bounded(given: AttentionInput, batch: int, head: int, m: int) -> tuple[Float64, Float64]:
    """Return value and error of one query, [D] each."""
    query = given.queries[batch, head, m]
    keys, values, offset = visible(given, batch, head, m)
    scores, weights = scores_and_weights(query, keys, given.softmax_scale)
    mean = weighted_mean(weights, values)
    result = mean if offset is None else mean + offset
    if exceeds_range(query, keys, values, given.softmax_scale):
        return result, np.full_like(mean, np.inf)

    score_error = score_errors(query, keys, given)
    rank = ranks(scores, score_error)
    distance = (scores + score_error).max() - (scores - score_error)
    logarithm = 4 * STEP * (np.abs(scores).max() + 3 * np.log(len(scores)) + 1)
    exponent = 1.001 * (score_error + 3 * STEP * distance + 4 * STEP * (rank + 1) + logarithm)
    # As a difference of exponentials, so that a far key with a large error stays small.
    weight_error = np.exp(scores - scores.max() + exponent) - weights
    steps = (len(scores) + rank + 8) * STEP
    sums = steps / (1 - steps)
    return result, mean_error(weights, weight_error, sums, values, mean, offset)


def mean_error(
    weights: Float64,
    weight_error: Float64,
    sums: Float64,
    values: Float64,
    mean: Float64,
    offset: Float64 | None,
) -> Float64:
    """Return B of the text, [D]: `weight_error` is w·θ, `sums` is ν, [L] each."""
    spread = np.abs(values - mean)
    size = np.abs(values) + np.abs(mean)
    perturbed = weights + weight_error
    numerator = weight_error @ spread + (perturbed * sums) @ size
    denominator = weights.sum() - weight_error.sum() - (perturbed * sums).sum()
    if not denominator > 0:
        return np.full_like(mean, np.inf)
    count = len(weights)
    error = (
        (1 + 5 * STEP) * numerator / denominator
        + 4 * STEP * np.abs(mean)
        + 4 * count * (count + 8) * (1 + np.abs(values).max()) * EXP_UNDERFLOW
    )
    if offset is not None:
        error = error + STEP * np.abs(mean + offset)
    bound: Float64 = (1 + 2.0**-20) * error
    return bound


def score_errors(query: Float64, keys: Float64, given: AttentionInput) -> Float64:
    """Return δ, [L]: how far a computed score may be off."""
    head_dim, scale = len(query), given.softmax_scale
    size = scale * (np.abs(keys) @ np.abs(query))
    underflow = 4 * (head_dim + 2) * (1 + scale) * (1 + given.largest_key_scale) * UNDERFLOW
    return gamma(head_dim + 8) * size + underflow


def ranks(scores: Float64, score_error: Float64) -> NDArray[np.int64]:
    """Return R, [L]: how many other keys may have a computed score as large as that of key j."""
    highest = np.sort(scores + score_error)
    below = np.searchsorted(highest, scores - score_error, side="left")
    return len(scores) - below - 1


def exceeds_range(query: Float64, keys: Float64, values: Float64, softmax_scale: float) -> bool:
    """Return whether scores or sums may overflow float32 in some order of operations."""
    largest_key = max(128, np.abs(keys).max())  # 128: a code, multiplied before its scale
    score = len(query) * np.abs(query).max() * largest_key * (1 + softmax_scale)
    total = len(values) * np.abs(values).max()
    return bool(max(score, total) > LARGEST_FLOAT32 / 2)
