"""Faults of the nested cache: scales, codes, residuals, offsets, planes, reading."""

from tests.teeth.mutant import Mutant

LARGEST = "    largest = np.abs(difference).max(axis=-1)\n"
SCALE = "    scale = np.maximum(largest / np.float32(7), SMALLEST_SCALE)\n"
CODES = "np.rint(difference / step)"
PRODUCT = "    product = q4 * step  # rounded to float32\n"
REMAINDER = (
    "    remainder = difference - product  # rounded to float32, not fused with the product\n"
)
RESIDUAL = "np.rint(remainder / (step / np.float32(16)))"
PACKED = "    return pack_nibbles(q4.astype(np.int8)), pack_nibbles(qr.astype(np.int8)), scale\n"
OFFSET = "        difference = wide - offset.astype(np.float32)[:, np.newaxis, :]\n"
STEP = '    step = scale if plane == "draft" else scale / np.float32(16)\n'
READ = "        return codes.astype(np.float32) * step[..., np.newaxis]\n"


def write(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change kv.py, to be seen in kv_quantize."""
    return Mutant(name, "kv_quantize", (requirement,), fault, "kv.py", old, new)


def read(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change kv.py, to be seen in kv_dequantize."""
    return Mutant(name, "kv_dequantize", (requirement,), fault, "kv.py", old, new)


MUTANTS = (
    write(
        "cache-scale-of-a-head",
        "BN1-KV-SCALE",
        "one scale for all tokens of a head",
        LARGEST,
        LARGEST + "    largest[:] = largest.max(axis=-1, keepdims=True)\n",
    ),
    write(
        "cache-scale-of-a-token",
        "BN1-KV-SCALE",
        "one scale for all heads of a token",
        LARGEST,
        LARGEST + "    largest[:] = largest.max(axis=-2, keepdims=True)\n",
    ),
    write(
        "cache-scale-by-channel",
        "BN1-KV-SCALE",
        "the largest magnitude is sought over the tokens of a channel, not over the channels",
        LARGEST,
        LARGEST
        + "    by_channel = np.abs(difference).max(axis=-2)\n"
        + "    largest[:] = np.resize(by_channel, largest.shape)\n",
    ),
    write(
        "an-eighth",
        "BN1-KV-SCALE",
        "the largest magnitude is divided by 8",
        "largest / np.float32(7)",
        "largest / np.float32(8)",
    ),
    write(
        "cache-scale-by-reciprocal",
        "BN1-KV-SCALE",
        "the largest magnitude is multiplied by float32(1/7)",
        "largest / np.float32(7)",
        "largest * np.float32(1 / 7)",
    ),
    write(
        "cache-without-smallest-scale",
        "BN1-KV-SCALE",
        "the scale has no floor, and a zero vector is divided by zero",
        SCALE,
        "    scale = largest / np.float32(7)\n",
    ),
    write(
        "cache-scale-in-float16",
        "BN1-KV-SCALE",
        "scales are rounded to float16 when they are stored",
        PACKED,
        "    scale = scale.astype(np.float16).astype(np.float32)\n" + PACKED,
    ),
    write(
        "lanes-beyond-a-power-of-two",
        "BN1-KV-SCALE",
        "of a head_dim like 96 the lanes behind the power of two are not looked at",
        "np.abs(difference).max(axis=-1)",
        "np.abs(difference[..., : 1 << (x.shape[-1].bit_length() - 1)]).max(axis=-1)",
    ),
    write(
        "range-widened-by-zero",
        "BN1-KV-SCALE",
        "the range is that of minimum and maximum, with masked lanes at zero",
        "np.abs(difference).max(axis=-1)",
        "np.maximum(difference.max(axis=-1), 0) - np.minimum(difference.min(axis=-1), 0)",
    ),
    write(
        "largest-element-of-the-vector",
        "BN1-KV-SCALE",
        "the largest element stands for the largest magnitude",
        "np.abs(difference).max(axis=-1)",
        "np.abs(difference.max(axis=-1))",
    ),
    write(
        "cache-codes-by-reciprocal",
        "BN1-KV-CODES",
        "d is multiplied by 1/s",
        CODES,
        "np.rint(difference * (np.float32(1) / step))",
    ),
    write(
        "cache-approximate-division",
        "BN1-KV-CODES",
        "the quotient is a unit in the last place too large",
        CODES,
        "np.rint(difference / step * np.float32(1 + 2.0**-23))",
    ),
    write(
        "cache-codes-rounded-down",
        "BN1-KV-CODES",
        "floor instead of rint",
        CODES,
        "np.floor(difference / step)",
    ),
    write(
        "cache-codes-half-away-from-zero",
        "BN1-KV-CODES",
        "ties go away from zero",
        CODES,
        "np.trunc(difference / step + np.copysign(np.float32(0.5), difference))",
    ),
    write(
        "cache-codes-half-up",
        "BN1-KV-CODES",
        "ties go up",
        CODES,
        "np.floor(difference / step + np.float32(0.5))",
    ),
    write(
        "residual-fused",
        "BN1-KV-RESIDUAL",
        "d - q4·s is a fused multiply-add",
        PRODUCT + REMAINDER,
        "    exact = difference.astype(np.float64) - q4.astype(np.float64) * step\n"
        "    remainder = exact.astype(np.float32)\n",
    ),
    write(
        "residual-of-the-quotient",
        "BN1-KV-RESIDUAL",
        "the residual is 16 times what the code leaves of d / s",
        RESIDUAL,
        "np.rint((difference / step - q4) * np.float32(16))",
    ),
    write(
        "residual-by-reciprocal",
        "BN1-KV-RESIDUAL",
        "the remainder is multiplied by 16/s",
        RESIDUAL,
        "np.rint(remainder * (np.float32(16) / step))",
    ),
    write(
        "residual-truncated",
        "BN1-KV-RESIDUAL",
        "the residual is rounded towards zero",
        RESIDUAL,
        RESIDUAL.replace("rint", "trunc"),
    ),
    write(
        "residual-half-away-from-zero",
        "BN1-KV-RESIDUAL",
        "ties of the residual go away from zero",
        RESIDUAL,
        "np.trunc(remainder / (step / np.float32(16)) + np.copysign(np.float32(0.5), remainder))",
    ),
    write(
        "residual-wraps",
        "BN1-KV-RESIDUAL",
        "a residual of 8 wraps to -8 instead of being clipped to 7",
        PACKED,
        f"    rest = {RESIDUAL}\n    qr = np.where(rest > 7, rest - 16, rest)\n" + PACKED,
    ),
    write(
        "residual-never-negative",
        "BN1-KV-RESIDUAL",
        "the clip qr ≥ 0, meant for q4 = -8, is applied to all negative codes",
        "np.where(q4 == -8, 0, -8)",
        "np.where(q4 < 0, 0, -8)",
    ),
    write(
        "residual-of-the-stored-scale",
        "BN1-KV-RESIDUAL",
        "the residual is fitted against the scale rounded to float16",
        PRODUCT,
        "    product = q4 * step.astype(np.float16).astype(np.float32)\n",
    ),
    write(
        "offset-added",
        "BN1-KV-OFFSET",
        "the offset is added instead of subtracted",
        OFFSET,
        OFFSET.replace("wide - ", "wide + "),
    ),
    write(
        "offset-ignored",
        "BN1-KV-OFFSET",
        "the offset is not subtracted",
        OFFSET,
        "        difference = wide\n",
    ),
    write(
        "offset-of-the-first-head",
        "BN1-KV-OFFSET",
        "the first head's offset is subtracted from all",
        OFFSET,
        OFFSET.replace("[:, np.newaxis, :]", "[:1, np.newaxis, :]"),
    ),
    write(
        "offset-of-another-head",
        "BN1-KV-OFFSET",
        "heads have the offset of the head before them",
        OFFSET,
        OFFSET.replace(
            "offset.astype(np.float32)", "np.roll(offset.astype(np.float32), 1, axis=0)"
        ),
    ),
    write(
        "offset-subtracted-in-the-input-dtype",
        "BN1-KV-WIDEN",
        "the difference is rounded to the dtype of x",
        OFFSET,
        OFFSET + "        difference = difference.astype(x.dtype).astype(np.float32)\n",
    ),
    write(
        "offset-in-the-input-dtype",
        "BN1-KV-WIDEN",
        "the offset is cast to the dtype of x",
        OFFSET,
        OFFSET.replace("offset.astype(np.float32)", "offset.astype(x.dtype).astype(np.float32)"),
    ),
    write(
        "cache-scale-in-the-input-dtype",
        "BN1-KV-WIDEN",
        "the scale is computed in the dtype of x",
        SCALE,
        SCALE + "    scale = scale.astype(x.dtype).astype(np.float32)\n",
    ),
    write(
        "cache-planes-exchanged",
        "BN1-KV-PLANES",
        "residuals are written to hi",
        PACKED,
        "    return pack_nibbles(qr.astype(np.int8)), pack_nibbles(q4.astype(np.int8)), scale\n",
    ),
    write(
        "cache-pairs-halves-of-the-head",
        "BN1-KV-PLANES",
        "lanes j and j + D/2 share a byte, as RoPE pairs them",
        PACKED,
        """\
    half = q4.shape[-1] // 2
    q4, qr = (
        np.stack([part[..., :half], part[..., half:]], axis=-1).reshape(part.shape)
        for part in (q4, qr)
    )
"""
        + PACKED,
    ),
    write(
        "cache-nibbles-swapped",
        "BN1-KV-PLANES",
        "the first lane goes to the high four bits, in the cache alone",
        PACKED,
        """\
    q4, qr = (
        part.reshape(*part.shape[:-1], -1, 2)[..., ::-1].reshape(part.shape) for part in (q4, qr)
    )
"""
        + PACKED,
    ),
    write(
        "tokens-of-a-block-share-a-scale",
        "NUM-INVARIANT-ROWS",
        "tokens that are written together share a scale",
        LARGEST,
        LARGEST + "    largest[:] = largest.max(axis=-1, keepdims=True)\n",
    ),
    write(
        "one-token-is-written-faster",
        "NUM-INVARIANT-ROWS",
        "a single token is written with reciprocals, several with divisions",
        CODES,
        "np.rint(difference / step if x.shape[-2] > 1 else difference * (1 / step))",
    ),
    read(
        "cache-draft-not-scaled",
        "BN1-KV-DRAFT",
        "the draft has the target's sixteenth of the scale",
        STEP,
        "    step = scale / np.float32(16)\n",
    ),
    read(
        "cache-scale-of-the-first-token",
        "BN1-KV-DRAFT",
        "all tokens are read with the first one's scale",
        STEP,
        "    scale = np.broadcast_to(scale[..., :1], scale.shape)\n" + STEP,
    ),
    read(
        "cache-read-in-float16",
        "BN1-KV-DRAFT",
        "what is read passes through float16",
        READ,
        READ.rstrip() + ".astype(np.float16).astype(np.float32)\n",
    ),
    read(
        "cache-read-with-scale-in-bfloat16",
        "BN1-KV-DRAFT",
        "scales pass through bfloat16 when they are read",
        STEP,
        '    scale = scale.astype("bfloat16").astype(np.float32)\n' + STEP,
    ),
    read(
        "cache-target-not-a-sixteenth",
        "BN1-KV-TARGET",
        "the target's codes are multiplied by the draft's scale",
        STEP,
        "    step = scale\n",
    ),
    read(
        "cache-target-in-two-products",
        "BN1-KV-TARGET",
        "q4·s + qr·(s/16): three roundings instead of one",
        READ,
        """\
        if plane == "target":
            q4 = read_codes(hi, None, "draft").astype(np.float32)
            rest = (codes - 16 * q4).astype(np.float32)
            return q4 * scale[..., np.newaxis] + rest * step[..., np.newaxis]
"""
        + READ,
    ),
    read(
        "cache-target-reads-q4",
        "BN1-KV-TARGET",
        "the target reads hi alone",
        READ,
        '        if plane == "target":\n            codes = (codes + 8) // 16 * 16\n' + READ,
    ),
    Mutant(
        "cache-draft-reads-the-low-plane",
        "kv_dequantize",
        ("NUM-INVARIANT-DRAFT",),
        "the draft adds the residual where a low plane is at hand",
        "planes.py",
        '    if plane == "draft":\n        return q4.astype(np.int16)\n',
        '    if plane == "draft":\n'
        "        rest = 0 if lo is None else unpack_nibbles(lo) // 8\n"
        "        return (q4 + rest).astype(np.int16)\n",
    ),
    read(
        "cache-read-in-blocks",
        "NUM-INVARIANT-ROWS",
        "tokens behind the last full block of 16 are read with the block's last scale",
        STEP,
        "    scale = scale.copy()\n"
        "    full = scale.shape[-1] // 16 * 16\n"
        "    if full:\n        scale[..., full:] = scale[..., full - 1, np.newaxis]\n" + STEP,
    ),
    write(
        "tokens-of-one-block",
        "BN1-KV-CODES",
        "tokens beyond 128 are those of the first block",
        PACKED,
        "    q4[..., 128:, :] = q4[..., : max(0, q4.shape[-2] - 128), :]\n" + PACKED,
    ),
    read(
        "read-tokens-of-one-block",
        "BN1-KV-TARGET",
        "tokens beyond 128 are read with the scales of the first block",
        STEP,
        "    scale = scale[..., np.arange(scale.shape[-1]) % 128]\n" + STEP,
    ),
)
