"""The nested KV cache: one float32 scale per token and head, two nibble planes along head_dim."""

import numpy as np
from nibblespec.reference.activations import SMALLEST_SCALE
from nibblespec.reference.arguments import (
    check_array,
    check_divides,
    check_finite,
    check_integer,
)
from nibblespec.reference.planes import pack_nibbles, read_codes
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32
from nibblespec.spec.operations import Bytes, Plane


def kv_quantize(x: Array, offset: Array | None) -> tuple[Bytes, Bytes, Float32]:
    """Return hi and lo, uint8 [..., H, L, D/2] each, and scale, float32 [..., H, L].

    x is float16, bfloat16 or float32 [..., H, L, D] (H heads, L tokens, D even); offset, in any of
    these dtypes, is [H, D] or None. Without an offset x may be any [..., D]. Implements
    BN1-KV-SCALE, BN1-KV-CODES, BN1-KV-RESIDUAL, BN1-KV-OFFSET, BN1-KV-WIDEN, BN1-KV-PLANES.

    Raises TypeError for a wrong dtype; ValueError for shapes that do not fit each other, an odd or
    empty head_dim, an element that is not finite, or a difference that overflows float32.
    """
    difference = subtract_offset(x, offset)
    largest = np.abs(difference).max(axis=-1)
    scale = np.maximum(largest / np.float32(7), SMALLEST_SCALE)
    scale = np.asarray(scale)  # of a single vector it would be a NumPy scalar
    step = scale[..., np.newaxis]
    q4 = np.clip(np.rint(difference / step), -8, 7)
    product = q4 * step  # rounded to float32
    remainder = difference - product  # rounded to float32, not fused with the product
    lowest = np.where(q4 == -8, 0, -8)
    qr = np.clip(np.rint(remainder / (step / np.float32(16))), lowest, 7)
    return pack_nibbles(q4.astype(np.int8)), pack_nibbles(qr.astype(np.int8)), scale


def kv_dequantize(hi: Bytes, lo: Bytes | None, scale: Float32, plane: Plane) -> Float32:
    """Return what a reader of the cache sees, float32 [..., D].

    hi and lo uint8 [..., D/2] (lo is not read for draft), scale float32 [...]. Implements
    BN1-KV-DRAFT and BN1-KV-TARGET.

    Raises TypeError for a wrong dtype; ValueError for shapes that do not fit each other, an empty
    array, a scale that is not finite, codes that break BN1-CODES-INT8, or an unknown plane.
    """
    codes = read_codes(hi, lo, plane)
    check_array(scale, "scale", "float32", hi.shape[:-1])
    check_finite(scale, "scale")
    step = scale if plane == "draft" else scale / np.float32(16)
    with np.errstate(over="ignore", under="ignore"):
        return codes.astype(np.float32) * step[..., np.newaxis]


def subtract_offset(x: Array, offset: Array | None) -> Float32:
    """Return x − offset, float32 of x's shape; each head has its own offset."""
    check_array(x, "x", FLOAT_DTYPES, ("...", "D"))
    check_integer(x.shape[-1], "head_dim", 1)
    check_divides(2, x.shape[-1], "codes per byte", "head_dim")
    check_finite(x, "x")
    wide = x.astype(np.float32)
    if offset is None:
        return wide
    check_array(x, "x", FLOAT_DTYPES, ("...", "H", "L", "D"))
    check_array(offset, "offset", FLOAT_DTYPES, (x.shape[-3], x.shape[-1]))
    check_finite(offset, "offset")
    with np.errstate(over="ignore"):
        difference = wide - offset.astype(np.float32)[:, np.newaxis, :]
    check_finite(difference, "x - offset")
    return difference
