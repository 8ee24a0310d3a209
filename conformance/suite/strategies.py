"""What the suite draws: shapes, dtypes and seeds within the claims of the backend.

Hypothesis draws a few small numbers, which shrink well and are printed with a failure; NumPy makes
the arrays from them. Each function here is a domain for `for_all`.
"""

from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar, get_args

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.dashq_data import DashqWeight, make_module, make_weight
from nibblespec.conformance.suite.gate import claimed, require
from nibblespec.conformance.suite.properties import Domain
from nibblespec.spec.operations import Capabilities, Codes, FloatDtype, Words

Case = TypeVar("Case")

BIT_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8)
FLOAT_DTYPES: tuple[FloatDtype, ...] = get_args(FloatDtype)
SCALE_ZERO_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
GROUP_SIZES = (128, 64, 32, 16, 8, 40, 12, 7, 3, 1)
"""Published ones first, then such as end inside a word."""

SEEDS = st.integers(0, 2**16)


def only(*cases: Case) -> Domain[Case]:
    """Make a domain of these cases and no others."""
    return Domain(cases, st.sampled_from(cases))


# --- packed words ---------------------------------------------------------------------------


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
    """Sequences that end at the end of a word, just before, just after and far behind it."""
    bit_widths = claimed(BIT_WIDTHS, capabilities.bit_widths, "a bit width")
    kinds = ("position", "random", "maximum")
    always = tuple(
        make_codes(nbits, count, kind, count)
        for nbits in bit_widths
        for kind in kinds
        for count in (1, 32 // nbits - 1, 32 // nbits, 32 // nbits + 1, 1001)
    )
    return Domain(
        always,
        st.builds(
            make_codes,
            st.sampled_from(bit_widths),
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
    bit_widths = claimed(BIT_WIDTHS, capabilities.bit_widths, "a bit width")

    def golden(nbits: int, words: tuple[int, int], sign: int) -> GoldenWords:
        codes = (np.arange(32 // nbits + 1) * sign - (sign < 0)) & (2**nbits - 1)
        return GoldenWords(nbits, codes.astype(np.uint8), np.array(words, np.uint32).view(np.int32))

    return only(
        *(golden(nbits, _ASCENDING[nbits], 1) for nbits in bit_widths),
        *(golden(nbits, _DESCENDING[nbits], -1) for nbits in bit_widths if nbits in _DESCENDING),
    )


# --- dashq ----------------------------------------------------------------------------------


def dashq_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """Packed weights with every kind of code, scale, zero point and padding."""
    bit_widths = claimed(BIT_WIDTHS, capabilities.bit_widths, "a bit width")
    dtypes = claimed(FLOAT_DTYPES, capabilities.dtypes, "a dtype")
    scale_dtypes = claimed(SCALE_ZERO_DTYPES, capabilities.scale_zero_dtypes, "a scale dtype")
    sizes = group_sizes(capabilities)

    def weight(
        nbits: int,
        rows: int,
        groups: int,
        size: int,
        padding: int,
        scale_dtype: str,
        linear_dtype: FloatDtype,
        dtype: FloatDtype,
        seed: int,
        start: int,
    ) -> DashqWeight:
        columns = groups * size
        cut = min(padding, columns - 1) if capabilities.padded_inputs else 0
        module = make_module(nbits, rows, groups, size, cut, scale_dtype, linear_dtype)
        return make_weight(module, dtype, seed, start)

    always = tuple(
        weight(
            nbits,
            rows=(1, 7, 33)[place % 3],
            groups=(5, 3, 1)[place % 3],
            size=sizes[place % len(sizes)],
            padding=(0, 1, 0, sizes[place % len(sizes)] + 1)[place % 4],
            scale_dtype=scale_dtypes[place % len(scale_dtypes)],
            linear_dtype=dtypes[(place + 1) % len(dtypes)],
            dtype=dtype,
            seed=place,
            start=0,
        )
        for place, (dtype, nbits) in enumerate(product(dtypes, bit_widths))
    )
    return Domain(
        always,
        st.builds(
            weight,
            st.sampled_from(bit_widths),
            st.sampled_from((1, 2, 3, 7, 33)),
            st.integers(1, 5),
            st.sampled_from(sizes),
            st.integers(0, 40),
            st.sampled_from(scale_dtypes),
            st.sampled_from(dtypes),
            st.sampled_from(dtypes),
            SEEDS,
            st.integers(0, 279),
        ),
    )


def group_sizes(capabilities: Capabilities) -> tuple[int, ...]:
    """Return the group sizes to draw from: the claimed ones, or a range of all kinds."""
    sizes = GROUP_SIZES if capabilities.group_sizes is None else capabilities.group_sizes
    require(bool(sizes), "a group size")
    return sizes
