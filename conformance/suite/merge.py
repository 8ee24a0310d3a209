"""`nibblespec report merge`: the reports of many backends as one table."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from nibblespec.conformance.suite.files import UnreadableError, read_whole
from nibblespec.conformance.suite.results import RESULTS
from nibblespec.conformance.terminal import visible
from nibblespec.schemas import load_schema
from nibblespec.spec import json_strict
from nibblespec.spec.requirements import requirements

MERGED_REPORT_VERSION = 1
MOST_BYTES = 1 << 26

Report = dict[str, Any]
"""A report as `suite.report.to_json` makes it, or as `merge` does."""

_SHOWN = {"not-claimed": "–", None: ""}


class ReportError(Exception):
    """A file is no report; the message is one line."""


def read_report(path: Path) -> Report:
    """Read a report that `nibblespec conformance --report FILE.json` wrote. Raises ReportError."""
    try:
        data = read_whole(path, MOST_BYTES)
    except UnreadableError as error:
        raise ReportError(str(error)) from error
    document = json_strict.parse(data)
    if document.problems:
        raise ReportError(f"{path}: no JSON report: {document.problems[0].message}")
    for breach in Draft202012Validator(load_schema("report")).iter_errors(document.value):
        where = json_strict.pointer(*breach.absolute_path) or "the document"
        what = visible(breach.message, 200)
        raise ReportError(
            f"{path}: no report of nibblespec conformance --report FILE.json: {where}: {what}"
        )
    report: Report = document.value  # type: ignore[assignment]  # the schema says so
    return report


def merge(reports: Sequence[Report]) -> Report:
    """Put reports beside each other (schemas/merged-report.schema.json), in their order."""
    labels = _labels([report["backend"] for report in reports])
    found = [{row["id"]: row for row in report["requirements"]} for report in reports]
    rows = {name: row for one in reversed(found) for name, row in one.items()}
    return {
        "merged_report_version": MERGED_REPORT_VERSION,
        "backends": [
            {
                "label": label,
                **report["backend"],
                **{key: report[key] for key in ("suite", "settings", "environment", "summary")},
            }
            for label, report in zip(labels, reports, strict=True)
        ],
        "requirements": [
            {
                **{key: rows[name][key] for key in ("id", "level", "document", "section")},
                "results": [one[name]["result"] if name in one else None for one in found],
            }
            for name in _in_order(rows)
        ],
    }


def merged_json(merged: Report) -> str:
    """Return what `merge` made as the text of a file."""
    return json.dumps(merged, indent=1, ensure_ascii=False) + "\n"


def merged_markdown(merged: Report) -> str:
    """Return what `merge` made as a Markdown page: backends, and requirements by document."""
    return "\n".join(_lines(merged)) + "\n"


def _lines(merged: Report) -> Iterator[str]:
    backends = merged["backends"]
    yield "# Conformance"
    yield ""
    yield from _row("backend", "version", "device", "suite", *RESULTS)
    yield from _row(*["---"] * (4 + len(RESULTS)))
    for one in backends:
        counts = [one["summary"].get(result, 0) for result in RESULTS]
        suite = f"{one['suite']['version']}, {one['settings']['max_examples']} examples"
        yield from _row(one["label"], one["version"], one["device"], suite, *counts)
    yield ""
    yield "Counts are of requirements. Below, – is not claimed, and nothing is not in the report."
    document = ""
    for row in merged["requirements"]:
        if row["document"] != document:
            document = row["document"]
            yield from ("", f"## {_cell(document)}", "")
            yield from _row("requirement", "level", *(one["label"] for one in backends))
            yield from _row(*["---"] * (2 + len(backends)))
        results = [_SHOWN.get(result, result) for result in row["results"]]
        yield from _row(row["id"], row["level"], *results)


def _row(*cells: object) -> Iterator[str]:
    yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: object) -> str:
    text = visible(str(value))
    for mark in "\\|<`*_[":
        text = text.replace(mark, f"\\{mark}")
    return text


def _labels(backends: Sequence[Report]) -> list[str]:
    """Name backends by as little as tells them apart: the name, then what else is needed."""
    labels = [str(one["name"]) for one in backends]
    for key in ("version", "device", "location"):
        counts = Counter(labels)
        labels = [
            f"{label} {one[key]}" if counts[label] > 1 else label
            for label, one in zip(labels, backends, strict=True)
        ]
    seen: Counter[str] = Counter()
    for place, label in enumerate(labels):
        seen[label] += 1
        if seen[label] > 1:
            labels[place] = f"{label} ({seen[label]})"
    return labels


def _in_order(names: dict[str, Any]) -> list[str]:
    """Return the requirements of this version in its order, then those it does not know."""
    known = [name for name in requirements() if name in names]
    return [*known, *(name for name in names if name not in requirements())]
