"""Write the golden vectors: `python -m nibblespec.conformance.vectors.generate`.

With `--check` nothing is written, and the exit status is 1 where a file differs from what would be.
The files are the same bytes on every machine: README.md says how.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from nibblespec.conformance.suite.compare import bits
from nibblespec.conformance.vectors.case import Case, expected_tensors, index_entry
from nibblespec.conformance.vectors.cases import (
    activations,
    attention,
    dashq,
    dashq_linear,
    hadamard,
    kv,
    nested_linear,
    planes,
    words,
)
from nibblespec.conformance.vectors.container import encode
from nibblespec.conformance.vectors.golden_set import EXPECTED, INDEX, INPUTS
from nibblespec.spec.operations import OPERATIONS, Array

HERE = Path(__file__).parent / "golden"

INDEX_VERSION = 1
"""Changes where programs that read the index have to."""

SUBJECTS: tuple[Callable[[], Iterator[Case]], ...] = (
    words.cases,
    dashq.cases,
    dashq_linear.cases,
    planes.cases,
    activations.cases,
    nested_linear.cases,
    hadamard.cases,
    kv.cases,
    attention.cases,
)


def all_cases() -> list[Case]:
    """Return every case, by operation in the order of the specification."""
    found = [case for subject in SUBJECTS for case in subject()]
    return sorted(found, key=lambda case: OPERATIONS.index(case.id.partition("/")[0]))


def files_of(cases: list[Case]) -> dict[str, bytes]:
    """Return the files of a set of vectors, by name.

    Raises ValueError where two cases have one id, or one name stands for two tensors.
    """
    inputs: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    ids: set[str] = set()
    for case in cases:
        if case.id in ids:
            raise ValueError(f"{case.id}: two cases have this id")
        ids.add(case.id)
        for tensor in case.inputs.values():
            if tensor is not None:
                first = inputs.setdefault(tensor.name, tensor.values)
                if not _same(first, tensor.values):
                    raise ValueError(f"{tensor.name}: two tensors have this name")
        expected |= expected_tensors(case)
    return {
        INDEX: index_text(cases).encode(),
        INPUTS: encode(inputs),
        EXPECTED: encode(expected),
    }


def index_text(cases: list[Case]) -> str:
    """Return the index: JSON, a line for each case."""
    head = {"index_version": INDEX_VERSION, "inputs": INPUTS, "expected": EXPECTED}
    lines = (_compact(index_entry(case)) for case in cases)
    return _compact(head)[:-1] + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and np.array_equal(bits(one), bits(other))


def main(arguments: list[str] | None = None, folder: Path = HERE) -> int:
    """Write the files, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the golden vectors.")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, content in files_of(all_cases()).items():
        file = folder / name
        if file.is_file() and file.read_bytes() == content:
            continue
        stale += 1
        if check:
            print(
                f"{file.name} differs from what the cases give: "
                "run python -m nibblespec.conformance.vectors.generate"
            )
        else:
            file.write_bytes(content)
            print(f"wrote {file}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
