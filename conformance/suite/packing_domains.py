"""Domains of packing: sequences of codes, and words written down by hand."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.strategies import SEEDS, bit_widths, only
from nibblespec.spec.operations import Capabilities, Codes, Words


@dataclass(frozen=True, slots=True)
class CodeSequence:
    """Codes to pack, or to find in words."""

    nbits: int
    count: int
    kind: str
    seed: int
    codes: Codes = field(repr=False)


def make_codes(nbits: int, count: int, kind: str, seed: int) -> CodeSequence:
    """Make a sequence of codes of one kind: position, random or maximum."""
    top = 2**nbits - 1
    codes = {
        "position": np.arange(count) & top,
        "random": np.random.default_rng(seed).integers(0, top, count, endpoint=True),
        "maximum": np.full(count, top),
    }[kind]
    return CodeSequence(nbits, count, kind, seed, codes.astype(np.uint8))


def code_sequences(capabilities: Capabilities) -> Domain[CodeSequence]:
    """Sequences that end at the end of a word, just before, just after, far behind it; and none."""
    widths = bit_widths(capabilities)
    kinds = ("position", "random", "maximum")
    always = tuple(
        make_codes(nbits, count, kind, count)
        for nbits in widths
        for kind in kinds
        for count in (0, 1, 32 // nbits - 1, 32 // nbits, 32 // nbits + 1, 1001)
    )
    return Domain(
        always,
        st.builds(
            make_codes,
            st.sampled_from(widths),
            st.integers(1, 300),
            st.sampled_from(kinds),
            SEEDS,
        ),
    )


@dataclass(frozen=True, slots=True)
class GoldenWords:
    """Codes and their words, written down by hand from the definition."""

    nbits: int
    codes: Codes
    words: Words


_ASCENDING = {
    1: (0xAAAAAAAA, 0x0),
    2: (0xE4E4E4E4, 0x0),
    3: (0x08FAC688, 0x2),
    4: (0x76543210, 0x8),
    5: (0x0A418820, 0x6),
    6: (0x040C2040, 0x5),
    7: (0x00608080, 0x4),
    8: (0x03020100, 0x4),
}
"""The first word of the codes 0, 1, 2 … (mod 2**b) and a second word with the code after it."""

_DESCENDING = {
    1: (0x55555555, 0x1),
    2: (0x1B1B1B1B, 0x3),
    4: (0x89ABCDEF, 0x7),
    8: (0xFCFDFEFF, 0xFB),
}
"""The same for 2**b - 1 and downwards, where bit 31 belongs to a code."""


def golden_words(capabilities: Capabilities) -> Domain[GoldenWords]:
    """Golden words of every claimed width."""
    widths = bit_widths(capabilities)

    def golden(nbits: int, words: tuple[int, int], sign: int) -> GoldenWords:
        codes = (np.arange(32 // nbits + 1) * sign - (sign < 0)) & (2**nbits - 1)
        return GoldenWords(nbits, codes.astype(np.uint8), np.array(words, np.uint32).view(np.int32))

    return only(
        *(golden(nbits, _ASCENDING[nbits], 1) for nbits in widths),
        *(golden(nbits, _DESCENDING[nbits], -1) for nbits in widths if nbits in _DESCENDING),
    )
