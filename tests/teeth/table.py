"""The page docs/teeth.md: which test rejects which broken backend, by which requirement."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.teeth.equivalent import EQUIVALENT, NOT_TESTED
from tests.teeth.mutants import BY_SUBJECT, MUTANTS
from tests.teeth.variants import VARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "teeth.md"

INTRODUCTION = """\
# The suite's teeth

<!-- Written by `python -m tests.teeth --write`; a test compares it with the code. -->

A conformance suite is worth as much as the backends that it rejects. `tests/teeth` holds {broken}
deliberately broken ones. Each is the reference with one small change: a fault that was seen in the
field, or its next of kin. Each has to be rejected with default settings, whatever the seed, by an
assertion, not by a crash, and the failing test has to name the requirement that the change breaks.
Every requirement that the suite checks is broken by at least one of them.

The reverse is tested as well: {correct} correct backends that compute otherwise than the
reference (in another order, in other blocks, in float64), or that claim less, have to be accepted.

`pytest tests/teeth` runs the test that the tables name on each broken backend, with one seed;
`python -m tests.teeth` looks for a test that rejects it with each of five seeds, and fails where
there is none.
"""

_ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` \|.*\| `(?P<test>test_\w+\.py::[^`]+)` \|$", re.M)


def rejecting_tests(page: str) -> Mapping[str, str]:
    """Read from the page which test rejects which broken backend."""
    return {row["name"]: row["test"] for row in _ROW.finditer(page)}


def render(tests: Mapping[str, str]) -> str:
    """Write the page; `tests` are the rejecting tests by the names of the broken backends."""
    parts = [
        INTRODUCTION.format(broken=len(MUTANTS), correct=len(VARIANTS)),
        "## Broken backends\n",
    ]
    for subject, mutants in BY_SUBJECT.items():
        parts += [
            f"### {subject}\n",
            _table(
                ("broken backend", "fault", "breaks", "rejected by"),
                (
                    (
                        f"`{mutant.name}`",
                        mutant.fault,
                        ", ".join(mutant.breaks),
                        f"`{tests[mutant.name]}`",
                    )
                    for mutant in mutants
                ),
            ),
        ]
    parts += [
        "## Equivalent changes\n",
        "No valid input tells these from the reference, and the suite accepts them.\n",
        _table(
            ("change", "operation", "why it makes no difference"),
            (
                (f"`{mutant.name}`: {mutant.fault}", f"`{mutant.operation}`", reason)
                for reason, mutants in EQUIVALENT.items()
                for mutant in mutants
            ),
        ),
        "## What is not looked for\n",
        _table(("fault", "why"), NOT_TESTED.items()),
        "## Correct backends\n",
        _table(
            ("backend", "what it does", "tests that it passes"),
            (
                (f"`{variant.name}`", variant.what, "those of " + _listed(variant.operations))
                for variant in VARIANTS
            ),
        ),
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _listed(operations: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in operations)
