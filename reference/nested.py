"""bitnest: the weights of a nested layer, and the layer itself.

    hi, lo [N, K/2] ─ read_codes ─→ q4 (draft) or q8 = 16·q4 + qr (target), [N, K]
    scale [N, G] ─→ float32 scale (draft) or scale/16 (target), repeated over K/G columns
    code · scale, exact in float32 ─ one rounding ─→ weight [N, K]

N and K are the layer's output rows and input columns, M the rows of the input, G the groups of a
row.
"""

from itertools import pairwise

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
from nibblespec.reference.product import dense_product
from nibblespec.reference.rounding import (
    FLOAT_DTYPES,
    Array,
    Float32,
    round_float32,
    round_float64,
)
from nibblespec.spec.operations import Bytes, Float16, FloatDtype, Nibbles, Plane
from numpy.typing import NDArray


def nested_reconstruct(
    hi: Bytes, lo: Bytes | None, scale: Float16, plane: Plane, dtype: FloatDtype
) -> Array:
    """Return the draft or target weight, `dtype` [N, K].

    hi and lo uint8 [N, K/2] (lo is not read for draft), scale float16 [N, G], finite and not
    negative, G a divisor of K. Implements BN1-WEIGHT-GROUPS, BN1-DRAFT-WEIGHT, BN1-TARGET-WEIGHT
    and BN1-SCALE-SIXTEENTH.

    Raises TypeError for a wrong dtype; ValueError for shapes that do not fit each other, an empty
    array, a scale that is negative or not finite, codes that break BN1-CODES-INT8, or an unknown
    plane or dtype.
    """
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    codes, scales = codes_and_scales(hi, lo, scale, plane)
    width = codes.shape[1] // scales.shape[1]
    weight = codes.astype(np.float32) * np.repeat(scales, width, axis=1)  # exact
    return round_float32(weight, dtype)


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
    """Return Σ over segments of dot·(sx·sw), plus bias: `dtype` [M, N].

    xq int8 [M, K] and sx float32 [M, Ga] as `quantize_activations` gives them; hi, lo and scale as
    `nested_reconstruct` takes them; bias float16 [N] or None. Implements
    BN1-LINEAR-DOT, BN1-LINEAR-SEGMENTS, BN1-LINEAR-TARGET and BN1-LINEAR-BIAS.

    The products of codes are integers. Their scaled sum is in float64, segment by segment, then the
    bias, then one rounding. Every step is elementwise in m and n, so that a row depends on nothing
    but itself (NUM-INVARIANT-ROWS).

    Raises as `nested_reconstruct` does, likewise for xq, sx and bias.
    """
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    codes, scales = codes_and_scales(hi, lo, scale, plane)
    check_linear_input(xq, sx, bias, codes)
    total = np.zeros((xq.shape[0], codes.shape[0]), np.float64)
    for start, stop in segments(xq.shape[1], scales.shape[1], sx.shape[1]):
        dot = segment_product(xq, codes, start, stop)
        sx_segment, sw_segment = segment_scales(sx, scales, start, xq.shape[1])
        total += dot * (sx_segment[:, np.newaxis] * sw_segment[np.newaxis, :])
    if bias is not None:
        total += bias.astype(np.float64)
    return round_float64(total, dtype)


def prefill_f16_linear(
    xq: Nibbles,
    sx: Float32,
    hi: Bytes,
    lo: Bytes | None,
    scale: Float16,
    bias: Float16 | None,
    plane: Plane,
    dtype: FloatDtype,
) -> Array:
    """Return the layer in the mode prefill-f16: `dtype` [M, N] (BN1-LINEAR-PREFILL).

    Arguments and errors are those of `nested_linear`. `dense_product` says how it sums.
    """
    x, weight = prefill_f16_operands(xq, sx, hi, lo, scale, plane)
    check_choice(dtype, "dtype", FLOAT_DTYPES)
    check_bias(bias, weight.shape[0])
    return dense_product(x, weight, bias, dtype)


def prefill_f16_operands(
    xq: Nibbles, sx: Float32, hi: Bytes, lo: Bytes | None, scale: Float16, plane: Plane
) -> tuple[Float16, Float16]:
    """Return activations [M, K] and weight [N, K], both rounded to float16."""
    codes, _ = codes_and_scales(hi, lo, scale, plane)
    check_linear_input(xq, sx, None, codes)
    weight = nested_reconstruct(hi, lo, scale, plane, "float16")
    with np.errstate(over="ignore", under="ignore"):
        x = xq.astype(np.float32) * np.repeat(sx, xq.shape[1] // sx.shape[1], axis=1)
    return round_float32(x, "float16"), weight


def codes_and_scales(
    hi: Bytes, lo: Bytes | None, scale: Float16, plane: Plane
) -> tuple[NDArray[np.int16], Float32]:
    """Return q4 or q8, int16 [N, K], and scale or scale/16, float32 [N, G]."""
    check_array(hi, "hi", "uint8", ("N", "K/2"))
    codes = read_codes(hi, lo, plane)
    check_array(scale, "scale", "float16", (codes.shape[0], "G"))
    check_not_empty(scale, "scale")
    check_divides(scale.shape[1], codes.shape[1], "groups of scale", "K")
    check_finite(scale, "scale")
    if (scale < 0).any():
        index = [int(i) for i in np.argwhere(scale < 0)[0]]
        raise ValueError(f"scale: expected no negative element, found one at {index}")
    wide = scale.astype(np.float32)
    return codes, wide if plane == "draft" else wide / np.float32(16)  # exact, after widening


def segments(columns: int, *group_counts: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each segment of the columns: the common refinement of the groups.

    `segments(6, 3, 2)`, groups of two columns and of three, is [(0, 2), (2, 3), (3, 4), (4, 6)].

    Raises ValueError where a number of groups does not divide the columns.
    """
    borders = {columns}
    for count in group_counts:
        check_integer(count, "groups", 1)
        check_divides(count, columns, "groups", "columns")
        borders.update(range(0, columns, columns // count))
    return list(pairwise(sorted(borders)))


def segment_product(
    xq: Nibbles, codes: NDArray[np.int16], start: int, stop: int
) -> NDArray[np.int64]:
    """Return the exact integer products of the columns start … stop − 1, int64 [M, N]."""
    return xq[:, start:stop].astype(np.int64) @ codes[:, start:stop].T.astype(np.int64)


def segment_scales(
    sx: Float32, scales: Float32, start: int, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scales of the groups in which the segment at column `start` lies: [M] and [N]."""
    x_group = start // (columns // sx.shape[1])
    w_group = start // (columns // scales.shape[1])
    return sx[:, x_group].astype(np.float64), scales[:, w_group].astype(np.float64)


def check_linear_input(
    xq: Nibbles, sx: Float32, bias: Float16 | None, codes: NDArray[np.int16]
) -> None:
    """Require xq [M, K] with scales [M, Ga] and bias [N] or None for the codes [N, K]."""
    rows, columns = codes.shape
    check_array(xq, "xq", "int8", ("M", columns))
    check_array(sx, "sx", "float32", (xq.shape[0], "groups"))
    check_integer(sx.shape[1], "groups of sx", 1)
    check_divides(sx.shape[1], columns, "groups of sx", "K")
    check_finite(sx, "sx")
    check_bias(bias, rows)


def check_bias(bias: Float16 | None, rows: int) -> None:
    """Require a finite float16 bias [N], or None."""
    if bias is not None:
        check_array(bias, "bias", "float16", (rows,))
        check_finite(bias, "bias")
