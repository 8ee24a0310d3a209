"""A8: the input of a nested layer as signed eight-bit codes, one scale per token or group."""

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_divides,
    check_finite,
    check_integer,
)
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32
from nibblespec.spec.operations import Nibbles

SMALLEST_SCALE = np.float32(1e-8)
"""What a scale is at least: an all-zero group is divided by it."""

PER_TOKEN = -1
"""The group that is all columns of a token."""


def quantize_activations(x: Array, group: int) -> tuple[Nibbles, Float32]:
    """Return codes int8 [M, K] and scales float32 [M, K/group], or [M, 1] for group −1.

    x is float16, bfloat16 or float32 [M, K]; M may be 0. Implements BN1-ACT-SCALE, BN1-ACT-CODES,
    BN1-ACT-GROUPS and BN1-ACT-WIDEN.

    Raises TypeError for a wrong dtype; ValueError for a wrong rank, K = 0, an element
    that is not finite, or a group that is neither −1 nor a divisor of K.
    """
    check_array(x, "x", FLOAT_DTYPES, ("M", "K"))
    check_finite(x, "x")
    rows, columns = x.shape
    check_integer(columns, "columns of x", 1)
    width = columns if group == PER_TOKEN else group
    check_integer(width, "group", 1)
    check_divides(width, columns, "group", "K")

    groups = x.astype(np.float32).reshape(rows, columns // width, width)
    largest = np.abs(groups).max(axis=2)
    scale = np.maximum(largest / np.float32(127), SMALLEST_SCALE)
    codes = np.clip(np.rint(groups / scale[:, :, np.newaxis]), -128, 127)
    return codes.astype(np.int8).reshape(rows, columns), scale
