"""Packing of dashq codes: ⌊32/b⌋ codes per 32-bit word, the first in the lowest bits.

    word, b = 4:   bit 31                            bit 0
                   | c7 | c6 | c5 | c4 | c3 | c2 | c1 | c0 |

    word, b = 3:   | 2 spare bits | c9 | c8 | … | c1 | c0 |

A code never straddles words. The sequence of codes is a matrix in row-major order, and a word may
hold the end of one row and the beginning of the next.
"""

import numpy as np
from nibblespec.reference.arguments import check_array, check_integer, check_range
from nibblespec.spec.operations import Codes, Words
from numpy.typing import NDArray


def codes_per_word(nbits: int) -> int:
    """Return P = ⌊32/b⌋: 32, 16, 10, 8, 6, 5, 4, 4 for b = 1 … 8."""
    check_integer(nbits, "nbits", 1, 8)
    return 32 // nbits


def word_count(count: int, nbits: int) -> int:
    """Return ⌈count / P⌉, the words that `count` codes take (DQ1-PACKING-COUNT)."""
    return -(-count // codes_per_word(nbits))


def pack_words(codes: Codes, nbits: int) -> Words:
    """Pack uint8 [n] codes in 0 … 2^b − 1 into int32 [⌈n / P⌉] words.

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and
    DQ1-PACKING-SPARE-WRITTEN. Raises TypeError for a wrong dtype, ValueError for a wrong rank or
    bit width or a code out of range.
    """
    per_word = codes_per_word(nbits)
    check_array(codes, "codes", "uint8", ("n",))
    check_range(codes, "codes", 0, 2**nbits - 1)
    slots = np.zeros((word_count(codes.size, nbits), per_word), np.uint32)
    slots.reshape(-1)[: codes.size] = codes
    words: NDArray[np.uint32] = np.bitwise_or.reduce(slots << _shifts(nbits), axis=1)
    return words.view(np.int32)


def unpack_words(words: Words, nbits: int, count: int) -> Codes:
    """Unpack the first `count` codes of int32 [⌈count / P⌉] words into uint8 [count].

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and
    DQ1-PACKING-SPARE-READ. Raises TypeError for a wrong dtype, ValueError for a wrong rank, bit
    width or number of words.
    """
    check_integer(nbits, "nbits", 1, 8)
    check_integer(count, "count", 0)
    check_array(words, "words", "int32", (word_count(count, nbits),))
    # Unsigned, so that the shift brings zeros in whatever bit 31 is.
    slots = words.view(np.uint32)[:, np.newaxis] >> _shifts(nbits)
    codes = (slots & np.uint32(2**nbits - 1)).astype(np.uint8)
    return codes.reshape(-1)[:count].copy()


def _shifts(nbits: int) -> NDArray[np.uint32]:
    """Return uint32 [P]: the lowest bit of each code of a word."""
    return np.arange(codes_per_word(nbits), dtype=np.uint32) * np.uint32(nbits)
