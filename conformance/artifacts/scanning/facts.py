"""What a scan of a tensor's bytes finds: facts that add up, block by block, in any split."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hit:
    """One kind of thing that was found: how often, and where first."""

    count: int
    first: int
    """Index of the first one, flat: of an element, a code or a group."""
    bits: int = 0
    """The bits of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found in some blocks of a tensor, or of tensors that are read side by side."""

    hits: Mapping[str, Hit] = field(default_factory=dict)
    every: tuple[int, ...] = ()
    """Bits that are set in every word, element or byte of each tensor; () of none."""
    some: tuple[int, ...] = ()
    """Bits that are set in any of them. Where both are equal, all words are."""
    counts: Counts | None = None
    """How often each code occurs in the sample."""


def merge(all_facts: Iterable[Facts]) -> Facts:
    """Add up the facts of blocks that follow each other."""
    hits: dict[str, Hit] = {}
    every: tuple[int, ...] = ()
    some: tuple[int, ...] = ()
    counts: Counts | None = None
    for facts in all_facts:
        for kind, hit in facts.hits.items():
            first = hits.get(kind, Hit(0, hit.first, hit.bits))
            hits[kind] = Hit(first.count + hit.count, first.first, first.bits)
        if facts.every:
            every = tuple(a & b for a, b in zip(every or facts.every, facts.every, strict=True))
            some = tuple(a | b for a, b in zip(some or facts.some, facts.some, strict=True))
        if facts.counts is not None:
            counts = facts.counts if counts is None else counts + facts.counts
    return Facts(hits=hits, every=every, some=some, counts=counts)


def first_hit(where: NDArray[np.bool_], values: NDArray[np.unsignedinteger], at: int) -> Hit:
    """Return the hit that a mask marks among values, the first of which has the index `at`."""
    first = int(where.argmax())
    return Hit(int(np.count_nonzero(where)), at + first, int(values[first]))


def is_constant(facts: Facts, index: int = 0) -> bool:
    """Say whether all words of a tensor are equal; of no words they are not."""
    return bool(facts.every) and facts.every[index] == facts.some[index]
