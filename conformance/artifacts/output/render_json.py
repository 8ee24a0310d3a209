"""Reports as one JSON document, described by schemas/findings.schema.json."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from nibblespec.conformance.artifacts.findings import Finding, worst
from nibblespec.conformance.artifacts.validate import Failure, Report
from nibblespec.spec.json_faults import clean

FINDINGS_VERSION = 1
"""Version of the document; a change that breaks readers raises it."""


def reports_json(reports: Sequence[Report], failures: Sequence[Failure], *, version: str) -> str:
    """Write reports and what could not be validated; `version` is that of nibblespec."""
    document = {
        "findings_version": FINDINGS_VERSION,
        "tool": {"name": "nibblespec", "version": version},
        "reports": [_report(report) for report in reports],
        "failures": [_cleaned(asdict(failure)) for failure in failures],
    }
    return json.dumps(document, indent=2) + "\n"


def _report(report: Report) -> dict[str, object]:
    known = report.format
    return {
        "path": clean(report.path),
        "level": report.level,
        "format": None if known is None else {"id": known.id, "version": known.version},
        "worst": worst(report.findings),
        "findings": [_finding(found) for found in report.findings],
    }


def _finding(found: Finding) -> dict[str, object]:
    """Leave out what is empty, so that a key that is there says something."""
    return {key: value for key, value in _cleaned(asdict(found)).items() if value}


def _cleaned(fields: dict[str, object]) -> dict[str, object]:
    """Replace what no JSON reader takes: a file name that is no UTF-8 has lone surrogates."""
    return {key: clean(value) if isinstance(value, str) else value for key, value in fields.items()}
