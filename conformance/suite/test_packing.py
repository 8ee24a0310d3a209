"""dashq-packed-linear, chapter 6: packing."""

import numpy as np
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.dashq_data import pack, spare_bits
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.conformance.suite.packing_domains import (
    CodeSequence,
    GoldenWords,
    code_sequences,
    golden_words,
)
from nibblespec.conformance.suite.properties import for_all
from nibblespec.spec.operations import PackWords, UnpackWords


@requirement("DQ1-PACKING-ORDER")
@for_all(golden_words)
def test_golden_words_are_packed(case: GoldenWords, pack_words: PackWords) -> None:
    """The codes 0, 1, 2 … fill a word from its lowest bits."""
    expect_equal("pack_words", pack_words(case.codes, case.nbits), case.words)


@requirement("DQ1-PACKING-ORDER")
@for_all(golden_words)
def test_golden_words_are_unpacked(case: GoldenWords, unpack_words: UnpackWords) -> None:
    """A reader finds the codes 0, 1, 2 … from the lowest bits up."""
    found = unpack_words(case.words, case.nbits, case.codes.size)
    expect_equal("unpack_words", found, case.codes)


@requirement("DQ1-PACKING-ORDER")
@for_all(code_sequences)
def test_every_code_goes_to_its_word_and_bits(case: CodeSequence, pack_words: PackWords) -> None:
    """Code i is in word i // P at bit b * (i mod P), by Python's integers."""
    per_word = 32 // case.nbits
    words = [0] * -(-case.count // per_word)
    for index, code in enumerate(case.codes.tolist()):
        words[index // per_word] |= code << (case.nbits * (index % per_word))
    expected = np.array(words, np.uint32).view(np.int32)
    expect_equal("pack_words", pack_words(case.codes, case.nbits), expected)


@requirement("DQ1-PACKING-ORDER")
@for_all(code_sequences)
def test_every_code_is_read_from_its_word_and_bits(
    case: CodeSequence, unpack_words: UnpackWords
) -> None:
    """Reading undoes packing, which is checked on its own."""
    words = pack(case.codes, case.nbits)
    found = unpack_words(words, case.nbits, case.count)
    expect_equal("unpack_words", found, case.codes)


@requirement("DQ1-PACKING-COUNT")
@for_all(code_sequences)
def test_no_word_more_or_less_than_the_codes_need(
    case: CodeSequence, pack_words: PackWords
) -> None:
    """N codes take ceil(n / P) words: 3-bit codes are not packed densely."""
    needed = -(-case.count // (32 // case.nbits))
    found = pack_words(case.codes, case.nbits)
    if found.shape != (needed,):
        raise Violation(f"pack_words: expected {needed} words, found {list(found.shape)}")


@requirement("DQ1-PACKING-SIGN")
@for_all(code_sequences)
def test_a_word_with_bit_31_set_is_negative(case: CodeSequence, pack_words: PackWords) -> None:
    """The 32 bits stay what they are: a number beyond int32 does not saturate."""
    expect_equal("pack_words", pack_words(case.codes, case.nbits), pack(case.codes, case.nbits))


@requirement("DQ1-PACKING-SIGN")
@for_all(code_sequences)
def test_bit_31_of_a_word_is_an_ordinary_bit(case: CodeSequence, unpack_words: UnpackWords) -> None:
    """A negative word unpacks as the unsigned word does: no shift drags the sign along."""
    words = pack(case.codes, case.nbits) | np.int32(-(2**31))
    at_bit_31 = 32 // case.nbits - 1 if 32 % case.nbits == 0 else None
    expected = case.codes.copy()
    if at_bit_31 is not None:
        expected[at_bit_31 :: at_bit_31 + 1] |= np.uint8(1 << (case.nbits - 1))
    found = unpack_words(words, case.nbits, case.count)
    expect_equal("unpack_words", found, expected)


@requirement("DQ1-PACKING-SPARE-WRITTEN")
@for_all(code_sequences)
def test_bits_without_a_code_are_written_as_zero(case: CodeSequence, pack_words: PackWords) -> None:
    """The top bits of odd widths and the tail of the last word are zero."""
    found = pack_words(case.codes, case.nbits) & spare_bits(case.count, case.nbits)
    expect_equal("pack_words, bits without a code", found, np.zeros_like(found))


@requirement("DQ1-PACKING-SPARE-READ")
@for_all(code_sequences)
def test_bits_without_a_code_are_ignored(case: CodeSequence, unpack_words: UnpackWords) -> None:
    """Ones in every spare bit and in the tail change nothing."""
    words = pack(case.codes, case.nbits) | spare_bits(case.count, case.nbits)
    found = unpack_words(words, case.nbits, case.count)
    expect_equal("unpack_words", found, case.codes)
