"""Faults of A8: scales, roundings, groups of columns."""

from tests.teeth.mutant import Mutant

WIDENED = "    groups = x.astype(np.float32).reshape(rows, columns // width, width)\n"
LARGEST = "    largest = np.abs(groups).max(axis=2)\n"
SCALE = "    scale = np.maximum(largest / np.float32(127), SMALLEST_SCALE)\n"
QUOTIENT = "groups / scale[:, :, np.newaxis]"
QUANTIZED = "    return codes.astype(np.int8).reshape(rows, columns), scale\n"
ROUNDED = f"np.rint({QUOTIENT})"


def a8(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change activations.py."""
    return Mutant(name, "quantize_activations", (requirement,), fault, "activations.py", old, new)


MUTANTS = (
    a8(
        "scale-of-the-whole-input",
        "BN1-ACT-SCALE",
        "one largest magnitude for all tokens",
        LARGEST,
        LARGEST + "    largest[:] = largest.max()\n",
    ),
    a8(
        "a-128th",
        "BN1-ACT-SCALE",
        "the largest magnitude is divided by 128",
        "np.float32(127)",
        "np.float32(128)",
    ),
    a8(
        "no-smallest-scale",
        "BN1-ACT-SCALE",
        "the scale has no floor, and an all-zero group is divided by zero",
        SCALE,
        "    scale = largest / np.float32(127)\n",
    ),
    a8(
        "smallest-magnitude",
        "BN1-ACT-SCALE",
        "the floor of 1e-8 is applied to the largest magnitude, before it is divided",
        SCALE,
        "    scale = np.maximum(largest, SMALLEST_SCALE) / np.float32(127)\n",
    ),
    a8(
        "smallest-scale-1e-5",
        "BN1-ACT-SCALE",
        "the floor of the scale is 1e-5",
        SCALE,
        SCALE.replace("SMALLEST_SCALE", "np.float32(1e-5)"),
    ),
    a8(
        "zero-groups-get-scale-one",
        "BN1-ACT-SCALE",
        "an all-zero group gets the scale 1",
        SCALE,
        SCALE + "    scale[largest == 0] = 1\n",
    ),
    a8(
        "largest-without-its-sign",
        "BN1-ACT-SCALE",
        "the largest element stands for the largest magnitude",
        "np.abs(groups).max(axis=2)",
        "np.abs(groups.max(axis=2))",
    ),
    a8(
        "scale-by-reciprocal",
        "BN1-ACT-SCALE",
        "the largest magnitude is multiplied by float32(1/127)",
        "largest / np.float32(127)",
        "largest * np.float32(1 / 127)",
    ),
    a8(
        "last-column-not-looked-at",
        "BN1-ACT-SCALE",
        "the largest magnitude is sought in an even number of columns",
        "np.abs(groups).max(axis=2)",
        "np.abs(groups[:, :, : max(1, width // 2 * 2)]).max(axis=2)",
    ),
    a8(
        "codes-by-reciprocal",
        "BN1-ACT-CODES",
        "x is multiplied by 1/s",
        QUOTIENT,
        "groups * (np.float32(1) / scale[:, :, np.newaxis])",
    ),
    a8(
        "approximate-division",
        "BN1-ACT-CODES",
        "the quotient is a unit in the last place too large",
        QUOTIENT,
        f"({QUOTIENT}) * np.float32(1 + 2.0**-23)",
    ),
    a8(
        "codes-rounded-down",
        "BN1-ACT-CODES",
        "floor instead of rint",
        ROUNDED,
        f"np.floor({QUOTIENT})",
    ),
    a8(
        "codes-truncated",
        "BN1-ACT-CODES",
        "rounded towards zero",
        ROUNDED,
        f"np.trunc({QUOTIENT})",
    ),
    a8(
        "codes-half-away-from-zero",
        "BN1-ACT-CODES",
        "ties go away from zero",
        ROUNDED,
        f"np.trunc({QUOTIENT} + np.copysign(np.float32(0.5), groups))",
    ),
    a8(
        "codes-half-up",
        "BN1-ACT-CODES",
        "ties go up",
        ROUNDED,
        f"np.floor({QUOTIENT} + np.float32(0.5))",
    ),
    a8(
        "codes-of-seven-bits",
        "BN1-ACT-CODES",
        "codes are clipped to -64 … 63",
        "-128, 127)",
        "-64, 63)",
    ),
    a8(
        "codes-unsigned",
        "BN1-ACT-CODES",
        "codes are stored with 128 added",
        "codes.astype(np.int8)",
        "(codes + 128).astype(np.uint8).view(np.int8)",
    ),
    a8(
        "columns-dealt-to-groups",
        "BN1-ACT-GROUPS",
        "column k belongs to group k mod G",
        WIDENED,
        WIDENED.replace(
            "reshape(rows, columns // width, width)",
            "reshape(rows, width, columns // width).swapaxes(1, 2)",
        ),
    ),
    a8(
        "stale-activation-stride",
        "BN1-ACT-GROUPS",
        "groups after the first begin one column late",
        WIDENED,
        WIDENED + "    groups[:, 1:] = np.roll(groups[:, 1:], -1, axis=2)\n",
    ),
    a8(
        "first-group-for-the-token",
        "BN1-ACT-GROUPS",
        "the first group's scale serves the token",
        LARGEST,
        LARGEST + "    largest[:] = largest[:, :1]\n",
    ),
    a8(
        "group-ignored",
        "BN1-ACT-GROUPS",
        "one scale for the token, written once for each group",
        LARGEST,
        LARGEST + "    largest[:] = largest.max(axis=1, keepdims=True)\n",
    ),
    a8(
        "scale-in-the-input-dtype",
        "BN1-ACT-WIDEN",
        "the scale is computed in the dtype of x",
        SCALE,
        SCALE + "    scale = scale.astype(x.dtype).astype(np.float32)\n",
    ),
    a8(
        "quotient-in-the-input-dtype",
        "BN1-ACT-WIDEN",
        "x / s is rounded to the dtype of x",
        QUOTIENT,
        f"({QUOTIENT}).astype(x.dtype).astype(np.float32)",
    ),
    a8(
        "activations-by-way-of-float16",
        "BN1-ACT-WIDEN",
        "bfloat16 and float32 activations pass through float16",
        "x.astype(np.float32).reshape",
        "x.astype(np.float16).astype(np.float32).reshape",
    ),
    a8(
        "faster-for-many-rows",
        "NUM-INVARIANT-ROWS",
        "a reciprocal for several rows, a division for a single one",
        QUOTIENT,
        f"({QUOTIENT} if rows == 1 else groups * (1 / scale[:, :, np.newaxis]))",
    ),
    a8(
        "scales-shared-by-pairs-of-rows",
        "NUM-INVARIANT-ROWS",
        "two rows of a block share their largest magnitude",
        LARGEST,
        LARGEST + "    if rows == 2:\n        largest[:] = largest.max(axis=0)\n",
    ),
    a8(
        "columns-of-one-block",
        "BN1-ACT-SCALE",
        "the largest magnitude is sought in the first 4096 columns",
        "np.abs(groups).max(axis=2)",
        "np.abs(groups[:, :, :4096]).max(axis=2)",
    ),
    a8(
        "rows-of-one-grid",
        "BN1-ACT-CODES",
        "rows beyond 1024 are those of the first block",
        QUANTIZED,
        "    codes[1024:] = codes[: max(0, len(codes) - 1024)]\n" + QUANTIZED,
    ),
)
