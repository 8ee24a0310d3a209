"""dashq: the weight of a packed module, in three named evaluations, and the layer itself.

    words [⌈N·Kq / P⌉] ─ unpack ─→ codes q [N, Kq]
    scale, zero [N·Kq / group_size, 1] ─ repeat ─→ [N, Kq]
    (q − zero) · scale, rounded as the evaluation says, first K columns ─→ weight [N, K]

N = out_features, K = in_features, Kq = quant_in_features.
"""

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_choice,
    check_divides,
    check_finite,
    check_integer,
)
from nibblespec.reference.product import dense_product
from nibblespec.reference.rounding import (
    FLOAT_DTYPES,
    SCALE_ZERO_DTYPES,
    Array,
    Float32,
    round_float32,
)
from nibblespec.reference.words import unpack_words
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import DashqRounding, FloatDtype, LinearWeightRounding, Words

WEIGHT_ROUNDINGS = ("rounded", "unrounded")


def fused(q: Float32, zero: Float32, scale: Float32, dtype: str) -> Array:
    """Evaluate (q − zero)·scale in float32, rounded to `dtype` at the end.

    Implements NUM-EVALUATION-FUSED. All arrays [N, Kq].
    """
    difference = q - zero  # rounded to float32
    product = difference * scale  # rounded to float32
    return round_float32(product, dtype)


def stepwise(q: Float32, zero: Float32, scale: Float32, dtype: str) -> Array:
    """Evaluate (q − zero)·scale with every operand and every result rounded to `dtype`.

    Implements NUM-EVALUATION-STEPWISE. All arrays [N, Kq]. A float32 operation on two values of
    `dtype`, rounded to `dtype`, is the operation in `dtype`: 24 bits are at least twice its
    precision plus two, and then the second rounding cannot meet a tie that the first one made.
    """
    zero = round_float32(zero, dtype).astype(np.float32)
    scale = round_float32(scale, dtype).astype(np.float32)
    difference = round_float32(q - zero, dtype).astype(np.float32)
    return round_float32(difference * scale, dtype)


def bf16_params(q: Float32, zero: Float32, scale: Float32, dtype: str) -> Array:
    """Evaluate as `fused`, with zero and scale rounded to bfloat16 first.

    Implements NUM-EVALUATION-BF16-PARAMS. All arrays [N, Kq].
    """
    zero = round_float32(zero, "bfloat16").astype(np.float32)
    scale = round_float32(scale, "bfloat16").astype(np.float32)
    return fused(q, zero, scale, dtype)


EVALUATIONS: Mapping[DashqRounding, Callable[[Float32, Float32, Float32, str], Array]] = {
    "fused": fused,
    "stepwise": stepwise,
    "bf16-params": bf16_params,
}
"""The named evaluations (Numerics, chapter 3); `fused` is canonical."""


def dashq_reconstruct(
    words: Words,
    scale: Array,
    zero: Array,
    module: Module,
    dtype: FloatDtype,
    evaluation: DashqRounding = "fused",
) -> Array:
    """Return the logical weight, `dtype` [N, K].

    words int32 [⌈N·Kq / P⌉]; scale and zero, finite, [num_groups, 1] in the module's
    scale_zero_dtype. Implements chapter 7 of the specification: DQ1-PACKING-ROWS,
    DQ1-RECONSTRUCT-FORMULA, DQ1-RECONSTRUCT-GROUPS, DQ1-RECONSTRUCT-ZERO-POINT,
    DQ1-RECONSTRUCT-PARAMETERS, DQ1-RECONSTRUCT-CROP and DQ1-RECONSTRUCT-DTYPE.

    Raises TypeError for a wrong dtype; ValueError for a wrong shape, a non-finite parameter, an
    unknown dtype or evaluation name, or a module whose sizes do not fit each other.
    """
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    check_choice(evaluation, "evaluation", tuple(EVALUATIONS))
    q, scales, zeros = codes_and_parameters(words, scale, zero, module)
    # Overflow gives infinities, and with them NaN, as the evaluation defines.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weight = EVALUATIONS[evaluation](q, zeros, scales, dtype)
    return weight[:, : module.in_features].copy()


