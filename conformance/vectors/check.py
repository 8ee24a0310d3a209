"""Check the outputs that a program wrote for the golden vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nibblespec.conformance.artifacts.reading.tensor_entries import entry_text
from nibblespec.conformance.suite.compare import differ, value_text
from nibblespec.conformance.suite.results import Result
from nibblespec.conformance.vectors.golden_set import (
    INDEX,
    GoldenCase,
    Output,
    expected_tensors,
    golden_cases,
    golden_file,
)
from nibblespec.conformance.vectors.outputs import (
    OutputsError,
    Written,
    find_outputs,
    read_output,
)
from nibblespec.spec.operations import Array

FORM = "NUM-OUTPUT-FORM"
"""What an output of another dtype or shape breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one output. `expected` and `found` are values with their bits."""

    tensor: str
    message: str
    expected: str
    found: str
    index: tuple[int, ...] | None = None
    """The first element that is wrong, in row-major order; None where all of it is."""
    wrong: int = 0
    """How many elements are wrong."""
    elements: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a case went. A case of which no output was written is not claimed."""

    case: GoldenCase
    result: Result
    requirements: tuple[str, ...]
    """What the faults break; of the other results, what the case is about."""
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsReport:
    """The results of all cases, and the tensors that are no output of any case."""

    results: tuple[CaseResult, ...]
    unknown: tuple[str, ...]


def check_folder(folder: Path) -> VectorsReport:
    """Compare the outputs in a folder with the golden vectors.

    Raises OutputsError where there are none, they cannot be read, or the vectors beside them are
    not those of this version.
    """
    written = find_outputs(folder)
    _check_version(folder)
    known = {output.tensor for case in golden_cases() for output in case.outputs}
    return VectorsReport(
        results=tuple(_check_case(case, written) for case in golden_cases()),
        unknown=tuple(sorted(set(written) - known)),
    )


def failed(report: VectorsReport) -> bool:
    """Say whether anything that was written is wrong, or belongs to no case."""
    return bool(report.unknown) or any(result.result == "fail" for result in report.results)


def _check_version(folder: Path) -> None:
    index = folder / INDEX
    expected = golden_file(INDEX)
    try:
        if not index.is_file():
            return
        with index.open("rb") as stream:
            found = stream.read(len(expected) + 1)
    except OSError as error:
        raise OutputsError(f"{index}: cannot be read: {error.strerror or error}") from error
    if found != expected:
        raise OutputsError(
            f"{index}: expected the index of this version of nibblespec, found another: "
            "run nibblespec vectors export into a new folder and write the outputs for that"
        )


def _check_case(case: GoldenCase, written: Mapping[str, Written]) -> CaseResult:
    if not any(output.tensor in written for output in case.outputs):
        return CaseResult(case=case, result="not-claimed", requirements=case.requirements)
    found = (_fault(output, written.get(output.tensor)) for output in case.outputs)
    faults = tuple(fault for fault in found if fault is not None)
    if not faults:
        return CaseResult(case=case, result="pass", requirements=case.requirements)
    broken: tuple[str, ...] = (FORM,) if any(fault.index is None for fault in faults) else ()
    if any(fault.index is not None for fault in faults):
        broken += case.requirements
    return CaseResult(case=case, result="fail", requirements=broken, faults=faults)


def _fault(output: Output, written: Written | None) -> Fault | None:
    form = f"{output.dtype} {list(output.shape)}"
    if written is None:
        message = "missing, though another output of the case is there"
        return Fault(tensor=output.tensor, message=message, expected=form, found="nothing")
    entry = written.entry
    if (entry.dtype, entry.shape) != (output.dtype, output.shape):
        message = "wrong dtype or shape"
        return Fault(tensor=output.tensor, message=message, expected=form, found=entry_text(entry))
    return _value_fault(output, read_output(written))


def _value_fault(output: Output, found: Array) -> Fault | None:
    if output.bits is not None:
        expected = expected_tensors()[output.bits]
        wrong = differ(found, expected)
    else:
        assert output.low is not None
        assert output.high is not None
        low, high = expected_tensors()[output.low], expected_tensors()[output.high]
        with np.errstate(invalid="ignore"):
            wrong = ~((low <= found) & (found <= high))
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    if output.bits is not None:
        wanted = value_text(expected, first)
    else:
        ends = value_text(low, first), value_text(high, first)
        wanted = " … ".join(dict.fromkeys(ends))
    return Fault(
        tensor=output.tensor,
        message="wrong values",
        expected=wanted,
        found=value_text(found, first),
        index=first,
        wrong=int(wrong.sum()),
        elements=wrong.size,
    )
