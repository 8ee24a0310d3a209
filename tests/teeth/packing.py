"""Faults of packing: order, width, sign and tail of 32-bit words."""

from tests.teeth.mutant import Mutant

UNSIGNED_SHIFT = """\
    slots = words.view(np.uint32)[:, np.newaxis] >> _shifts(nbits)
    codes = (slots & np.uint32(2**nbits - 1)).astype(np.uint8)
"""
SHIFTS = "np.arange(codes_per_word(nbits), dtype=np.uint32) * np.uint32(nbits)"
STORED = "    slots.reshape(-1)[: codes.size] = codes\n"
PACKED = "    return words.view(np.int32)\n"
UNPACKED = "    return codes.reshape(-1)[:count].copy()\n"
IN_ROWS = "    codes = unpack_words(words, module.nbits, rows * columns)\n"


def words(
    name: str, operation: str, breaks: tuple[str, ...], fault: str, old: str, new: str
) -> Mutant:
    """Change words.py."""
    return Mutant(name, operation, breaks, fault, "words.py", old, new)


MUTANTS = (
    words(
        "first-code-in-the-top-bits",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "codes fill a word from its most significant bits down, in packer and reader alike",
        SHIFTS,
        f"({SHIFTS})[::-1]",
    ),
    words(
        "pairs-of-codes-exchanged",
        "pack_words",
        ("DQ1-PACKING-ORDER",),
        "the two nibbles of each byte are exchanged, in packer and reader alike",
        SHIFTS,
        f"({SHIFTS}) ^ np.uint32(4 * (nbits == 4))",
    ),
    words(
        "interleaved-codes",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "4-bit codes in AWQ's order 0 2 4 6 1 3 5 7",
        SHIFTS,
        f"({SHIFTS})[[0, 4, 1, 5, 2, 6, 3, 7] if nbits == 4 else slice(None)]",
    ),
    words(
        "bytes-of-the-word-reversed",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "words are read as big-endian",
        "words.view(np.uint32)[:, np.newaxis]",
        "words.view(np.uint32).byteswap()[:, np.newaxis]",
    ),
    words(
        "dense-3-bit-reader",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "codes straddle words: 32 codes of 3 bits in 3 words",
        UNSIGNED_SHIFT,
        """\
    dense = np.unpackbits(words.view(np.uint8), bitorder="little")[: count * nbits]
    codes = np.packbits(dense.reshape(count, nbits), axis=1, bitorder="little")
""",
    ),
    words(
        "dense-3-bit-packer",
        "pack_words",
        ("DQ1-PACKING-COUNT", "NUM-OUTPUT-FORM"),
        "codes straddle words: n·b bits take ceil(n·b / 32) words",
        PACKED,
        """\
    dense = np.unpackbits(codes[:, np.newaxis], axis=1, count=nbits, bitorder="little").reshape(-1)
    dense = np.append(dense, np.zeros(-dense.size % 32, np.uint8))
    return np.packbits(dense, bitorder="little").view(np.int32)
""",
    ),
    words(
        "words-rounded-down",
        "pack_words",
        ("DQ1-PACKING-COUNT", "NUM-OUTPUT-FORM"),
        "the last word is dropped where it is not full",
        PACKED,
        "    return words.view(np.int32)[: max(1, codes.size // per_word)].copy()\n",
    ),
    words(
        "words-for-a-whole-byte",
        "pack_words",
        ("DQ1-PACKING-COUNT", "NUM-OUTPUT-FORM"),
        "the number of words is rounded up to an even one",
        "np.zeros((word_count(codes.size, nbits), per_word), np.uint32)",
        "np.zeros((-(-word_count(codes.size, nbits) // 2) * 2, per_word), np.uint32)",
    ),
    words(
        "tail-of-the-last-word-dropped",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "codes of a word that is not full are never read",
        UNPACKED,
        "    codes[count // codes_per_word(nbits) :] = 0\n" + UNPACKED,
    ),
    words(
        "arithmetic-shift",
        "unpack_words",
        ("DQ1-PACKING-SIGN",),
        "masked before an arithmetic shift, which drags bit 31 along",
        UNSIGNED_SHIFT,
        """\
    masks = np.uint32(2**nbits - 1) << _shifts(nbits)
    slots = words[:, np.newaxis] & masks.view(np.int32)
    codes = (slots >> _shifts(nbits).view(np.int32)).astype(np.uint8)
""",
    ),
    words(
        "negative-words-clamped",
        "unpack_words",
        ("DQ1-PACKING-SIGN",),
        "a negative word is taken for 0",
        "words.view(np.uint32)[:, np.newaxis]",
        "np.maximum(words, 0).view(np.uint32)[:, np.newaxis]",
    ),
    words(
        "words-saturate",
        "pack_words",
        ("DQ1-PACKING-SIGN",),
        "a word with bit 31 set is converted to int32 by value, and saturates",
        PACKED,
        "    return np.minimum(words, 0x7FFFFFFF).astype(np.int32)\n",
    ),
    words(
        "no-mask-after-the-shift",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "what is above a code in its word stays in it",
        "(slots & np.uint32(2**nbits - 1))",
        "slots",
    ),
    words(
        "codes-sign-extended",
        "pack_words",
        ("DQ1-PACKING-ORDER",),
        "codes of 8 bits are widened as signed numbers and flood the codes above",
        STORED,
        "    slots.reshape(-1)[: codes.size] = codes.view(np.int8)\n",
    ),
    words(
        "codes-read-as-signed",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "the codes of a reader are two's complement, its top half negative",
        UNPACKED,
        "    codes = (codes ^ (1 << nbits >> 1)) - np.uint8(1 << nbits >> 1)\n" + UNPACKED,
    ),
    words(
        "tail-filled-with-ones",
        "pack_words",
        ("DQ1-PACKING-SPARE-WRITTEN",),
        "the tail of the last word holds codes of 2^b - 1",
        STORED,
        STORED + "    slots.reshape(-1)[codes.size :] = 2**nbits - 1\n",
    ),
    words(
        "spare-bits-sign-extended",
        "pack_words",
        ("DQ1-PACKING-SPARE-WRITTEN",),
        "spare bits above the last code repeat its top bit",
        "    words: NDArray[np.uint32] = np.bitwise_or.reduce(slots << _shifts(nbits), axis=1)\n",
        """\
    words: NDArray[np.uint32] = np.bitwise_or.reduce(slots << _shifts(nbits), axis=1)
    words |= np.where(slots[:, -1] >> (nbits - 1), ~np.uint32(0) << (nbits * per_word - 1), 0)
""",
    ),
    words(
        "spare-bits-read",
        "unpack_words",
        ("DQ1-PACKING-SPARE-READ",),
        "the last code of a word is all that is left after the shift",
        UNPACKED,
        "    codes[:, -1] = slots[:, -1]\n" + UNPACKED,
    ),
    Mutant(
        "rows-begin-on-words",
        "dashq_reconstruct",
        ("DQ1-PACKING-ROWS",),
        "each row is taken to begin a word of its own",
        "dashq.py",
        IN_ROWS,
        """\
    per_row = -(-columns // (32 // module.nbits))
    codes = unpack_words(
        np.resize(words, rows * per_row), module.nbits, rows * per_row * (32 // module.nbits)
    ).reshape(rows, -1)[:, :columns]
""",
    ),
    Mutant(
        "matrix-packed-by-columns",
        "dashq_reconstruct",
        ("DQ1-PACKING-ROWS",),
        "the sequence of codes is taken for column-major",
        "dashq.py",
        "    q = codes.reshape(rows, columns).astype(np.float32)\n",
        "    q = codes.reshape(columns, rows).T.astype(np.float32)\n",
    ),
    Mutant(
        "rows-of-full-words",
        "dashq_reconstruct",
        ("DQ1-PACKING-ROWS",),
        "a row is read as floor(Kq / P) words, its tail as zeros",
        "dashq.py",
        IN_ROWS,
        IN_ROWS
        + """\
    per_word = 32 // module.nbits
    codes.reshape(rows, columns)[:, max(1, columns // per_word) * per_word :] = 0
""",
    ),
    words(
        "codes-counted-in-16-bits",
        "unpack_words",
        ("DQ1-PACKING-ORDER",),
        "the index of a code has 16 bits: code 65536 is code 0 again",
        UNPACKED,
        "    codes = codes.reshape(-1)\n    codes[65536:] = codes[: max(0, codes.size - 65536)]\n"
        + UNPACKED,
    ),
    words(
        "a-word-for-no-codes",
        "pack_words",
        ("DQ1-PACKING-COUNT", "NUM-OUTPUT-FORM"),
        "no codes take one word",
        "np.zeros((word_count(codes.size, nbits), per_word), np.uint32)",
        "np.zeros((max(1, word_count(codes.size, nbits)), per_word), np.uint32)",
    ),
)