def dashq_linear(
    x: Array,
    words: Words,
    scale: Array,
    zero: Array,
    bias: Array | None,
    module: Module,
    evaluation: DashqRounding = "fused",
    weight_rounding: LinearWeightRounding = "rounded",
) -> Array:
    """Return x·Ŵᵀ + bias, [M, N] in linear_dtype.

    x [M, K] and bias [N] (or None) in linear_dtype; the other arguments as `dashq_reconstruct`
    takes them. Ŵ is the weight in linear_dtype (`rounded`) or, in the evaluations whose product
    is in float32, that product (`unrounded`). Implements DQ1-LINEAR-FORMULA, DQ1-LINEAR-BIAS,
    DQ1-LINEAR-DTYPE, DQ1-LINEAR-PADDING, NUM-LINEAR-ACCUMULATE and NUM-INVARIANT-ROWS-DASHQ:
    `dense_product` says how it sums.

    Raises as `dashq_reconstruct` does.
    """
    check_module(module)
    check_choice(weight_rounding, "weight_rounding", WEIGHT_ROUNDINGS)
    check_layer_input(x, bias, module)
    weight_dtype = linear_weight_dtype(module, evaluation, weight_rounding)
    weight = dashq_reconstruct(words, scale, zero, module, weight_dtype, evaluation)
    return dense_product(x, weight, bias, module.linear_dtype)


def linear_weight_dtype(
    module: Module, evaluation: DashqRounding, weight_rounding: LinearWeightRounding
) -> FloatDtype:
    """Return the dtype in which the weight enters the product of `dashq_linear`.

    `stepwise` rounds in linear_dtype at every step: there is no wider product to use.
    """
    if weight_rounding == "unrounded" and evaluation != "stepwise":
        return "float32"
    check_choice(module.linear_dtype, "module.linear_dtype", FLOAT_DTYPES)
    return cast(FloatDtype, module.linear_dtype)


def codes_and_parameters(
    words: Words, scale: Array, zero: Array, module: Module
) -> tuple[Float32, Float32, Float32]:
    """Return codes, scales and zero points of every stored column, float32 [N, Kq] each.

    Code (n, k) belongs to group n·(Kq / group_size) + ⌊k / group_size⌋ (DQ1-RECONSTRUCT-GROUPS).
    Every dtype of scale and zero converts to float32 exactly.
    """
    check_module(module)
    check_array(scale, "scale", module.scale_zero_dtype, (module.num_groups, 1))
    check_array(zero, "zero", module.scale_zero_dtype, (module.num_groups, 1))
    check_finite(scale, "scale")
    check_finite(zero, "zero")
    rows, columns = module.out_features, module.quant_in_features
    codes = unpack_words(words, module.nbits, rows * columns)

    def per_column(parameter: Array) -> Float32:
        by_row = parameter.astype(np.float32).reshape(rows, columns // module.group_size)
        return np.repeat(by_row, module.group_size, axis=1)

    q = codes.reshape(rows, columns).astype(np.float32)
    return q, per_column(scale), per_column(zero)


def check_module(module: Module) -> None:
    """Require a module whose sizes fit each other and whose dtype names are canonical."""
    if not isinstance(module, Module):
        raise TypeError(f"module: expected a dashq Module, found {type(module).__name__}")
    check_integer(module.nbits, "module.nbits", 1, 8)
    for name in ("group_size", "in_features", "out_features"):
        check_integer(getattr(module, name), f"module.{name}", 1)
    columns = module.quant_in_features
    check_integer(columns, "module.quant_in_features", module.in_features)
    check_divides(module.group_size, columns, "module.group_size", "quant_in_features")
    groups = module.out_features * columns // module.group_size
    check_integer(module.num_groups, "module.num_groups", groups, groups)
    check_choice(module.scale_zero_dtype, "module.scale_zero_dtype", SCALE_ZERO_DTYPES)
    check_choice(module.linear_dtype, "module.linear_dtype", FLOAT_DTYPES)


def check_layer_input(x: Array, bias: Array | None, module: Module) -> None:
    """Require x [M, K] and bias [N] or None in linear_dtype."""
    check_array(x, "x", module.linear_dtype, ("M", module.in_features))
    check_finite(x, "x")
    if bias is not None:
        check_array(bias, "bias", module.linear_dtype, (module.out_features,))
        check_finite(bias, "bias")
