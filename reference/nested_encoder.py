"""A producer's side of bitnest: weights into nested codes, by round-to-nearest with a residual.

    scale = float16(amax|w| / 7)          of each group
    q4 = clip(rint(w / s), −8, 7)         s: the scale as stored, widened to float32
    qr = clip(rint((w − q4·s) / (s/16)), −8, 7), at least 0 where q4 = −8

Each step is a float32 operation, rounded to nearest even. Where s is zero, so are both codes.
"""

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_divides,
    check_finite,
    check_integer,
    check_not_empty,
    check_range,
)
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, round_float32
from nibblespec.spec.operations import Float16, Nibbles


def encode_nested(weight: Array, group_size: int) -> tuple[Nibbles, Nibbles, Float16]:
    """Return q4 and qr, int8 [N, K] each, and scale, float16 [N, K/group_size].

    weight is float16, bfloat16 or float32 [N, K]. The codes keep BN1-CODES-INT8, the scales
    BN1-SCALE-FINITE, BN1-SCALE-SIGN and BN1-SCALE-ZERO.

    Raises TypeError for a wrong dtype; ValueError for a wrong rank, an empty array, an odd K, an
    element that is not finite, a group size that does not divide K, or a group whose scale would
    overflow float16.
    """
    check_array(weight, "weight", FLOAT_DTYPES, ("N", "K"))
    check_not_empty(weight, "weight")
    check_finite(weight, "weight")
    check_divides(2, weight.shape[1], "codes per byte", "K")
    check_integer(group_size, "group_size", 1)
    check_divides(group_size, weight.shape[1], "group_size", "K")
    wide = weight.astype(np.float32)
    scale = round_float32(largest_magnitudes(wide, group_size) / np.float32(7), "float16")
    if np.isinf(scale).any():
        row, group = (int(i) for i in np.argwhere(np.isinf(scale))[0])
        raise ValueError(
            f"weight: expected magnitudes whose seventh fits float16 (at most 65504), found a "
            f"larger one in row {row}, group {group}; rescale the layer before encoding it"
        )
    q4 = nearest_codes(wide, columns_of(scale, group_size))
    return q4, encode_residual(weight, q4, scale), scale


def encode_residual(weight: Array, q4: Nibbles, scale: Float16) -> Nibbles:
    """Return qr int8 [N, K] for codes q4 and scales float16 [N, G] that are given.

    This is the second half of `encode_nested`, for a q4 that comes from elsewhere. Raises TypeError
    for a wrong dtype; ValueError for shapes that do not fit each other, a code outside −8 … 7, or
    an element that is not finite.
    """
    check_array(weight, "weight", FLOAT_DTYPES, ("N", "K"))
    check_not_empty(weight, "weight")
    check_finite(weight, "weight")
    check_array(q4, "q4", "int8", weight.shape)
    check_range(q4, "q4", -8, 7)
    check_array(scale, "scale", "float16", (weight.shape[0], "G"))
    check_not_empty(scale, "scale")
    check_finite(scale, "scale")
    check_divides(scale.shape[1], weight.shape[1], "groups of scale", "K")

    step = columns_of(scale, weight.shape[1] // scale.shape[1])
    product = q4.astype(np.float32) * step  # exact
    remainder = weight.astype(np.float32) - product
    lowest = np.where(q4 == -8, np.float32(0), np.float32(-8))
    return divide_and_round(remainder, step / np.float32(16), lowest)


def nearest_codes(weight: Float32, step: Float32) -> Nibbles:
    """Return clip(rint(weight / step), −8, 7), int8 [N, K]; 0 where the step is 0."""
    return divide_and_round(weight, step, np.full_like(weight, -8))


def divide_and_round(values: Float32, step: Float32, lowest: Float32) -> Nibbles:
    """Return clip(rint(values / step), lowest, 7), int8 [N, K]; 0 where the step is 0."""
    empty = step == 0
    quotient = values / np.where(empty, np.float32(1), step)
    codes = np.clip(np.rint(quotient), lowest, 7)
    return np.where(empty, 0, codes).astype(np.int8)


def largest_magnitudes(weight: Float32, group_size: int) -> Float32:
    """Return amax|w| of each group, float32 [N, K/group_size]."""
    groups = np.abs(weight).reshape(weight.shape[0], -1, group_size)
    largest: Float32 = groups.max(axis=2)
    return largest


def columns_of(scale: Float16, group_size: int) -> Float32:
    """Return the scale of each column, float32 [N, K]."""
    return np.repeat(scale.astype(np.float32), group_size, axis=1)
