"""The requirement matrix: every statement with its level, its section and what checks it."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from nibblespec.spec.requirements import Requirement, requirements

from sitegen.checks import Checks, checks
from sitegen.sources import page_of_chapter, title_of
from sitegen.tables import listed, table

HEAD = """# Requirement matrix

Every normative statement of the specification, and what checks it: made from the text, the suite,
the corpus and the tests when the site was built. A MUST without a check fails the project's tests.

What counts as a check of a statement:

- **suite**: a test of the conformance suite that names it (`nibblespec conformance`);
- **corpus**: a manifest of the [corpus](corpus.md) in which a validator has to find it broken;
- **example**: a checkpoint of `nibblespec example --fault`, which has to be found broken;
- **test**: a test of this project that names it.

The suite's own checks are checked in turn: [The suite's teeth](teeth.md) lists the broken backends
that it has to reject.

"""


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + _counts() + "".join(_chapters())


def _counts() -> str:
    levels, checkers = (
        ("MUST", "SHOULD", "MAY"),
        ("manifest", "headers", "tensors", "backend", "exec"),
    )
    number: Counter[tuple[str, str]] = Counter(
        (one.checked_by, one.level) for one in requirements().values()
    )
    rows = [
        (
            f"`{by}`",
            *(number[by, level] for level in levels),
            sum(number[by, level] for level in levels),
        )
        for by in checkers
    ]
    sums = [sum(number[by, level] for by in checkers) for level in levels]
    rows.append(("all", *sums, sum(sums)))
    unchecked = [
        sum(one.level == level and not checks()[one.id].count for one in requirements().values())
        for level in levels
    ]
    rows.append(("without a check", *unchecked, sum(unchecked)))
    of_all = checks().values()
    kinds = [
        ("suite", sum(len(one.suite) for one in of_all)),
        ("corpus", sum(len(one.corpus) for one in of_all)),
        ("example", sum(len(one.examples) for one in of_all)),
        ("test", sum(len(one.tests) for one in of_all)),
    ]
    return (
        "## Counts\n\n"
        + table(("checked by", *levels, "in all"), rows)
        + "\n"
        + table(("kind of check", "pairs of statement and check"), kinds)
        + "\n"
    )


def _chapters() -> Iterator[str]:
    for document, stated in groupby(requirements().values(), lambda one: one.document):
        name = page_of_chapter(document)
        yield f"## {title_of(document)}\n\n"
        yield f"Stated in [`spec/{document}`]({name}).\n\n"
        yield table(("requirement", "level", "by", "section", "checks"), map(_row, stated)) + "\n"


def _row(one: Requirement) -> tuple[str, str, str, str, str]:
    found = checks()[one.id]
    return one.id, one.level, one.checked_by, one.section, _named(found)


def _named(found: Checks) -> str:
    kinds = (
        ("suite", found.suite),
        ("corpus", found.corpus),
        ("example", found.examples),
        ("test", found.tests),
    )
    parts = [f"{len(names)} {kind}: {listed(names, 2)}" for kind, names in kinds if names]
    return "<br>".join(parts) if parts else "**none**"
