"""dashq codes in 32-bit words."""

import torch
from nibblespec.optimized.layout import codes_per_word, word_count
from torch import Tensor


def pack_words(codes: Tensor, nbits: int) -> Tensor:
    """Pack codes uint8 [n] into int32 [⌈n/P⌉].

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and
    DQ1-PACKING-SPARE-WRITTEN. Raises ValueError for a code that does not fit nbits.
    """
    if codes.numel() and int(codes.max()) >= 1 << nbits:
        raise ValueError(f"codes: expected at most {(1 << nbits) - 1}, found {int(codes.max())}")
    count = word_count(codes.numel(), nbits)
    slots = torch.zeros(count * codes_per_word(nbits), dtype=torch.int64, device=codes.device)
    slots[: codes.numel()] = codes
    shifts = _shifts(nbits, codes.device).to(torch.int64)
    words = (slots.view(count, codes_per_word(nbits)) << shifts).sum(
        dim=1
    )  # no two codes share a bit
    # The conversion to int32 keeps the lower 32 bits.
    return words.to(torch.int32)


def unpack_words(words: Tensor, nbits: int, count: int) -> Tensor:
    """Unpack the first `count` codes of int32 words into uint8 [count].

    Implements DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN and DQ1-PACKING-SPARE-READ.
    """
    # The shift brings in copies of the sign; the mask comes after it.
    slots = (words[:, None] >> _shifts(nbits, words.device)) & ((1 << nbits) - 1)
    return slots.to(torch.uint8).view(-1)[:count]


def _shifts(nbits: int, device: torch.device) -> Tensor:
    """Return int32 [P]: the lowest bit of each code of a word."""
    return torch.arange(codes_per_word(nbits), dtype=torch.int32, device=device) * nbits
