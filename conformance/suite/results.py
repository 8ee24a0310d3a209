"""Results of the suite's tests, and what they say about each requirement."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Result = Literal["pass", "fail", "error", "skipped", "not-claimed"]

RESULTS: tuple[Result, ...] = ("fail", "error", "skipped", "pass", "not-claimed")
"""Every result, worst first: what one test says of a requirement outweighs what follows here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """How one test ended, and which requirements it speaks of."""

    __test__ = False  # the name starts with Test, but pytest has nothing to collect here

    test: str
    """`file.py::name`, the same wherever the suite is installed."""
    requirements: tuple[str, ...]
    result: Result
    message: str = ""
    """Why it did not pass."""
    override: str = ""
    """The reason given in the file of expected failures that applied."""


def result_of(tests: Iterable[TestResult]) -> Result:
    """Return the worst result among a requirement's tests; `skipped` where none was run."""
    found = {test.result for test in tests}
    return next((result for result in RESULTS if result in found), "skipped")


def by_requirement(
    results: Iterable[TestResult], requirements: Iterable[str]
) -> Mapping[str, list[TestResult]]:
    """Return the tests that speak of each requirement, in the order of `requirements`.

    Tests are by name: workers of pytest-xdist end theirs in any order.
    """
    grouped: dict[str, list[TestResult]] = {requirement: [] for requirement in requirements}
    for result in sorted(results, key=lambda one: one.test):
        for requirement in result.requirements:
            grouped.setdefault(requirement, []).append(result)
    return grouped
