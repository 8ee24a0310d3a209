"""What is measured: an operation on operands of one size, in several ways."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from nibblespec.optimized.benchmarks.measure import Call
from torch import Tensor

COLD_BYTES = 1 << 27
"""On CPUs weights are rotated through at least this much memory, more than caches hold."""

MOST_COPIES = 8


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to compute a case."""

    name: str
    call: Call
    read: int
    """Bytes that have to be read."""
    written: int
    """Bytes that have to be written, where that is the work."""


@dataclass(frozen=True, slots=True)
class Case:
    """An operation on operands of one size. The first contestant is ours."""

    operation: str
    shape: str
    rows: int | None
    operations: int
    """Multiplications and additions of a matrix product, 0 where there is none."""
    contestants: tuple[Contestant, ...]


def size(*tensors: Tensor | None) -> int:
    """Return how many bytes tensors have."""
    return sum(0 if tensor is None else tensor.nbytes for tensor in tensors)


def rotating(function: Callable[..., object], copies: Sequence[tuple[Any, ...]]) -> Call:
    """Return a call that takes the next of the copies each time."""
    turns = itertools.cycle(copies)
    return lambda: function(*next(turns))


def copies_of(*tensors: Tensor | None) -> list[tuple[Tensor | None, ...]]:
    """Copy tensors so often that no cache holds them all."""
    count = max(1, min(MOST_COPIES, -(-COLD_BYTES // max(1, size(*tensors)))))
    return [
        tuple(None if tensor is None else tensor.clone() for tensor in tensors)
        for _ in range(count)
    ]


def compiled(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the formula under torch.compile, for the shapes of one case.

    All that was compiled before is forgotten: after eight shapes of a function torch.compile runs
    it as it stands, which would be no peer. `fullgraph` makes that an error instead.
    """
    torch.compiler.reset()
    result: Callable[..., Tensor] = torch.compile(formula, dynamic=False, fullgraph=True)
    return result
