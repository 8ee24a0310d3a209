"""What the validator says: findings, and the shape of the rules that find them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from nibblespec.spec.requirements import Severity, requirements

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What one rule saw at one place; the requirement is the rule's.

    `message` says what is wrong in words that fit every place (so that 248 equal problems are
    one line); what differs from place to place is in the other fields.
    """

    message: str
    pointer: str = ""
    """JSON pointer (RFC 6901) into the file; empty means the whole document."""
    tensor: str = ""
    file: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""
    """What to do about it, where that is not obvious."""
    line: int = 0
    """Line in the file, counted from 1; 0 where it is not known."""
    column: int = 0
    """Column in that line, in characters, counted from 1; 0 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem with the requirement it breaks. Paths are relative to what was validated."""

    requirement: str
    severity: Severity
    message: str
    file: str
    pointer: str = ""
    tensor: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""
    section: str
    """Heading of the specification's section that states the requirement."""
    line: int = 0
    column: int = 0
    unlisted: int = 0
    """How many findings this one stands for, which are too many to list; 0 for a finding itself."""


Rule = Callable[[Subject], Iterator[Problem]]
"""A rule: one short function that yields what it sees. Its requirement id is its key."""


def finding(requirement_id: str, problem: Problem, file: str) -> Finding:
    """Attach a problem to its requirement; `file` holds it unless the problem names another."""
    requirement = requirements()[requirement_id]
    return Finding(
        requirement=requirement_id,
        severity=requirement.severity,
        message=problem.message,
        file=problem.file or file,
        pointer=problem.pointer,
        tensor=problem.tensor,
        expected=problem.expected,
        found=problem.found,
        hint=problem.hint,
        section=requirement.section,
        line=problem.line,
        column=problem.column,
    )


def apply_rules(
    rules: Mapping[str, Rule[Subject]], subject: Subject, file: str
) -> Iterator[Finding]:
    """Run every rule on the subject and yield all findings, in the order of the rules."""
    for requirement_id, rule in rules.items():
        for problem in rule(subject):
            yield finding(requirement_id, problem, file)


def count(findings: Iterable[Finding]) -> Counter[Severity]:
    """Count findings by severity, those included that are not listed one by one."""
    counts: Counter[Severity] = Counter()
    for found in findings:
        counts[found.severity] += found.unlisted or 1
    return counts


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity among the findings, None where there are none."""
    order: tuple[Severity, ...] = ("error", "warning", "info")
    present = {found.severity for found in findings}
    return next((severity for severity in order if severity in present), None)
