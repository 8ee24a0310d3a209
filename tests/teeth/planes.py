"""Faults of nibble planes and of the nested weights read from them."""

from tests.teeth.mutant import Mutant

PACKED = "    return excess[..., 0::2] | excess[..., 1::2] << np.uint8(4)\n"
EXCESS = "    excess = (codes + np.int8(8)).astype(np.uint8)\n"
SPLIT = "np.stack([plane & np.uint8(15), plane >> np.uint8(4)], axis=-1)"
SIGNED = "    codes = excess.astype(np.int8) - np.int8(8)\n"
EIGHT_BITS = "    return np.int16(16) * q4 + qr\n"
WIDENED = "    wide = scale.astype(np.float32)\n"
SCALED = 'wide if plane == "draft" else wide / np.float32(16)'
REPEATED = "np.repeat(scales, width, axis=1)"
WEIGHT = "    return round_float32(weight, dtype)\n"


def planes(
    name: str, operation: str, breaks: tuple[str, ...], fault: str, old: str, new: str
) -> Mutant:
    """Change planes.py."""
    return Mutant(name, operation, breaks, fault, "planes.py", old, new)


def nested(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change nested.py, to be seen in the reconstructed weight."""
    return Mutant(name, "nested_reconstruct", (requirement,), fault, "nested.py", old, new)


MUTANTS = (
    planes(
        "nibbles-swapped-by-the-reader",
        "unpack_planes",
        ("BN1-PLANES-ORDER",),
        "the first column is read from the high four bits",
        SPLIT,
        "np.stack([plane >> np.uint8(4), plane & np.uint8(15)], axis=-1)",
    ),
    planes(
        "nibbles-swapped-by-the-packer",
        "pack_planes",
        ("BN1-PLANES-ORDER",),
        "the first column is written to the high four bits",
        PACKED,
        "    return excess[..., 1::2] | excess[..., 0::2] << np.uint8(4)\n",
    ),
    planes(
        "halves-of-the-row-paired",
        "unpack_planes",
        ("BN1-PLANES-ORDER",),
        "byte j holds the columns j and j + K/2",
        SPLIT,
        SPLIT.replace("axis=-1", "axis=-2"),
    ),
    planes(
        "pairs-sixteen-apart",
        "unpack_planes",
        ("BN1-PLANES-ORDER",),
        "byte j of a block of 16 holds the columns j and j + 16",
        "    return codes.reshape(*plane.shape[:-1], 2 * plane.shape[-1])\n",
        """\
    if plane.shape[-1] % 16 == 0:
        codes = codes.reshape(*plane.shape[:-1], -1, 16, 2).swapaxes(-1, -2)
    return codes.reshape(*plane.shape[:-1], 2 * plane.shape[-1])
""",
    ),
    planes(
        "packer-pairs-halves",
        "pack_planes",
        ("BN1-PLANES-ORDER",),
        "columns j and j + K/2 are written to byte j",
        PACKED,
        "    half = codes.shape[-1] // 2\n"
        "    return excess[..., :half] | excess[..., half:] << np.uint8(4)\n",
    ),
    planes(
        "high-nibble-lost",
        "unpack_planes",
        ("BN1-PLANES-ORDER",),
        "odd columns repeat the even ones",
        "plane >> np.uint8(4)]",
        "plane & np.uint8(15)]",
    ),
    planes(
        "reader-of-twos-complement",
        "unpack_planes",
        ("BN1-PLANES-EXCESS",),
        "nibbles are read as two's complement",
        SIGNED,
        "    codes = (excess ^ np.uint8(8)).astype(np.int8) - np.int8(8)\n",
    ),
    planes(
        "packer-of-twos-complement",
        "pack_planes",
        ("BN1-PLANES-EXCESS",),
        "nibbles are written as two's complement",
        EXCESS,
        "    excess = codes.astype(np.uint8) & np.uint8(15)\n",
    ),
    planes(
        "packer-without-a-mask",
        "pack_planes",
        ("BN1-PLANES-EXCESS",),
        "two's complement, whose negative low codes flood the high ones",
        EXCESS,
        "    excess = codes.astype(np.uint8)\n",
    ),
    planes(
        "high-nibble-sign-extended",
        "unpack_planes",
        ("BN1-PLANES-EXCESS",),
        "the byte is shifted as a signed number",
        "plane >> np.uint8(4)]",
        "(plane.view(np.int8) >> 4).view(np.uint8)]",
    ),
    planes(
        "high-nibble-not-shifted-out",
        "unpack_planes",
        ("BN1-PLANES-EXCESS",),
        "the low nibble is not masked",
        "[plane & np.uint8(15),",
        "[plane,",
    ),
    planes(
        "excess-seven",
        "unpack_planes",
        ("BN1-PLANES-EXCESS",),
        "7 is subtracted instead of 8",
        SIGNED,
        SIGNED.replace("int8(8)", "int8(7)"),
    ),
    planes(
        "borrow-across-bytes",
        "unpack_planes",
        ("BN1-PLANES-EXCESS",),
        "8 is subtracted from two codes at once, and a negative one borrows from its neighbour",
        SIGNED,
        "    codes = (excess.view(np.uint16) - np.uint16(0x0808)).view(np.int8)\n",
    ),
    planes(
        "planes-exchanged-by-the-reader",
        "unpack_planes",
        ("BN1-PLANES-ROLES",),
        "residuals are read from hi",
        "    return unpack_nibbles(hi), unpack_nibbles(lo)\n",
        "    return unpack_nibbles(lo), unpack_nibbles(hi)\n",
    ),
    planes(
        "planes-exchanged-by-the-packer",
        "pack_planes",
        ("BN1-PLANES-ROLES",),
        "residuals are written to hi",
        '    planes = pack_nibbles(q4, "q4"), pack_nibbles(qr, "qr")\n',
        '    planes = pack_nibbles(qr, "qr"), pack_nibbles(q4, "q4")\n',
    ),
    planes(
        "last-byte-of-an-odd-plane",
        "unpack_planes",
        ("BN1-PLANES-ROLES",),
        "of an odd number of bytes in a row, the last is not read",
        SIGNED,
        SIGNED
        + "    if plane.shape[-1] % 2:\n        codes[..., plane.shape[-1] // 2 * 2 :, :] = 0\n",
    ),
    nested(
        "nested-scales-interleaved",
        "BN1-WEIGHT-GROUPS",
        "column k belongs to group k mod G",
        REPEATED,
        "np.tile(scales, width)",
    ),
    nested(
        "nested-first-scale-for-the-row",
        "BN1-WEIGHT-GROUPS",
        "the scale of a row's first group serves the whole row",
        REPEATED,
        "np.repeat(scales[:, :1], codes.shape[1], axis=1)",
    ),
    nested(
        "nested-scales-along-the-rows",
        "BN1-WEIGHT-GROUPS",
        "scales are taken for [G, N]",
        REPEATED,
        "np.repeat(scales.reshape(-1, scales.shape[0]).T, width, axis=1)",
    ),
    nested(
        "nested-scale-of-128-columns",
        "BN1-WEIGHT-GROUPS",
        "a group of 128 columns is built in",
        REPEATED,
        "scales[:, np.minimum(np.arange(codes.shape[1]) // 128, scales.shape[1] - 1)]",
    ),
    nested(
        "nested-last-row-of-a-block",
        "NUM-INVARIANT-PERMUTATION",
        "the last of an odd number of rows has the scales of the row before it",
        WIDENED,
        WIDENED + "    if len(wide) % 2 and len(wide) > 1:\n        wide[-1] = wide[-2]\n",
    ),
    nested(
        "nested-epsilon-in-the-scale",
        "NUM-INVARIANT-SCALE",
        "an epsilon is added to every scale",
        WIDENED,
        WIDENED + "    wide += np.float32(1e-4)\n",
    ),
    nested(
        "nested-scale-loaded-as-bfloat16",
        "BN1-DRAFT-WEIGHT",
        "scales pass through bfloat16 when they are loaded",
        WIDENED,
        '    wide = scale.astype("bfloat16").astype(np.float32)\n',
    ),
    nested(
        "nested-subnormal-scales-flushed",
        "BN1-DRAFT-WEIGHT",
        "subnormal scales are read as zero",
        WIDENED,
        WIDENED + "    wide[wide < 2.0**-14] = 0\n",
    ),
    nested(
        "nested-scale-without-its-sign",
        "BN1-DRAFT-WEIGHT",
        "scales are taken for magnitudes: -0, which is not less than zero, becomes +0",
        WIDENED,
        "    wide = np.abs(scale).astype(np.float32)\n",
    ),
    nested(
        "nested-zero-scale-replaced",
        "BN1-DRAFT-WEIGHT",
        "a scale of 0 is replaced by 1, against a division by zero",
        WIDENED,
        WIDENED + "    wide[wide == 0] = 1\n",
    ),
    nested(
        "nested-weight-truncated",
        "BN1-DRAFT-WEIGHT",
        "a bfloat16 weight is the upper half of float32, cut off",
        WEIGHT,
        '    if dtype == "bfloat16":\n'
        '        return (weight.view(np.uint32) >> 16).astype(np.uint16).view("bfloat16")\n'
        + WEIGHT,
    ),
    nested(
        "nested-weight-by-way-of-float16",
        "BN1-DRAFT-WEIGHT",
        "weights pass through float16 on the way to bfloat16 and float32",
        WEIGHT,
        '    weight = round_float32(weight, "float16").astype(np.float32)\n' + WEIGHT,
    ),
    nested(
        "nested-sign-of-zero-lost",
        "BN1-DRAFT-WEIGHT",
        "-0, a negative code of a group of scale 0, becomes +0",
        WEIGHT,
        "    weight = weight + np.float32(0)\n" + WEIGHT,
    ),
    nested(
        "scale-not-divided-by-sixteen",
        "BN1-TARGET-WEIGHT",
        "the target's codes are multiplied by the draft's scale",
        SCALED,
        "wide",
    ),
    Mutant(
        "residual-ignored",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "the target reads q4 alone",
        "planes.py",
        EIGHT_BITS,
        "    return np.int16(16) * q4\n",
    ),
    Mutant(
        "residual-subtracted",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "the target reads 16·q4 - qr",
        "planes.py",
        EIGHT_BITS,
        "    return np.int16(16) * q4 - qr\n",
    ),
    Mutant(
        "residual-not-a-sixteenth",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "(q4 + qr) · scale: the residual is scaled like the code",
        "planes.py",
        EIGHT_BITS,
        "    return np.int16(16) * (q4 + qr)\n",
    ),
    Mutant(
        "residual-unsigned",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "the residual is read as 0 … 15",
        "planes.py",
        EIGHT_BITS,
        "    return np.int16(16) * q4 + qr + np.int16(8)\n",
    ),
    Mutant(
        "symmetric-eight-bits",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "the target's codes are clipped to -127 … 127",
        "planes.py",
        EIGHT_BITS,
        "    return np.maximum(np.int16(16) * q4 + qr, np.int16(-127))\n",
    ),
    Mutant(
        "residual-clipped-as-by-the-encoder",
        "nested_reconstruct",
        ("BN1-TARGET-WEIGHT",),
        "the encoder's clip qr ≥ 0, meant for q4 = -8, is applied to all negative codes",
        "planes.py",
        EIGHT_BITS,
        "    return np.int16(16) * q4 + np.where(q4 < 0, np.maximum(qr, 0), qr).astype(np.int16)\n",
    ),
    nested(
        "sixteenth-in-float16",
        "BN1-SCALE-SIXTEENTH",
        "scale / 16 is formed in float16, which cannot hold that of a small scale",
        SCALED,
        'wide if plane == "draft" else (scale / np.float16(16)).astype(np.float32)',
    ),
    Mutant(
        "draft-reads-the-low-plane",
        "nested_reconstruct",
        ("NUM-INVARIANT-DRAFT",),
        "the draft adds the residual where a low plane is at hand",
        "planes.py",
        '    if plane == "draft":\n        return q4.astype(np.int16)\n',
        '    if plane == "draft":\n'
        "        rest = 0 if lo is None else unpack_nibbles(lo) // 8\n"
        "        return (q4 + rest).astype(np.int16)\n",
    ),
    nested(
        "nested-weights-counted-in-16-bits",
        "BN1-WEIGHT-GROUPS",
        "the index of a byte of the planes has 16 bits",
        WEIGHT,
        "    flat = weight.reshape(-1)\n"
        "    weight = flat[np.arange(flat.size) % 131072].reshape(weight.shape)\n" + WEIGHT,
    ),
)
