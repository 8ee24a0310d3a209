"""Scales, and whether the codes of groups whose scale is zero were meant to say something."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from nibblespec.conformance.artifacts.reading.blocks import (
    Bytes,
    Run,
    StoppedError,
    TensorBytes,
    read_into,
    reading,
)
from nibblespec.conformance.artifacts.scanning.facts import Facts, Hit, first_hit
from nibblespec.conformance.artifacts.scanning.float_contents import (
    FLOATS,
    lanes_of,
    magnitudes_of,
    not_finite,
)
from numpy.typing import NDArray

WINDOW = 2**18
"""Codes that are unpacked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Packed codes of a module: those of each group follow those of the one before."""

    tensors: tuple[TensorBytes, ...]
    nbits: int
    word_bytes: int
    """Bytes of a word, which holds as many codes as fit, the first one lowest."""
    group: int
    """Codes in a group."""
    neutral: int | None = None
    """The code that means zero, if there is one; without it, any code will do for a group."""


def scan_scales(
    blocks: tuple[Bytes, ...], position: int, run: Run, *, dtype: str, codes: Codes | None
) -> Facts:
    """Find scales that are not finite, negative ones, and groups of scale 0 with other codes.

    Without `codes`, the groups are not looked at. Raises OSError and StoppedError as `read_blocks`.
    """
    bits = FLOATS[dtype]
    lanes = lanes_of(blocks[0], bits)
    at, sign = position // bits.size, bits.magnitude + 1
    magnitudes = magnitudes_of(lanes, bits)
    hits = not_finite(lanes, magnitudes, at, bits)
    if lanes.max() > sign and (below := (lanes > sign) & (magnitudes < bits.limit)).any():
        hits["negative"] = first_hit(below, lanes, at)
    if codes is not None and magnitudes.min() == 0:
        mixed = mixed_groups(magnitudes == 0, at, codes, run)
        hits.update({"mixed": mixed} if mixed else {})
    every, some = np.bitwise_and.reduce(lanes), np.bitwise_or.reduce(lanes)
    return Facts(hits=hits, every=(int(every),), some=(int(some),))


def mixed_groups(zero: NDArray[np.bool_], first: int, codes: Codes, run: Run) -> Hit | None:
    """Find groups of scale 0 whose codes differ from each other, or from the neutral one.

    `zero` marks groups from number `first` on. Raises OSError and StoppedError as `read_blocks`.
    """
    step = max(1, WINDOW // codes.group)
    hit: Hit | None = None
    for start in range(0, len(zero), step):
        part = zero[start : start + step]
        if not part.any():
            continue
        mixed = part & _mixed(first + start, len(part), codes, run)
        if mixed.any():
            at = hit.first if hit else first + start + int(mixed.argmax())
            hit = Hit((hit.count if hit else 0) + int(np.count_nonzero(mixed)), at)
    return hit


def _mixed(first: int, groups: int, codes: Codes, run: Run) -> NDArray[np.bool_]:
    """Say of each of some groups whether its codes differ."""
    found = np.zeros(groups, np.bool_)
    begin, end = first * codes.group, (first + groups) * codes.group
    for tensor in codes.tensors:
        usual: Bytes | int | None = codes.neutral
        for piece in _pieces(tensor, begin, end, codes, run):
            table = piece.reshape(groups, -1)
            usual = table[:, :1] if usual is None else usual
            found |= (table != usual).any(axis=1)
    return found


def _pieces(tensor: TensorBytes, begin: int, end: int, codes: Codes, run: Run) -> Iterator[Bytes]:
    """Unpack codes begin … end; more than one piece only where a single group is that long."""
    per_word = 8 * codes.word_bytes // codes.nbits
    for start in range(begin, end, WINDOW):
        if run.stop.is_set():
            raise StoppedError
        stop = min(end, start + WINDOW)
        first, last = start // per_word, -(-stop // per_word)
        raw = np.empty((last - first) * codes.word_bytes, np.uint8)
        with reading(tensor.source) as stream:
            read_into(stream, raw, tensor.begin + first * codes.word_bytes, tensor.source)
        yield unpack(raw, codes)[start - first * per_word : stop - first * per_word]


def unpack(raw: Bytes, codes: Codes) -> Bytes:
    """Unpack all codes of some words, uint8."""
    words = raw.view(f"<u{codes.word_bytes}")
    per_word, mask = 8 * codes.word_bytes // codes.nbits, 2**codes.nbits - 1
    found = np.empty((len(words), per_word), np.uint8)
    for index in range(per_word):
        found[:, index] = words >> codes.nbits * index & mask
    return found.reshape(-1)
