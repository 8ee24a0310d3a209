"""Conformance results: the suite's reports on this project's own backends, side by side."""

import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from nibblespec.spec.requirements import requirements

from sitegen.sources import DOCS, title_of
from sitegen.tables import table

REPORTS = DOCS / "reports"
ORDER = ("reference", "torch", "optimized")
"""Reports that come first; the others follow by name."""

SIGNS = {
    "pass": "pass",
    "fail": "**fail**",
    "error": "**error**",
    "skipped": "skipped",
    "not-claimed": "–",
}

HEAD = """# Conformance results

Each column is a report of the suite on one backend, written by `nibblespec conformance --backend …
--report …` and committed under `docs/reports/` as it was written, except that the platform is
reduced to system and machine. `python docs/sitegen/make_report.py NAME` makes one anew.

**pass** means that every test of the statement passed; **–** that the backend does not claim what
the statement is about, which is no failure; **skipped** that no test of it was run; **not in it**
that the report is older than the statement.

"""


def reports() -> Mapping[str, Mapping[str, Any]]:
    """Return the committed reports by name, in the order of their columns."""
    names = sorted(
        (path.stem for path in REPORTS.glob("*.json")),
        key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name),
    )
    return {
        name: json.loads((REPORTS / f"{name}.json").read_text(encoding="utf-8")) for name in names
    }


def page() -> str:
    """Return the page as Markdown."""
    found = reports()
    return HEAD + _summary(found) + _failures(found) + _by_requirement(found)


def _summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    def row(title: str, value: Callable[[Mapping[str, Any]], object]) -> tuple[object, ...]:
        return (title, *(value(report) for report in found.values()))

    rows = [
        row("backend", lambda one: f"{one['backend']['name']} {one['backend']['version']}"),
        row("named", lambda one: f"`{one['backend']['location']}`"),
        row("device", lambda one: one["backend"]["device"]),
        row("suite", lambda one: one["suite"]["version"]),
        row("examples of each property", lambda one: one["settings"]["max_examples"]),
        row("seed", lambda one: one["settings"]["seed"]),
        row("operations claimed", lambda one: len(one["backend"]["capabilities"]["operations"])),
        row("dashq weights", lambda one: one["backend"]["capabilities"]["dashq_rounding"]),
        row(
            "weight in the linear layer",
            lambda one: one["backend"]["capabilities"]["linear_weight_rounding"],
        ),
        *(
            (f"statements: {result}", *(one["summary"].get(result, 0) for one in found.values()))
            for result in SIGNS
        ),
    ]
    return "## In short\n\n" + table(("report", *found), rows) + "\n"


def _failures(found: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (name, requirement["id"], f"`{test['test']}`", test.get("message", "").split("\n")[0])
        for name, report in found.items()
        for requirement in report["requirements"]
        for test in requirement["tests"]
        if test["result"] in ("fail", "error")
    ]
    if not rows:
        return ""
    return (
        "## What does not pass\n\n" + table(("report", "statement", "test", "message"), rows) + "\n"
    )


def _by_requirement(found: Mapping[str, Mapping[str, Any]]) -> str:
    results = {
        name: {one["id"]: one["result"] for one in report["requirements"]}
        for name, report in found.items()
    }
    stated = [one for one in requirements().values() if one.checked_by == "backend"]
    parts = []
    for document, group in groupby(stated, lambda one: one.document):
        parts.append(f"## {title_of(document)}\n\n")
        rows = [
            (
                one.id,
                one.level,
                *(SIGNS[of[one.id]] if one.id in of else "not in it" for of in results.values()),
            )
            for one in group
        ]
        parts.append(table(("statement", "level", *found), rows) + "\n")
    return "".join(parts)
