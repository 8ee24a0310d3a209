"""The reference of rules: what the validator reports, under which id and how severely."""

from itertools import groupby

from nibblespec.spec.requirements import SEVERITY, requirements

from sitegen.sources import title_of
from sitegen.tables import table

HEAD = """# Rules of the validator

What `nibblespec validate` looks for. A rule's id is that of the statement which it checks, and
`nibblespec explain ID` prints the statement. Severities follow from levels: MUST is an error,
SHOULD a warning, and what a MAY describes is an information. Exit statuses, output formats and
levels are explained in [Validating a checkpoint](validating.md).

| rules at level | error | warning | info |
|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    stated = [one for one in requirements().values() if one.checked_by not in ("backend", "exec")]
    counts = "".join(
        f"| `{by}` | "
        + " | ".join(
            str(sum(one.checked_by == by and one.level == level for one in stated))
            for level in SEVERITY
        )
        + " |\n"
        for by in ("manifest", "headers", "tensors")
    )
    chapters = []
    for document, rules in groupby(stated, lambda one: one.document):
        chapters.append(f"\n## {title_of(document)}\n\n")
        rows = [(one.id, one.severity, f"`{one.checked_by}`", one.text) for one in rules]
        chapters.append(table(("rule", "severity", "level", "statement"), rows))
    return HEAD + counts + "".join(chapters)
