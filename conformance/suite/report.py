"""The report of a run: results by requirement, as JSON for programs and Markdown for people.

The JSON is described by `schemas/report.schema.json`. Equal runs give equal files: no date, no
duration, no path.
"""

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nibblespec.conformance.suite.files import write_whole
from nibblespec.conformance.suite.results import RESULTS, TestResult, by_requirement, result_of
from nibblespec.conformance.suite.xfails import Xfail
from nibblespec.spec.operations import Backend, Capabilities
from nibblespec.spec.requirements import requirements

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything a report is made of."""

    backend: Backend
    location: str
    """How the backend was named on the command line."""
    capabilities: Capabilities
    max_examples: int
    seed: str
    results: tuple[TestResult, ...]
    unmatched: tuple[Xfail, ...]
    """Expected failures that did not happen."""


def write_report(run: Run, path: Path) -> None:
    """Write the report, as Markdown where the path ends in .md, else as JSON. Raises OSError."""
    report = to_json(run)
    text = to_markdown(report) if path.suffix == ".md" else json.dumps(report, indent=2) + "\n"
    write_whole(path, text)


def to_json(run: Run) -> dict[str, Any]:
    """Return the report as JSON values."""
    stated = {one.id: one for one in requirements().values() if one.checked_by == "backend"}
    grouped = by_requirement(run.results, stated)
    rows = [
        {
            "id": name,
            "level": stated[name].level,
            "document": stated[name].document,
            "section": stated[name].section,
            "result": result_of(tests),
            "tests": [_test(test) for test in tests],
        }
        for name, tests in grouped.items()
    ]
    return {
        "report_version": REPORT_VERSION,
        "suite": {"name": "nibblespec", "version": _version("nibblespec")},
        "backend": {
            "name": run.backend.name,
            "version": run.backend.version,
            "device": run.backend.device,
            "location": run.location,
            "capabilities": json.loads(json.dumps(asdict(run.capabilities))),
        },
        "environment": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            **{name: _version(name) for name in ("numpy", "ml_dtypes", "pytest", "hypothesis")},
        },
        "settings": {"max_examples": run.max_examples, "seed": run.seed},
        "summary": {
            result: sum(row["result"] == result for row in rows) for result in sorted(RESULTS)
        },
        "overrides": [
            *_overrides(run.results),
            *({**asdict(entry), "matched": False} for entry in run.unmatched),
        ],
        "requirements": rows,
    }


def to_markdown(report: dict[str, Any]) -> str:
    """Return a report (as `to_json` makes it) as a Markdown page."""
    backend, environment = report["backend"], report["environment"]
    lines = [
        f"# Conformance of {backend['name']} {backend['version']}",
        "",
        f"- backend: `{backend['location']}` on {backend['device']}",
        f"- suite: {report['suite']['name']} {report['suite']['version']}, "
        f"{report['settings']['max_examples']} examples, seed {report['settings']['seed']}",
        "- environment: " + ", ".join(f"{name} {value}" for name, value in environment.items()),
        "- evaluation: dashq weights `{dashq_rounding}`, in the linear layer "
        "`{linear_weight_rounding}`".format_map(backend["capabilities"]),
        "",
        "| result | requirements |",
        "|---|---|",
        *(f"| {result} | {count} |" for result, count in report["summary"].items()),
    ]
    if report["overrides"]:
        lines += ["", "## Overrides", "", "| requirement | test | reason | |", "|---|---|---|---|"]
        lines += [
            f"| {one['requirement']} | {one['test']} | {_cell(one['reason'])} "
            f"| {'' if one['matched'] else 'unmatched'} |"
            for one in report["overrides"]
        ]
    lines += ["", "## Requirements", "", "| requirement | level | result |", "|---|---|---|"]
    lines += [
        f"| {row['id']} | {row['level']} | {row['result']} |" for row in report["requirements"]
    ]
    lines += ["", "## Capabilities", "", "| capability | claimed |", "|---|---|"]
    lines += [
        f"| {name} | {_cell(_claim(value))} |" for name, value in backend["capabilities"].items()
    ]
    return "\n".join(lines) + "\n"


def _test(test: TestResult) -> dict[str, Any]:
    """Return one test of a requirement; what does not apply is left out."""
    shown = {"test": test.test, "result": test.result}
    return shown | {
        key: value
        for key, value in (("message", test.message), ("override", test.override))
        if value
    }


def _overrides(results: Iterable[TestResult]) -> list[dict[str, Any]]:
    return [
        {
            "requirement": ", ".join(test.requirements),
            "test": test.test,
            "reason": test.override,
            "matched": True,
        }
        for test in results
        if test.override
    ]


def _claim(value: object) -> str:
    if value is None:
        return "any"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
