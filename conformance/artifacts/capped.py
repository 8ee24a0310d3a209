"""A bound on how much is said: a hostile file could break one rule a million times."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from nibblespec.conformance.artifacts.findings import Finding

MAX_FINDINGS = 1000
"""Findings of one requirement in one file that are listed one by one."""


def capped(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings of each kind, and last how many more of the kind there are."""
    seen: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], Finding] = {}
    for found in findings:
        kind = (found.requirement, found.file)
        seen[kind] += 1
        if seen[kind] <= MAX_FINDINGS:
            yield found
        else:
            last[kind] = found
    for kind, found in last.items():
        more = f"and {seen[kind] - MAX_FINDINGS:,} more findings of this requirement in this file"
        yield replace(found, message=more, pointer="", tensor="", expected="", found="", hint="")
