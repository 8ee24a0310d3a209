"""The linear layers in float64, and how far from that a conforming result may be.

Numerics, chapter 4, states the bounds; this is their derivation. A backend computes
t₁ + t₂ + … + tₙ + bias in some order, each term tᵢ a product of a few factors, then rounds once
to the output dtype. Before that rounding every step (a product, a sum, a conversion to float32)
returns (exact result)·(1 + δ) + e with |δ| ≤ ε = 2⁻²³ and, for products, |e| ≤ η = 2⁻¹⁴⁹.

*Any order.* A sum of n + 1 numbers is a binary tree with n additions, whatever the order, and no
leaf is deeper than n. Let every leaf pass through c more steps: its products and conversions.
The computed sum is Σ tᵢ·(1 + θᵢ) with |θᵢ| ≤ γ(n + c), so it is off by at most
γ(n + c)·(Σ|tᵢ| + |bias|). A step that is left out (a fused multiply-add, an exact product, a wider
accumulator) is a step with δ = 0. So is adding to an initial zero.

*Neighbours.* ε, rather than the 2⁻²⁴ of rounding to nearest, admits matrix units. These add a block
of m exact products to the accumulator at once: m + 1 addends are aligned with the largest and cut
off, and the sum is cut off to 24 bits. Where the alignment keeps one bit more than float32 or
several, this is off by at most m·2⁻²⁴ + 2⁻²³ ≤ m·2⁻²³ (m ≥ 2) relative to the sum of magnitudes: no
more than m additions in turn.

*Underflow.* A product that underflows is off by η at most, and the factors that come after it
multiply that error: η per product, times the magnitude of what is still to be multiplied, at most
once each. The last conversion to float32 may underflow once more. Sums do not underflow: a sum of
float32 numbers below 2⁻¹²⁶ is exact.

*Exact steps.* Multiples of 2ᵉ that are not above 2²⁴·2ᵉ are float32 numbers (e ≥ −149), and so are
their sums as long as the magnitudes add up to no more. Where that holds of the terms it holds of
products of some of their factors: those have a unit as much larger, or smaller, as themselves.
Only underflow of such a product has to be excluded for itself. Then no step has anything to round,
in whatever order: the error is 0.

*The oracle's own error.* The same analysis with 2⁻⁵³ for ε bounds the error of the float64 value
and of the sum of magnitudes; twice γ of float64 covers both.
"""

from contextlib import AbstractContextManager

import numpy as np
from nibblespec.reference.arguments import check_array, check_choice
from nibblespec.reference.bounds import (
    LARGEST_FLOAT32,
    UNDERFLOW,
    Bounded,
    gamma,
    gamma_float64,
)
from nibblespec.reference.dashq import (
    EVALUATIONS,
    WEIGHT_ROUNDINGS,
    check_layer_input,
    check_module,
    codes_and_parameters,
    dashq_reconstruct,
    linear_weight_dtype,
)
from nibblespec.reference.product import check_product
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float64, round_float32
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import DashqRounding, LinearWeightRounding, Words
from numpy.typing import NDArray


def dashq_linear_bounded(
    x: Array,
    words: Words,
    scale: Array,
    zero: Array,
    bias: Array | None,
    module: Module,
    evaluation: DashqRounding = "fused",
    weight_rounding: LinearWeightRounding = "rounded",
) -> Bounded:
    """Return value and error of `dashq_linear`, float64 [M, N] each.

    Arguments and errors as `nibblespec.reference.dashq.dashq_linear`. Where the weight is rounded
    to linear_dtype, the dense product of NUM-LINEAR-DASHQ-ROUNDED, otherwise the packed product
    of NUM-LINEAR-DASHQ-UNROUNDED.
    """
    check_module(module)
    check_choice(evaluation, "evaluation", tuple(EVALUATIONS))
    check_choice(weight_rounding, "weight_rounding", WEIGHT_ROUNDINGS)
    check_layer_input(x, bias, module)
    if weight_rounding == "rounded" or evaluation == "stepwise":
        dtype = linear_weight_dtype(module, evaluation, "rounded")
        weight = dashq_reconstruct(words, scale, zero, module, dtype, evaluation)
        return dense_bounded(x, weight, bias)
    q, scales, zeros = codes_and_parameters(words, scale, zero, module)
    if evaluation == "bf16-params":
        scales = round_float32(scales, "bfloat16").astype(np.float32)
        zeros = round_float32(zeros, "bfloat16").astype(np.float32)
    logical = slice(module.in_features)
    return packed_bounded(x, q[:, logical], zeros[:, logical], scales[:, logical], bias)


def dense_bounded(x: Array, weight: Array, bias: Array | None) -> Bounded:
    """Return value and error of x·weightᵀ + bias (Numerics, 4.2), float64 [M, N] each.

    x [M, K], weight [N, K] and bias [N] or None are what the backend multiplies and adds, in any
    dtype of the formats. Raises as `dense_product` does.
    """
    check_product(x, weight, bias)
    a, w = x.astype(np.float64), weight.astype(np.float64)
    columns = a.shape[1]
    with _quiet():
        value = _plus(a @ w.T, bias)
        magnitude = _plus(np.abs(a) @ np.abs(w).T, _magnitude(bias))
        exact = _fits(magnitude, np.multiply.outer(_unit(a), _unit(w)), bias)
        return _bounded(value, magnitude, magnitude, 1 + columns, columns + 2, exact)


