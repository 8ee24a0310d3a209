"""What `nibblespec vectors check` says: text for people, JSON for programs."""

import json
from collections import Counter
from collections.abc import Iterator

from nibblespec.conformance.suite.results import Result
from nibblespec.conformance.terminal import visible
from nibblespec.conformance.vectors.check import CaseResult, Fault, VectorsReport, failed
from nibblespec.spec.operations import OPERATIONS

REPORT_VERSION = 1

MOST_SHOWN = 20
"""Failing cases, and unknown tensors, that the text shows."""

COUNTED: tuple[Result, ...] = ("pass", "fail", "not-claimed")


def report_json(report: VectorsReport, version: str) -> str:
    """Return the result of every case (schemas/vectors-report.schema.json)."""
    document = {
        "vectors_report_version": REPORT_VERSION,
        "tool": {"name": "nibblespec", "version": version},
        "counts": _counts(report.results),
        "unknown": list(report.unknown),
        "cases": [_case_json(result) for result in report.results],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def report_text(report: VectorsReport) -> str:
    """Return the failing cases, a count for each operation and a last line that sums up."""
    return "\n".join([*_failures(report), *_unknown(report), *_operations(report)]) + "\n"


def _case_json(result: CaseResult) -> dict[str, object]:
    return {
        "id": result.case.id,
        "operation": result.case.operation,
        "result": result.result,
        "requirements": list(result.requirements),
        "faults": [
            {
                "tensor": fault.tensor,
                "message": fault.message,
                "index": None if fault.index is None else list(fault.index),
                "expected": fault.expected,
                "found": fault.found,
                "wrong": fault.wrong,
                "elements": fault.elements,
            }
            for fault in result.faults
        ],
    }


def _failures(report: VectorsReport) -> Iterator[str]:
    failing = [result for result in report.results if result.result == "fail"]
    for result in failing[:MOST_SHOWN]:
        yield f"fail {result.case.id}"
        yield f"     shows     {result.case.shows}"
        yield f"     requires  {', '.join(result.requirements)}"
        yield from (f"     {_fault_text(fault)}" for fault in result.faults)
    if len(failing) > MOST_SHOWN:
        yield f"… and {len(failing) - MOST_SHOWN} more failing cases: see --format json"
    if failing:
        yield ""


def _fault_text(fault: Fault) -> str:
    name = fault.tensor.rpartition("/")[2]
    where = "" if fault.index is None else f", first at {list(fault.index)}"
    count = f" ({fault.wrong:,} of {fault.elements:,})" if fault.elements else ""
    return f"{name}: {fault.message}{count}{where}: expected {fault.expected}, found {fault.found}"


def _unknown(report: VectorsReport) -> Iterator[str]:
    for name in report.unknown[:MOST_SHOWN]:
        yield f"fail {visible(name)}: expected the name of an output in index.json"
    if len(report.unknown) > MOST_SHOWN:
        yield f"… and {len(report.unknown) - MOST_SHOWN} more tensors that are no outputs"
    if report.unknown:
        yield ""


def _operations(report: VectorsReport) -> Iterator[str]:
    yield f"{'':<22}" + "".join(f"{name:>13}" for name in COUNTED)
    for operation in OPERATIONS:
        counts = _counts(
            tuple(result for result in report.results if result.case.operation == operation)
        )
        yield f"{operation:<22}" + "".join(f"{counts[name]:>13,}" for name in COUNTED)
    counts = _counts(report.results)
    yield f"{'all':<22}" + "".join(f"{counts[name]:>13,}" for name in COUNTED)
    yield ""
    claimed = counts["pass"] + counts["fail"]
    if failed(report):
        strangers = f", {len(report.unknown):,} tensors unknown" if report.unknown else ""
        yield f"{counts['fail']:,} of {claimed:,} cases fail{strangers}"
    else:
        yield f"all {claimed:,} cases that were written pass"


def _counts(results: tuple[CaseResult, ...]) -> dict[str, int]:
    found = Counter(result.result for result in results)
    return {name: found[name] for name in COUNTED}
