"""Round-to-nearest encoder of dashq: one scale and zero point per group, codes fitted to them.

This is the plain quantizer, without calibration data: for tests, examples and conversions. DASH-Q
itself chooses scales and zero points better; the file format is the same.
"""

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
from nibblespec.reference.rounding import (
    DTYPES,
    FLOAT_DTYPES,
    SCALE_ZERO_DTYPES,
    Array,
    Float64,
    round_float64,
)
from nibblespec.reference.words import pack_words
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Words


@dataclass(frozen=True, slots=True)
class PackedModule:
    """A module's description and tensors, as a checkpoint holds them."""

    module: Module
    words: Words
    """int32 [⌈N·Kq / P⌉]: the tensor W_q_packed."""
    scale: Array
    """scale_zero_dtype [num_groups, 1]."""
    zero: Array
    """scale_zero_dtype [num_groups, 1]."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Codes [G, group_size], parameters [G, 1] and the largest error of each group [G, 1]."""

    codes: Float64
    scale: Array
    zero: Array
    error: Float64


def encode_dashq(
    weight: Array,
    nbits: int,
    group_size: int,
    scale_zero_dtype: str = "float16",
    linear_dtype: str = "bfloat16",
    quant_in_features: int | None = None,
) -> PackedModule:
    """Quantize weight [N, K] (float16, bfloat16 or float32, finite) to a packed module.

    Scale and zero point are rounded to scale_zero_dtype first and the codes fitted to the rounded
    ones. Two ranges are tried for each group, the one its weights span and that one extended to
    include 0; the one whose largest error is smaller is kept. The first serves weights far from
    zero, the second does not lose the zero point's precision where weights are all alike. A group
    of zeros gets scale, zero point and codes 0. With `quant_in_features` the rows are padded by
    repeating their last column.

    Raises TypeError for a wrong dtype; ValueError for a wrong rank, an empty or non-finite weight,
    sizes that do not fit, an unknown dtype name, or a group whose scale overflows.
    """
    check_array(weight, "weight", FLOAT_DTYPES, ("N", "K"))
    check_not_empty(weight, "weight")
    check_finite(weight, "weight")
    check_integer(nbits, "nbits", 1, 8)
    check_integer(group_size, "group_size", 1)
    check_choice(scale_zero_dtype, "scale_zero_dtype", SCALE_ZERO_DTYPES)
    check_choice(linear_dtype, "linear_dtype", FLOAT_DTYPES)
    rows, columns = weight.shape
    stored = columns if quant_in_features is None else quant_in_features
    check_integer(stored, "quant_in_features", columns)
    check_divides(group_size, stored, "group_size", "quant_in_features")

    padded = np.pad(weight.astype(np.float64), ((0, 0), (0, stored - columns)), mode="edge")
    groups = padded.reshape(-1, group_size)
    fit = _best(groups, 2**nbits - 1, scale_zero_dtype)
    module = Module(
        nbits=nbits,
        group_size=group_size,
        in_features=columns,
        out_features=rows,
        quant_in_features=stored,
        num_groups=len(groups),
        packing=f"int{nbits}_packed_u32",
        scale_zero_dtype=scale_zero_dtype,
        linear_dtype=linear_dtype,
    )
    words = pack_words(fit.codes.astype(np.uint8).reshape(-1), nbits)
    return PackedModule(module=module, words=words, scale=fit.scale, zero=fit.zero)


def _best(groups: Float64, top: int, dtype: str) -> _Fit:
    """Fit each group to both ranges and keep the better fit; `top` is the largest code."""
    low, high = groups.min(axis=1, keepdims=True), groups.max(axis=1, keepdims=True)
    tight = _fit(groups, low, high, top, dtype)
    wide = _fit(groups, np.minimum(low, 0), np.maximum(high, 0), top, dtype)
    take = tight.error < wide.error
    codes, scale, zero, error = (
        np.where(take, getattr(tight, name), getattr(wide, name))
        for name in ("codes", "scale", "zero", "error")
    )
    lost = ~np.isfinite(error)
    if lost.any():
        group = int(np.argmax(lost))
        raise ValueError(
            f"weight: expected groups whose scale and zero point {dtype} can hold, found weights "
            f"from {low[group, 0]:g} to {high[group, 0]:g} in group {group}; "
            "use a wider scale_zero_dtype"
        )
    return _Fit(codes=codes, scale=scale, zero=zero, error=error)


def _fit(groups: Float64, low: Float64, high: Float64, top: int, dtype: str) -> _Fit:
    """Fit groups [G, group_size] to the codes 0 … top over low … high [G, 1].

    The error is infinite where `dtype` cannot hold the scale or the zero point, and where low and
    high are one number that is not 0, which no scale of 0 can stand for.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scale = round_float64((high - low) / top, dtype)
        # A range that is too small for the dtype is not nothing: its smallest step may still do.
        scale = np.where((scale == 0) & (high > low), _smallest(dtype), scale)
        step = scale.astype(np.float64)
        zero = round_float64(np.where(step > 0, 0 - low / step, 0), dtype)
        offset = zero.astype(np.float64)
        codes = np.clip(np.rint(np.where(step > 0, groups / step, 0) + offset), 0, top)
        error = np.abs((codes - offset) * step - groups).max(axis=1, keepdims=True)
    means_something = (step > 0) | ((low == 0) & (high == 0))
    usable = np.isfinite(step) & np.isfinite(offset) & means_something
    return _Fit(codes=codes, scale=scale, zero=zero, error=np.where(usable, error, np.inf))


def _smallest(dtype: str) -> Array:
    """Return the smallest positive value of a dtype: the one with the code 1."""
    unsigned = np.dtype(f"u{DTYPES[dtype].itemsize}")
    return np.ones(1, unsigned).view(DTYPES[dtype])
