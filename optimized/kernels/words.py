"""dashq words: P = ⌊32/b⌋ codes per 32-bit word, the first in the lowest bits.

    word, b = 4:   | c7 | c6 | c5 | c4 | c3 | c2 | c1 | c0 |      P = 8, a power of two: ALIGNED
    word, b = 3:   | 2 spare bits | c9 | c8 | … | c1 | c0 |       P = 10

Codes of a row are read by `code_tile` in one of two ways. Where P is a power of two and rows
begin with a word, whole words are loaded and spread in registers. Otherwise every code loads the
word it lies in: the same words come from the cache P times, but any width and any row do.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.tiles import flat_block
from nibblespec.optimized.layout import codes_per_word, word_count


def rows_are_aligned(rows: int, columns: int, nbits: int) -> bool:
    """Say whether P is a power of two and each of `rows` rows of codes begins with a word."""
    return 32 % nbits == 0 and (rows == 1 or columns % codes_per_word(nbits) == 0)


@triton.jit
def spread_words(word: tl.tensor, NBITS: tl.constexpr) -> tl.tensor:
    """Return the codes of uint32 words [...]: uint32 [..., 2, …, 2], P of each, P a power of two.

    By halves and halves of halves, so that a thread that holds a word comes to hold all of its
    codes: the new axes, read as one, count the codes of a word.
    """
    if NBITS == 1:
        word = tl.join(word, word >> 16)
    if NBITS <= 2:
        word = tl.join(word, word >> 8 * NBITS)
    if NBITS <= 4:
        word = tl.join(word, word >> 4 * NBITS)
    word = tl.join(word, word >> 2 * NBITS)
    word = tl.join(word, word >> NBITS)
    return word & ((1 << NBITS) - 1)


@triton.jit
def code_tile(
    words: tl.tensor,
    row: tl.tensor,
    tile: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    row_words: tl.tensor,
    NBITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> tl.tensor:
    """Return codes (row[i], tile · BLOCK + j), j = 0 … BLOCK - 1: uint32 [R, BLOCK].

    words: *int32, the codes of a matrix [rows, columns]. row: int64 [R]. tile: int64 where columns
    may be. ALIGNED: as `rows_are_aligned` says; then a row has `row_words` words, a parameter by
    itself, and places are counted in tiles, so that the compiler sees what divides them and loads
    128 bits. What lies outside the matrix is 0 or another code; only `words` is read.
    """
    if ALIGNED:
        place = tile * (BLOCK * NBITS // 32) + tl.arange(0, BLOCK * NBITS // 32)
        inside = (row < rows)[:, None] & (place < row_words)[None, :]
        word = tl.load(words + row[:, None] * row_words + place[None, :], mask=inside, other=0)
        spread = spread_words(word.to(tl.uint32, bitcast=True), NBITS)
        return tl.reshape(spread, (row.shape[0], BLOCK))
    else:
        # One division in 64 bits per row; within the tile 32 bits are enough.
        first = tile * BLOCK
        start = row * columns + first
        start_word = start // (32 // NBITS)
        phase = (start - start_word * (32 // NBITS)).to(tl.int32)
        column = tl.arange(0, BLOCK)
        place = phase[:, None] + column[None, :]
        inside = (row < rows)[:, None] & (first + column < columns)[None, :]
        word_place = place // (32 // NBITS)
        word = tl.load(words + (start_word[:, None] + word_place), mask=inside, other=0)
        shift = (place - word_place * (32 // NBITS)) * NBITS
        return (word.to(tl.uint32, bitcast=True) >> shift.to(tl.uint32)) & ((1 << NBITS) - 1)


@triton.jit
def code_to_float32(code: tl.tensor) -> tl.tensor:
    """Convert uint32 codes below 2**23 to float32: exact.

    As the mantissa of 2**23 + code, which is an `or` and a subtraction at full rate; GPUs convert
    integers at a fraction of that.
    """
    return (code | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0


@triton.jit
def unpack_words_kernel(
    words: tl.tensor,
    codes: tl.tensor,
    count: tl.tensor,
    word_count: tl.tensor,
    NBITS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write uint8 codes [count]: one row of a matrix, BLOCK codes per program."""
    row = tl.zeros((1,), tl.int64)
    tile = tl.program_id(0).to(tl.int64)
    code = code_tile(words, row, tile, 1, count, word_count, NBITS, BLOCK, 32 % NBITS == 0)
    place = tile * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(codes + place, code.to(tl.uint8), mask=place < count)


@triton.jit
def pack_words_kernel(
    codes: tl.tensor,
    words: tl.tensor,
    count: tl.tensor,
    word_count: tl.tensor,
    NBITS: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write int32 words [⌈count / P⌉], BLOCK words per program; SLOTS: P as a power of two."""
    word = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.arange(0, SLOTS)
    place = word[:, None] * (32 // NBITS) + slot[None, :]
    inside = (slot < 32 // NBITS)[None, :] & (place < count)
    code = tl.load(codes + place, mask=inside, other=0).to(tl.uint32)
    # Codes have no bits in common: their sum is their union.
    shift = tl.where(slot < 32 // NBITS, slot * NBITS, 0).to(tl.uint32)
    packed = tl.sum(code << shift[None, :], axis=1)
    tl.store(words + word, packed.to(tl.int32, bitcast=True), mask=word < word_count)


def unpack_words(words: torch.Tensor, nbits: int, count: int) -> torch.Tensor:
    """Unpack the first `count` codes of int32 [⌈count / P⌉] words into uint8 [count].

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and
    DQ1-PACKING-SPARE-READ.
    """
    codes = torch.empty(count, dtype=torch.uint8, device=words.device)
    block = flat_block(count)
    launch(
        unpack_words_kernel,
        triton.cdiv(count, block),
        words.contiguous(),
        codes,
        count,
        words.numel(),
        exact=True,
        NBITS=nbits,
        BLOCK=block,
    )
    return codes


def pack_words(codes: torch.Tensor, nbits: int) -> torch.Tensor:
    """Pack uint8 [n] codes in 0 … 2^b - 1 into int32 [⌈n / P⌉] words.

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and
    DQ1-PACKING-SPARE-WRITTEN.
    """
    count = codes.numel()
    words = torch.empty(word_count(count, nbits), dtype=torch.int32, device=codes.device)
    slots = triton.next_power_of_2(codes_per_word(nbits))
    block = max(1, flat_block(count) // slots)
    launch(
        pack_words_kernel,
        triton.cdiv(words.numel(), block),
        codes.contiguous(),
        words,
        count,
        words.numel(),
        exact=True,
        NBITS=nbits,
        SLOTS=slots,
        BLOCK=block,
    )
    return words
