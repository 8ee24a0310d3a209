"""Changes that no valid input can tell from the reference, and faults that no suite can look for.

The suite has to accept the former: were it to reject one, the reason given here would be wrong.
"""

from collections.abc import Mapping

from tests.teeth.mutant import Mutant

CODE = "np.clip(np.rint(groups / scale[:, :, np.newaxis]), -128, 127)"

EQUIVALENT: Mapping[str, tuple[Mutant, ...]] = {
    "|d / s| is at most 7·(1 + 2⁻²³), so that q4 is never -8": (
        Mutant(
            "no-clip-of-q4",
            "kv_quantize",
            (),
            "q4 is not clipped",
            "kv.py",
            "np.clip(np.rint(difference / step), -8, 7)",
            "np.rint(difference / step)",
        ),
        Mutant(
            "no-lower-limit-of-qr",
            "kv_quantize",
            (),
            "qr may be negative where q4 is -8",
            "kv.py",
            "np.where(q4 == -8, 0, -8)",
            "-8",
        ),
    ),
    "|x / s| is at most 127·(1 + 2⁻²³), so that the clip of A8 never acts": (
        Mutant(
            "no-clip-of-a8",
            "quantize_activations",
            (),
            "codes are not clipped",
            "activations.py",
            CODE,
            "np.rint(groups / scale[:, :, np.newaxis])",
        ),
        Mutant(
            "symmetric-clip-of-a8",
            "quantize_activations",
            (),
            "codes are clipped to -127 … 127",
            "activations.py",
            CODE,
            CODE.replace("-128", "-127"),
        ),
        Mutant(
            "a8-wraps",
            "quantize_activations",
            (),
            "a code beyond 127 would wrap to -128",
            "activations.py",
            CODE,
            "(np.rint(groups / scale[:, :, np.newaxis]) + 128) % 256 - 128",
        ),
    ),
    "BN1-CODES-INT8 keeps 16·q4 + qr within -128 … 119, and the validator rejects other planes": (
        Mutant(
            "eight-bit-codes-in-int8",
            "nested_reconstruct",
            (),
            "16·q4 + qr is formed in eight bits, and would wrap",
            "planes.py",
            "    return np.int16(16) * q4 + qr\n",
            "    return (np.int8(16) * q4 + qr).astype(np.int16)\n",
        ),
        Mutant(
            "residual-clipped-by-the-reader",
            "nested_reconstruct",
            (),
            "a negative residual beside q4 = -8 is read as 0",
            "planes.py",
            "    return np.int16(16) * q4 + qr\n",
            "    return np.maximum(np.int16(16) * q4 + qr, np.int16(-128))\n",
        ),
    ),
    "a pair of products is at most 2·127·128 < 2¹⁵ in magnitude": (
        Mutant(
            "signed-pairs-saturate",
            "nested_linear",
            (),
            "sums of two signed products saturate at 16 bits",
            "nested.py",
            "    return xq[:, start:stop].astype(np.int64) @ "
            "codes[:, start:stop].T.astype(np.int64)\n",
            """\
    terms = xq[:, np.newaxis, start:stop].astype(np.int64) * codes[:, start:stop]
    pairs = terms[..., : terms.shape[2] // 2 * 2].reshape(*terms.shape[:2], -1, 2).sum(axis=3)
    odd = terms[..., terms.shape[2] // 2 * 2 :].sum(axis=2)
    saturated: NDArray[np.int64] = np.clip(pairs, -32768, 32767).sum(axis=2) + odd
    return saturated
""",
        ),
    ),
    "the mask removes what an arithmetic shift drags along, if it comes after the shift": (
        Mutant(
            "arithmetic-shift-and-mask",
            "unpack_words",
            (),
            "words are shifted as signed numbers, and then masked",
            "words.py",
            "    slots = words.view(np.uint32)[:, np.newaxis] >> _shifts(nbits)\n",
            "    slots = (words[:, np.newaxis] >> _shifts(nbits).view(np.int32)).view(np.uint32)\n",
        ),
    ),
}
"""By the reason why no valid input shows them."""

NOT_TESTED: Mapping[str, str] = {
    "offsets of 32 bits that overflow": "takes arrays of more than 2³¹ elements; the suite goes "
    "beyond 16 bits only",
    "NaN or rubbish behind the position, in padding or in unused scales that leaks by 0 · NaN": (
        "inputs of a call are finite; the largest numbers stand in for it"
    ),
    "a race that shows once in a million calls": "every call of the suite is made a few times",
    "a backend that is right in eager mode and wrong when compiled": "two backends for the suite: "
    "run it on each",
    "memory that is read beyond its end": "shows where it is unmapped, as a crash of the process, "
    "or under a sanitizer",
    "a cache that is reset instead of rolled back": "the operations have no state; it is a matter "
    "of the engine around them",
    "calls of zero rows": "no requirement speaks of them, except of no codes to pack",
}
"""Faults of backends that no test here looks for, and why."""
