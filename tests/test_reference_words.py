"""Packing of the reference: literal words, position-coded codes, and what is refused."""

import numpy as np
import pytest
from nibblespec.reference.words import codes_per_word, pack_words, unpack_words, word_count
from nibblespec.spec.operations import Codes, Words

WIDTHS = range(1, 9)


def words_of(*unsigned: int) -> Words:
    return np.array(unsigned, np.uint32).view(np.int32)


def position_coded(count: int, nbits: int) -> Codes:
    """Code i is i mod 2^b: a misplaced code differs from its neighbours."""
    codes: Codes = (np.arange(count) % 2**nbits).astype(np.uint8)
    return codes


def packed_bit_by_bit(codes: Codes, nbits: int) -> list[int]:
    """Pack with Python integers, one code at a time."""
    per_word = 32 // nbits
    words = [0] * -(-len(codes) // per_word)
    for i, code in enumerate(codes.tolist()):
        words[i // per_word] |= code << (nbits * (i % per_word))
    return words


LITERAL = [
    (1, [1, 0, 1, 1], [0b1101]),
    (1, [0] * 31 + [1], [0x80000000]),
    (2, [3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1], [0xC000001B, 1]),
    (3, [1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3], [0b00_010_001_000_111_110_101_100_011_010_001, 3]),
    (4, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [0x76543210, 0xFEDCBA98]),
    (5, [1, 2, 3, 4, 5, 31, 30], [0b00_11111_00101_00100_00011_00010_00001, 30]),
    (6, [1, 2, 3, 4, 63, 62], [0b00_111111_000100_000011_000010_000001, 62]),
    (7, [1, 2, 3, 127, 126], [0b0000_1111111_0000011_0000010_0000001, 126]),
    (8, [0x78, 0x56, 0x34, 0x92, 0xFF], [0x92345678, 0xFF]),
]


@pytest.mark.parametrize(("nbits", "codes", "words"), LITERAL)
def test_codes_pack_into_these_words(nbits: int, codes: list[int], words: list[int]) -> None:
    packed = pack_words(np.array(codes, np.uint8), nbits)
    assert packed.dtype == np.int32
    assert packed.view(np.uint32).tolist() == words


@pytest.mark.parametrize(("nbits", "codes", "words"), LITERAL)
def test_words_unpack_into_these_codes(nbits: int, codes: list[int], words: list[int]) -> None:
    unpacked = unpack_words(words_of(*words), nbits, len(codes))
    assert unpacked.dtype == np.uint8
    assert unpacked.tolist() == codes


@pytest.mark.parametrize("nbits", WIDTHS)
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 31, 32, 33, 1001])
def test_position_coded_codes_pack_as_one_by_one(nbits: int, count: int) -> None:
    codes = position_coded(count, nbits)
    packed = pack_words(codes, nbits)
    assert packed.view(np.uint32).tolist() == packed_bit_by_bit(codes, nbits)
    assert unpack_words(packed, nbits, count).tolist() == codes.tolist()


@pytest.mark.parametrize("nbits", WIDTHS)
def test_all_bits_set_unpack_to_the_largest_code_everywhere(nbits: int) -> None:
    count = 3 * codes_per_word(nbits)
    words = np.full(3, -1, np.int32)
    assert unpack_words(words, nbits, count).tolist() == [2**nbits - 1] * count


@pytest.mark.parametrize("nbits", WIDTHS)
def test_spare_and_tail_bits_are_ignored(nbits: int) -> None:
    count = 2 * codes_per_word(nbits) + 1
    codes = position_coded(count, nbits)
    holds_code = pack_words(np.full(count, 2**nbits - 1, np.uint8), nbits)
    dirty = pack_words(codes, nbits) | ~holds_code
    assert unpack_words(dirty, nbits, count).tolist() == codes.tolist()


def test_word_counts_are_those_of_the_specification() -> None:
    assert [codes_per_word(nbits) for nbits in WIDTHS] == [32, 16, 10, 8, 6, 5, 4, 4]
    assert [word_count(1001, nbits) for nbits in WIDTHS] == [32, 63, 101, 126, 167, 201, 251, 251]


def test_inputs_may_be_read_only_and_results_are_fresh() -> None:
    codes = position_coded(16, 4)
    codes.flags.writeable = False
    words = pack_words(codes, 4)
    words.flags.writeable = False
    unpacked = unpack_words(words, 4, 16)
    assert unpacked.flags.owndata
    assert unpacked.flags.writeable


def test_a_code_out_of_range_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"codes: expected elements in 0 … 7, found 8 at \[2\]"):
        pack_words(np.array([0, 7, 8, 9], np.uint8), 3)


@pytest.mark.parametrize("nbits", [0, 9, -1])
def test_a_width_out_of_range_is_refused(nbits: int) -> None:
    with pytest.raises(ValueError, match=rf"nbits: expected 1 … 8, found {nbits}"):
        pack_words(np.zeros(1, np.uint8), nbits)
    with pytest.raises(ValueError, match="nbits: expected 1 … 8"):
        unpack_words(np.zeros(1, np.int32), nbits, 1)


@pytest.mark.parametrize("nbits", [4.0, True, "4", None])
def test_a_width_that_is_no_integer_is_refused(nbits: object) -> None:
    with pytest.raises(TypeError, match="nbits: expected an integer"):
        pack_words(np.zeros(1, np.uint8), nbits)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", ">u2", "bool"])
def test_codes_of_another_dtype_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="codes: expected dtype uint8, found"):
        pack_words(np.zeros(4, dtype), 4)


def test_codes_that_are_no_array_are_refused() -> None:
    with pytest.raises(TypeError, match="codes: expected a NumPy array, found list"):
        pack_words([1, 2], 4)  # type: ignore[arg-type]  # wrong on purpose


def test_codes_of_another_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"codes: expected shape \[n\], found \[2, 2\]"):
        pack_words(np.zeros((2, 2), np.uint8), 4)


@pytest.mark.parametrize("dtype", ["uint32", "int64", ">i4"])
def test_words_of_another_dtype_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="words: expected dtype int32, found"):
        unpack_words(np.zeros(1, dtype), 4, 8)


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 1), ()])
def test_a_wrong_number_of_words_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"words: expected shape \[1\], found"):
        unpack_words(np.zeros(shape, np.int32), 3, 10)


def test_a_wrong_count_is_refused() -> None:
    with pytest.raises(ValueError, match="count: expected at least 0, found -1"):
        unpack_words(np.zeros(0, np.int32), 3, -1)
    with pytest.raises(TypeError, match="count: expected an integer"):
        unpack_words(np.zeros(1, np.int32), 3, 1.0)  # type: ignore[arg-type]  # wrong on purpose
