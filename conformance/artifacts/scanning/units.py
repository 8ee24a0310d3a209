"""What the level `tensors` looks at in one go, and how it is cut into jobs of bounded size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
from nibblespec.conformance.artifacts.findings import Finding, Problem
from nibblespec.conformance.artifacts.reading.blocks import (
    BLOCK,
    Bytes,
    Run,
    TensorBytes,
    read_blocks,
)
from nibblespec.conformance.artifacts.scanning.facts import Facts, Hit, merge
from nibblespec.conformance.artifacts.scanning.float_contents import float_value

JOB_BYTES = 16 * BLOCK

Scan = Callable[[tuple[Bytes, ...], int, Run], Facts]
"""Looks at a block of each tensor of a part, given their position; it may read more, in a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tensors of equal length that are read side by side, each block once."""

    name: str
    tensors: tuple[TensorBytes, ...]
    scan: Scan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """A module, or a tensor that belongs to none: what is judged together."""

    parts: tuple[Part, ...]
    judge: Callable[[Mapping[str, Facts]], Iterator[Finding]]
    """Yields the findings, given the facts by the name of the part; a part may have none."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes start … stop of a part."""

    part: Part
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does in one go."""

    unit: Unit
    slices: tuple[Slice, ...] = field(default=())


def part_bytes(part: Part) -> int:
    """Return how many bytes of each of its tensors a part has."""
    return part.tensors[0].size


def jobs_of(unit: Unit) -> Iterator[Job]:
    """Cut a unit into jobs; one that has no bytes is one job of nothing."""
    slices: list[Slice] = []
    room = JOB_BYTES
    for part in unit.parts:
        start, size, width = 0, part_bytes(part), len(part.tensors)
        while start < size:
            # Blocks begin at the same positions whatever was before them, for the sample's sake.
            stop = min(size, start + max(BLOCK, room // width // BLOCK * BLOCK))
            slices.append(Slice(part, start, stop))
            room -= (stop - start) * width
            start = stop
            if room <= 0:
                yield Job(unit, tuple(slices))
                slices, room = [], JOB_BYTES
    yield Job(unit, tuple(slices))


def run_job(job: Job, run: Run) -> dict[str, Facts]:
    """Read and scan what a job names; return the facts by part. Raises as `read_blocks`."""
    found: dict[str, list[Facts]] = {}
    for piece in job.slices:
        part = piece.part
        for position, blocks in read_blocks(part.tensors, piece.start, piece.stop, run):
            found.setdefault(part.name, []).append(part.scan(blocks, position, run))
            run.read.put(sum(map(len, blocks)))
    return {name: merge(facts) for name, facts in found.items()}


def hit_problem(
    hit: Hit, tensor: TensorBytes, *, message: str, expected: str, found: str = ""
) -> Problem:
    """Describe what a hit is on: what was found, where first, and how often.

    Without `found`, that is the value of the first element.
    """
    entry = tensor.entry
    value = found or f"{float_value(hit.bits, entry.dtype):g}".replace("nan", "NaN")
    first = hit.first // 2 if entry.dtype == "C64" else hit.first
    return Problem(
        message=message,
        file=tensor.source.file,
        tensor=entry.name,
        expected=expected,
        found=f"{value} at {index_text(first, entry.shape)}{and_more(hit)}",
    )


def and_more(hit: Hit) -> str:
    """Say how many there are besides the first."""
    return f", and {hit.count - 1:,} more" if hit.count > 1 else ""


def index_text(flat: int, shape: tuple[int, ...]) -> str:
    """Write the index of an element of a tensor, given its flat index: `[2, 0]`."""
    if prod(shape) != 0 and len(shape) <= 8:
        return str([int(index) for index in np.unravel_index(flat, shape)])
    return f"element {flat:,}"
