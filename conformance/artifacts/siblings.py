"""Layers that belong together: split by parent, and by the numbers in their paths."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.json_strict import pointer

Layer = TypeVar("Layer")
Value = TypeVar("Value", bound=Hashable)

_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
_LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,9})(?![^.])")

_EXPERT = re.compile(
    r"(?:^|\.)(experts|gate_up_proj_list|up_proj_list|down_proj_list)\.([0-9]{1,9})(?![^.])"
)


def split(name: str) -> tuple[str, str]:
    """Split a path into its parent and its last segment: `a.b.c` into `a.b` and `c`."""
    parent, _, last = name.rpartition(".")
    return parent, last


def kind(name: str) -> str:
    """Write a path with `#` in place of its numbers: what it has in common with its siblings."""
    return _NUMBER.sub("#", name)


def families(layers: Mapping[str, Layer]) -> dict[str, dict[str, Layer]]:
    """Group layers by parent: parent to last segment to layer."""
    found: dict[str, dict[str, Layer]] = defaultdict(dict)
    for name, layer in layers.items():
        parent, last = split(name)
        found[parent][last] = layer
    return found


def decoder_layers(names: Iterable[str]) -> dict[str, set[int]]:
    """Collect the numbers after the first segment `layers`, by what stands before the number."""
    found: dict[str, set[int]] = defaultdict(set)
    for name in names:
        if match := _LAYER.search(name):
            found[name[: match.start(1)]].add(int(match[1]))
    return found


def experts(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield owner, list and number where a path goes through a list of experts.

    `a.experts.up_proj_list.7` is `a.experts`, `up_proj_list`, 7; `a.experts.7.up_proj`, which is
    in no list, is `a.experts`, "", 7.
    """
    for match in _EXPERT.finditer(name):
        plain = match[1] == "experts"
        owner = name[: match.end(1) if plain else match.start()]
        yield owner, "" if plain else match[1], int(match[2])


def most_common(values: Iterable[Value]) -> Value | None:
    """Return the most frequent value, of equally frequent ones the first; None of none."""
    ranked = Counter(values).most_common(1)
    return ranked[0][0] if ranked else None


def gap(numbers: set[int]) -> int | None:
    """Return the least number that is missing between 0 and the greatest; None of none."""
    least = next((index for index, number in enumerate(sorted(numbers)) if number != index), None)
    return least


def missing_layers(names: Iterable[str], key: str) -> Iterator[Problem]:
    """Find decoder layers that are missing between 0 and the greatest number."""
    for beginning, numbers in decoder_layers(names).items():
        absent = gap(numbers)
        if absent is not None:
            yield Problem(
                message="decoder layers have no packed module",
                pointer=pointer(key),
                expected=f"each of 0 to {max(numbers)} after {show(beginning)}",
                found=f"{len(numbers)} of them, not {absent}",
            )