def packed_bounded(x: Array, q: Array, zero: Array, scale: Array, bias: Array | None) -> Bounded:
    """Return value and error of Σ x·(q − zero)·scale + bias (Numerics, 4.3), float64 [M, N] each.

    x [M, K]; codes q, zero points and scales float32 [N, K], those of a group repeated; bias [N]
    or None. Raises TypeError for a wrong dtype, ValueError for shapes that do not fit each other.
    """
    check_product(x, scale, bias)
    check_array(q, "q", "float32", scale.shape)
    check_array(zero, "zero", "float32", scale.shape)
    a, s = x.astype(np.float64), scale.astype(np.float64)
    d = q.astype(np.float64) - zero.astype(np.float64)
    x_abs, d_abs, s_abs = np.abs(a), np.abs(d), np.abs(s)
    columns = a.shape[1]
    with _quiet():
        value = _plus(a @ (d * s).T, bias)
        magnitude = _plus(x_abs @ (d_abs * s_abs).T, _magnitude(bias))
        pairs = np.maximum(x_abs @ d_abs.T, x_abs @ s_abs.T)
        pairs = np.maximum(pairs, (d_abs * s_abs).sum(axis=1))
        of_x, of_s = _unit(a)[:, np.newaxis], _unit(s)
        of_d = np.minimum(_unit(zero.astype(np.float64)), 1)
        exact = _fits(magnitude, of_x * of_d * of_s, bias, of_x * of_d, of_x * of_s, of_d * of_s)
        factors = x_abs.sum(axis=1)[:, np.newaxis] + (d_abs + s_abs).sum(axis=1)
        return _bounded(value, magnitude, pairs, 1 + columns + factors, columns + 4, exact)


def nested_bounded(dots: Array, sx: Array, sw: Array, bias: Array | None) -> Bounded:
    """Return value and error of Σ dot·sx·sw + bias (Numerics, 4.4), float64 [M, N] each.

    dots are the exact integer products [M, N, S] of the S segments, sx [M, S] and sw [N, S] the
    scales of activations and weights (the target's already divided by 16); bias [N] or None.
    Raises TypeError for a wrong dtype, ValueError for shapes that do not fit each other.
    """
    check_array(dots, "dots", "int64", ("M", "N", "S"))
    check_array(sx, "sx", ("float32", "float64"), (dots.shape[0], dots.shape[2]))
    check_array(sw, "sw", ("float32", "float64"), (dots.shape[1], dots.shape[2]))
    if bias is not None:
        check_array(bias, "bias", FLOAT_DTYPES, (dots.shape[1],))
    d = dots.astype(np.float64)
    a, w = sx.astype(np.float64)[:, np.newaxis, :], sw.astype(np.float64)[np.newaxis, :, :]
    segments = d.shape[2]
    with _quiet():
        terms = d * a * w
        value = _plus(terms.sum(axis=2), bias)
        magnitude = _plus(np.abs(terms).sum(axis=2), _magnitude(bias))
        pairs = np.maximum.reduce(
            [np.abs(d * a).sum(axis=2), np.abs(d * w).sum(axis=2), np.abs(a * w).sum(axis=2)]
        )
        of_x, of_w = _unit(sx.astype(np.float64))[:, np.newaxis], _unit(sw.astype(np.float64))
        exact = _fits(magnitude, of_x * of_w, bias, of_x, of_w)
        factors = (np.abs(d) + np.abs(a) + np.abs(w)).sum(axis=2)
        return _bounded(value, magnitude, pairs, 1 + segments + factors, segments + 4, exact)


def _bounded(
    value: Float64,
    magnitude: Float64,
    pairs: Float64,
    underflows: Float64 | int,
    steps: int,
    exact: NDArray[np.bool_],
) -> Bounded:
    """Put a bound together: `steps` for each term, η times `underflows`, 0 where all is exact.

    Where the sum of magnitudes or of `pairs` of factors nears overflow, there is no bound.
    """
    relative = gamma(steps) + 2 * gamma_float64(steps)
    error = relative * magnitude + (1 + relative) * UNDERFLOW * underflows
    error = np.where(exact, 0, error)
    overflows = np.maximum(magnitude, pairs) > LARGEST_FLOAT32 / 2
    return Bounded(value=value, error=np.where(overflows, np.inf, error))


def _unit(rows: Float64) -> Float64:
    """Return the largest power of two that divides every element of a row [R, K]: float64 [R].

    Infinity for a row of zeros, 0 for one with elements that are not finite.
    """
    finite = np.isfinite(rows)
    mantissa, exponent = np.frexp(np.where(finite, rows, 0))
    digits = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
    lowest = np.ldexp((digits & -digits).astype(np.float64), exponent - 53)
    lowest = np.where(rows == 0, np.inf, np.where(finite, lowest, 0))
    return np.asarray(lowest.min(axis=1, initial=np.inf), np.float64)


def _fits(
    magnitude: Float64, unit: Float64, bias: Array | None, *pairs: Float64
) -> NDArray[np.bool_]:
    """Tell where every step is exact: bool [M, N].

    Terms are multiples of `unit`, products of two of their factors multiples of the `pairs`;
    `magnitude` is what terms and bias add up to.
    """
    if bias is not None:
        unit = np.minimum(unit, _unit(bias.astype(np.float64)[:, np.newaxis]))
    smallest = np.minimum.reduce([unit, *(np.broadcast_to(pair, unit.shape) for pair in pairs)])
    exact: NDArray[np.bool_] = (magnitude <= 2.0**24 * unit) & (smallest >= UNDERFLOW)
    return exact


def _magnitude(bias: Array | None) -> Array | None:
    return None if bias is None else np.abs(bias)


def _plus(total: Float64, bias: Array | None) -> Float64:
    return total if bias is None else total + bias.astype(np.float64)


def _quiet() -> AbstractContextManager[None]:
    """Let infinite weights pass: where they take part, any result conforms."""
    return np.errstate(over="ignore", invalid="ignore", under="ignore")
