"""A bound on how much is said: a hostile file could break one rule a million times."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator

from nibblespec.conformance.artifacts.findings import Finding

MAX_FINDINGS = 1000
"""Findings of one requirement in one file that are listed one by one."""

MAX_OF_REQUIREMENT = 10_000
"""Findings of one requirement in all files of a checkpoint that are listed one by one."""


def in_file(found: Finding) -> Hashable:
    """Count the findings of one requirement in one file together."""
    return found.requirement, found.file


def of_requirement(found: Finding) -> Hashable:
    """Count the findings of one requirement together, whatever the file."""
    return found.requirement


def capped(
    findings: Iterable[Finding],
    limit: int = MAX_FINDINGS,
    kind: Callable[[Finding], Hashable] = in_file,
) -> Iterator[Finding]:
    """Yield the first findings of each kind, and last one that stands for all others of the kind.

    Those that were cut before, which `unlisted` counts, are counted on.
    """
    seen: Counter[Hashable] = Counter()
    unlisted: Counter[Hashable] = Counter()
    first: dict[Hashable, Finding] = {}
    for found in findings:
        seen[kind(found)] += 1
        if seen[kind(found)] <= limit and not found.unlisted:
            yield found
        else:
            unlisted[kind(found)] += found.unlisted or 1
            first.setdefault(kind(found), found)
    for counted, found in first.items():
        yield Finding(
            requirement=found.requirement,
            severity=found.severity,
            message=f"and {unlisted[counted]:,} more findings of this requirement",
            file=found.file,
            section=found.section,
            unlisted=unlisted[counted],
        )
