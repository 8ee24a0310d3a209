"""Correct linear layers: other orders of summation, other places for the scale, a library."""

from dataclasses import replace

import numpy as np
from nibblespec.reference import dashq, nested
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.reference.rounding import Array, Float32, round_float32
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    Bytes,
    DashqLinear,
    Float16,
    FloatDtype,
    LinearWeightRounding,
    NestedLinear,
    Nibbles,
    Plane,
    Words,
)

from tests.teeth.sums import SUMS, Sum, in_order
from tests.teeth.variant import Variant, claiming, computing


def summed_dashq(add: Sum, rounding: LinearWeightRounding) -> DashqLinear:
    """Multiply element by element and add with `add`."""

    def dashq_linear(
        x: Array, words: Words, scale: Array, zero: Array, bias: Array | None, module: Module
    ) -> Array:
        dtype = dashq.linear_weight_dtype(module, "fused", rounding)
        weight = dashq.dashq_reconstruct(words, scale, zero, module, dtype)
        terms = x.astype(np.float64)[:, np.newaxis] * weight.astype(np.float64)
        return rounded(add(terms), bias, module.linear_dtype)

    return dashq_linear


def scale_by_group(
    x: Array, words: Words, scale: Array, zero: Array, bias: Array | None, module: Module
) -> Array:
    """Add x · (q - zero) over a group in float32, and multiply the sum by the group's scale."""
    q, scales, zeros = dashq.codes_and_parameters(words, scale, zero, module)
    difference = q - zeros
    wide = np.pad(x.astype(np.float32), [(0, 0), (0, q.shape[1] - x.shape[1])])
    difference[:, x.shape[1] :] = 0
    total = np.zeros((len(x), len(q)), np.float32)
    for start in range(0, q.shape[1], module.group_size):
        columns = slice(start, start + module.group_size)
        terms = wide[:, np.newaxis, columns].astype(np.float64) * difference[:, columns]
        total = total + in_order(terms) * scales[:, start]
    return rounded(total, bias, module.linear_dtype)


def bias_first(
    x: Array, words: Words, scale: Array, zero: Array, bias: Array | None, module: Module
) -> Array:
    """Start the float32 sum from the bias."""
    dtype = dashq.linear_weight_dtype(module, "fused", "rounded")
    weight = dashq.dashq_reconstruct(words, scale, zero, module, dtype).astype(np.float64)
    terms = x.astype(np.float64)[:, np.newaxis] * weight
    if bias is not None:
        first = np.broadcast_to(bias.astype(np.float64)[:, np.newaxis], (*terms.shape[:2], 1))
        terms = np.concatenate([first, terms], axis=-1)
    return rounded(in_order(terms), None, module.linear_dtype)


def library(
    x: Array, words: Words, scale: Array, zero: Array, bias: Array | None, module: Module
) -> Array:
    """Multiply by a matrix library in float32, whose order depends on the number of rows."""
    weight = dashq.dashq_reconstruct(words, scale, zero, module, "float32")
    with np.errstate(all="ignore"):
        product = x.astype(np.float32) @ weight.T
    return rounded(product, bias, module.linear_dtype)


def summed_nested(add: Sum, scales_first: bool = True) -> NestedLinear:
    """Scale the integer products of the segments and add them with `add`."""

    def nested_linear(
        xq: Nibbles,
        sx: Float32,
        hi: Bytes,
        lo: Bytes | None,
        scale: Float16,
        bias: Float16 | None,
        plane: Plane,
        dtype: FloatDtype,
    ) -> Array:
        codes, scales = nested.codes_and_scales(hi, lo, scale, plane)
        columns = xq.shape[1]
        terms = []
        for start, stop in nested.segments(columns, scales.shape[1], sx.shape[1]):
            dot = nested.segment_product(xq, codes, start, stop).astype(np.float32)
            a, w = (
                part.astype(np.float32)
                for part in nested.segment_scales(sx, scales, start, columns)
            )
            a, w = a[:, np.newaxis], w[np.newaxis]
            if scales_first:
                terms.append(dot.astype(np.float64) * (a * w).astype(np.float64))
            else:
                terms.append((dot * w).astype(np.float64) * a.astype(np.float64))
        return rounded(add(np.stack(terms, axis=-1)), bias, dtype)

    return nested_linear


def rounded(total: Float32, bias: Array | None, dtype: str) -> Array:
    """Add the bias in float32 and round once."""
    with np.errstate(all="ignore"):
        result = total if bias is None else total + bias.astype(np.float32)
    return round_float32(result, dtype)


UNROUNDED = ReferenceBackend(linear_weight_rounding="unrounded")

VARIANTS: tuple[Variant, ...] = (
    *(
        computing(
            f"packed-layer-{name}",
            f"weights rounded, products added {name.replace('-', ' ')}",
            dashq_linear=summed_dashq(add, "rounded"),
        )
        for name, add in SUMS.items()
    ),
    *(
        computing(
            f"unrounded-packed-layer-{name}",
            f"weights in float32, products added {name.replace('-', ' ')}",
            UNROUNDED,
            dashq_linear=summed_dashq(SUMS[name], "unrounded"),
        )
        for name in ("in-reverse", "fused", "truncating")
    ),
    computing(
        "scale-by-group",
        "weights unrounded, the scale applied to the float32 sum of a group",
        UNROUNDED,
        dashq_linear=scale_by_group,
    ),
    computing("bias-first", "the float32 sum starts from the bias", dashq_linear=bias_first),
    claiming(
        "matrix-library",
        "a float32 matrix library, which declares no invariance of rows",
        replace(UNROUNDED.capabilities(), row_invariant_dashq_linear=False),
        ("dashq_linear",),
        dashq_linear=library,
    ),
    *(
        computing(
            f"nested-layer-{name}",
            f"segments scaled and added {name.replace('-', ' ')}",
            nested_linear=summed_nested(add),
        )
        for name, add in SUMS.items()
    ),
    computing(
        "nested-layer-scaled-one-by-one",
        "a segment is multiplied by the weight's scale, then by the activation's",
        nested_linear=summed_nested(in_order, scales_first=False),
    ),
)
