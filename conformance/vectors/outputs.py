"""What a program wrote: its tensors, found in the files of a folder and read with care.

Programs write `outputs.safetensors`, or one file `outputs.<operation>.safetensors` for each
operation, or both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nibblespec.conformance.artifacts.reading.safetensors_headers import read_header
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry
from nibblespec.conformance.terminal import visible
from nibblespec.conformance.vectors.container import from_little_endian
from nibblespec.spec.operations import OPERATIONS, Array

FILES = ("outputs.safetensors", *(f"outputs.{name}.safetensors" for name in OPERATIONS))
"""Names of the files that outputs are in."""


class OutputsError(Exception):
    """The outputs of a folder cannot be read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that a program wrote, and where it lies."""

    file: Path
    start: int
    """Where the file's data begins."""
    entry: TensorEntry


def find_outputs(folder: Path) -> Mapping[str, Written]:
    """Return the tensors of all files of outputs, by name; only headers are read.

    Raises OutputsError where there are none, a file is no sound safetensors file, or two files
    hold the same tensor.
    """
    found: dict[str, Written] = {}
    for file in _files(folder):
        try:
            report = read_header(file, file.name)
        except OSError as error:
            raise OutputsError(f"{file}: cannot be read: {error.strerror or error}") from error
        errors = [problem for problem in report.findings if problem.severity == "error"]
        if errors or report.header is None:
            first = (errors or report.findings)[0]
            detail = f": expected {first.expected}, found {first.found}" if first.expected else ""
            raise OutputsError(
                f"{file}: no sound safetensors file: {first.message}{detail} ({first.requirement})"
            )
        for name, entry in report.header.tensors.items():
            if name in found:
                other = found[name].file.name
                raise OutputsError(f"{file}: {visible(name)} is in {other} too: write it once")
            found[name] = Written(file, report.header.data_start, entry)
    if not found:
        raise OutputsError(f"{folder}: the files of outputs hold no tensor")
    return found


def read_output(written: Written) -> Array:
    """Read a tensor. Raises OutputsError where its bytes cannot be had."""
    entry = written.entry
    try:
        with written.file.open("rb") as stream:
            stream.seek(written.start + entry.begin)
            data = stream.read(entry.end - entry.begin)
    except OSError as error:
        raise OutputsError(f"{written.file}: cannot be read: {error.strerror or error}") from error
    if len(data) != entry.end - entry.begin:
        raise OutputsError(f"{written.file}: the file changed while it was read; check again")
    return from_little_endian(data, entry.dtype, entry.shape)


def _files(folder: Path) -> list[Path]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise OutputsError(f"{folder}: cannot be read: {error.strerror or error}") from error
    candidates = [
        name for name in names if name.startswith("outputs") and name.endswith(".safetensors")
    ]
    strange = [name for name in candidates if name not in FILES]
    if strange:
        raise OutputsError(
            f"{folder / visible(strange[0])}: expected {FILES[0]} or "
            f"outputs.<operation>.safetensors, with one of {', '.join(OPERATIONS)}"
        )
    if not candidates:
        raise OutputsError(
            f"{folder}: expected {FILES[0]} or outputs.<operation>.safetensors, found neither"
        )
    return [folder / name for name in candidates]
