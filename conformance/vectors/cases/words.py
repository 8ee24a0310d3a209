"""Cases of pack_words and unpack_words."""

from collections.abc import Iterator

import numpy as np
from nibblespec.conformance.vectors.case import Case, Exact, Tensor
from nibblespec.conformance.vectors.streams import integers, raw
from nibblespec.reference.words import codes_per_word, pack_words, unpack_words, word_count
from nibblespec.spec.operations import Codes, Words

ORDER = ("DQ1-PACKING-ORDER", "DQ1-PACKING-COUNT")


def cases() -> Iterator[Case]:
    """Yield codes and words of every bit width."""
    for nbits in range(1, 9):
        yield from _packing(nbits)
        yield from _unpacking(nbits)
    yield _pack("int4-empty", "no codes", np.zeros(0, np.uint8), 4, *ORDER)
    yield _unpack("int4-empty", "no codes", np.zeros(0, np.int32), 4, 0, *ORDER)


def _packing(nbits: int) -> Iterator[Case]:
    highest, per_word = 2**nbits - 1, codes_per_word(nbits)
    positions = _positions(nbits)
    yield _pack(
        f"int{nbits}-positions",
        "code i is i mod 2^b, the last word is not full",
        positions,
        nbits,
        *ORDER,
        "DQ1-PACKING-SPARE-WRITTEN",
    )
    yield _pack(
        f"int{nbits}-highest",
        "the highest code everywhere: bit 31 is set where the code at the top reaches it",
        np.full(2 * per_word, highest, np.uint8),
        nbits,
        "DQ1-PACKING-SIGN",
        *ORDER,
    )
    yield _pack(
        f"int{nbits}-one",
        "one code",
        np.full(1, highest, np.uint8),
        nbits,
        "DQ1-PACKING-COUNT",
        "DQ1-PACKING-SPARE-WRITTEN",
    )
    name = f"pack_words/int{nbits}-any"
    any_codes = integers(name, (7 * per_word - 2,), 0, highest).astype(np.uint8)
    yield _pack(f"int{nbits}-any", "codes of any size", any_codes, nbits, *ORDER)


def _unpacking(nbits: int) -> Iterator[Case]:
    per_word = codes_per_word(nbits)
    positions = _positions(nbits)
    yield _unpack(
        f"int{nbits}-positions",
        "code i is i mod 2^b, the last word is not full",
        pack_words(positions, nbits),
        nbits,
        len(positions),
        *ORDER,
    )
    yield _unpack(
        f"int{nbits}-all-bits",
        "every bit is set, bit 31 and the bits that hold no code too",
        np.full(3, -1, np.int32),
        nbits,
        2 * per_word + 1,
        "DQ1-PACKING-SIGN",
        "DQ1-PACKING-SPARE-READ",
    )
    count = 6 * per_word + 1
    words = raw(f"unpack_words/int{nbits}-any", word_count(count, nbits)).astype(np.uint32)
    yield _unpack(
        f"int{nbits}-any",
        "any words, with something in the bits that hold no code",
        words.view(np.int32),
        nbits,
        count,
        *ORDER,
        "DQ1-PACKING-SPARE-READ",
        "DQ1-PACKING-SIGN",
    )


def _positions(nbits: int) -> Codes:
    count = 2**nbits + 2 * codes_per_word(nbits) + 1
    codes: Codes = (np.arange(count) % 2**nbits).astype(np.uint8)
    return codes


def _pack(name: str, shows: str, codes: Codes, nbits: int, *requirements: str) -> Case:
    case_id = f"pack_words/{name}"
    return Case(
        id=case_id,
        shows=shows,
        requirements=requirements,
        parameters={"nbits": nbits},
        inputs={"codes": Tensor(f"{case_id}/codes", codes)},
        outputs={"words": Exact(pack_words(codes, nbits))},
    )


def _unpack(
    name: str, shows: str, words: Words, nbits: int, count: int, *requirements: str
) -> Case:
    case_id = f"unpack_words/{name}"
    return Case(
        id=case_id,
        shows=shows,
        requirements=requirements,
        parameters={"nbits": nbits, "count": count},
        inputs={"words": Tensor(f"{case_id}/words", words)},
        outputs={"codes": Exact(unpack_words(words, nbits, count))},
    )
