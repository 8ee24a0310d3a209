"""Reports as SARIF 2.1.0 (OASIS), for code scanning and editors."""

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from urllib.parse import quote

from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.reading.hub import SCHEME
from nibblespec.conformance.artifacts.validate import Failure, Report
from nibblespec.spec.json_faults import clean
from nibblespec.spec.requirements import Severity, requirements

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"

_LEVEL: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def reports_sarif(reports: Sequence[Report], failures: Sequence[Failure], *, version: str) -> str:
    """Write reports as one run; what could not be validated becomes its notifications."""
    ids = list(dict.fromkeys(found.requirement for report in reports for found in report.findings))
    index = {requirement: position for position, requirement in enumerate(ids)}
    run = {
        "tool": {
            "driver": {
                "name": "nibblespec",
                "version": version,
                "rules": [_rule(requirement) for requirement in ids],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not failures,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": clean(failure.message)}}
                    for failure in failures
                ],
            }
        ],
        "results": [
            _result(found, report, index[found.requirement])
            for report in reports
            for found in report.findings
        ],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def uri(folder: str, file: str) -> str:
    """Return a URI of a file: relative where the folder is, with every odd byte encoded."""
    if folder.startswith(SCHEME):
        return f"{folder}/{quote(file)}"
    path = Path(folder) / file
    encoded = quote(os.fsencode(PurePath(path).as_posix()), safe="/")
    return f"file://{encoded}" if path.is_absolute() else encoded


def _rule(requirement_id: str) -> dict[str, object]:
    requirement = requirements()[requirement_id]
    return {
        "id": requirement.id,
        "shortDescription": {"text": f"{requirement.id} ({requirement.level})"},
        "fullDescription": {"text": requirement.text},
        "help": {
            "text": f"{requirement.text}\n\nspec/{requirement.document}, {requirement.section}"
        },
        "defaultConfiguration": {"level": _LEVEL[requirement.severity]},
    }


def _result(found: Finding, report: Report, rule_index: int) -> dict[str, object]:
    return {
        "ruleId": found.requirement,
        "ruleIndex": rule_index,
        "level": _LEVEL[found.severity],
        "message": {"text": clean(_message(found))},
        "locations": [_location(found, report)],
    }


def _message(found: Finding) -> str:
    details = [
        f"{label} {value}"
        for label, value in (("expected", found.expected), ("found", found.found))
        if value
    ]
    text = found.message + (f": {', '.join(details)}" if details else "")
    return f"{text}. {found.hint}" if found.hint else text


def _location(found: Finding, report: Report) -> dict[str, object]:
    location: dict[str, object] = {}
    if report.folder:
        physical: dict[str, object] = {
            "artifactLocation": {"uri": uri(report.folder, found.file)},
        }
        if found.line:
            physical["region"] = {"startLine": found.line, "startColumn": found.column}
        location["physicalLocation"] = physical
    logical = found.tensor or found.pointer
    if logical:
        location["logicalLocations"] = [{"fullyQualifiedName": logical}]
    return location
