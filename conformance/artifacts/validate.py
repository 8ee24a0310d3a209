"""The driver of the validator: from a path to findings.

Levels go from what is cheap to what is complete, each with all before it: `manifest` is the
manifest alone, `headers` the files of its folder as far as the headers of the tensor files,
`tensors` all that is in them.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from nibblespec.conformance.artifacts.checkpoint import (
    Headers,
    HeadersReport,
    check_headers,
)
from nibblespec.conformance.artifacts.findings import Finding, worst
from nibblespec.conformance.artifacts.manifest import ManifestReport, check_manifest
from nibblespec.conformance.artifacts.reading.folder import list_folder, read_document
from nibblespec.conformance.artifacts.reading.hub import SCHEME, open_repository
from nibblespec.conformance.artifacts.reading.hub_errors import HubError
from nibblespec.spec.formats import (
    AnyManifest,
    Format,
    ManifestError,
    manifest_bytes,
    manifest_file,
    manifest_name,
)
from nibblespec.spec.json_strict import MAX_BYTES

Level = Literal["manifest", "headers", "tensors"]
LEVELS: tuple[Level, ...] = get_args(Level)

Progress = Callable[[int, int], None]
"""Is told now and then how many bytes of the tensors are done, and how many there are."""

STDIN = "-"
"""The path that stands for standard input."""


class InputError(Exception):
    """Something that could not be looked at; the message is one line that says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A path that could not be validated, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What validating one path found."""

    path: str
    """As it was given: a file, a folder, an address on the Hub or "-"."""
    folder: str
    """What the files of the findings are relative to; empty for standard input."""
    level: Level
    format: Format | None
    """None where the manifest does not say which format it is of."""
    manifest: AnyManifest | None
    """None where its structure is broken."""
    findings: tuple[Finding, ...]
    headers: Headers = field(default_factory=dict)
    """The headers that could be read, by file; none at level `manifest`."""
    sound: bool = True
    """Whether the manifest has no errors."""


def validate(path: str | os.PathLike[str], level: Level | None = None) -> list[Finding]:
    """Validate a manifest, or a checkpoint in a folder or at `hf://owner/name[@revision]`.

    `level` is the last level to check; None is `manifest` for a file and `headers` for the others.
    Returns all findings. Raises InputError where there is nothing to read, ValueError where the
    level is none.
    """
    return list(check_path(os.fspath(path), level).findings)


def check_path(path: str, level: Level | None = None, progress: Progress | None = None) -> Report:
    """Validate what a path leads to; "-" is a manifest on standard input.

    `progress` is called at level `tensors` only. Raises as `validate` does.
    """
    if level is not None and level not in LEVELS:
        raise ValueError(f"level: expected {' or '.join(LEVELS)}, found {level!r}")
    if path == STDIN and level not in (None, "manifest"):
        raise InputError(f"standard input is a manifest alone: level {level} needs a folder")
    if path.startswith(SCHEME):
        return _check_repository(path, level or "headers")
    level = level or ("headers" if path != STDIN and os.path.isdir(path) else "manifest")
    try:
        manifest = Path(path) if path == STDIN else manifest_file(path)
        data = _read_standard_input() if path == STDIN else manifest_bytes(manifest)
    except ManifestError as error:
        raise InputError(str(error)) from error
    checked = check_manifest(data, manifest.name)
    below = None
    if level != "manifest":
        below = _check_folder(manifest.parent, checked, level == "tensors", progress)
    return _report(path, "" if path == STDIN else str(manifest.parent), level, checked, below)


def _check_folder(
    folder: Path, checked: ManifestReport, contents: bool, progress: Progress | None
) -> HeadersReport:
    """Check the files of a folder, and what is in them if their contents are wanted too."""
    try:
        report = check_headers(list_folder(folder), checked)
        if not contents:
            return report
        # NumPy is imported here alone: the other levels do without it.
        from nibblespec.conformance.artifacts.contents import check_contents  # noqa: PLC0415

        found = check_contents(folder, checked, report.headers, progress)
        return replace(report, findings=report.findings + found)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {_reason(error)}") from error


def _check_repository(address: str, level: Level) -> Report:
    """Check a checkpoint on the Hub, as far as the headers."""
    if level == "tensors":
        raise InputError(
            f"{address}: level tensors reads every byte: download the repository, and validate"
            " its folder"
        )
    try:
        folder = open_repository(address)
        name = manifest_name(folder.names, address)
        start = read_document(folder, name)
        if start.irregular:
            raise InputError(f"{address}: {name} is {start.irregular}; expected a manifest")
        checked = check_manifest(b"".join(start.pieces), name)
        below = None if level == "manifest" else check_headers(folder, checked)
    except (HubError, ManifestError) as error:
        raise InputError(str(error)) from None
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        needed = "needs huggingface_hub: pip install 'nibblespec[hub]'"
        raise InputError(f"{address}: reading from the Hub {needed}") from None
    return _report(address, folder.place, level, checked, below)


def _report(
    path: str, folder: str, level: Level, checked: ManifestReport, below: HeadersReport | None
) -> Report:
    """Put together what was found in the manifest and below it."""
    return Report(
        path=path,
        folder=folder,
        level=level,
        format=checked.format,
        manifest=checked.manifest,
        findings=(*checked.findings, *(below.findings if below else ())),
        headers=below.headers if below else {},
        sound=worst(checked.findings) != "error",
    )


def _read_standard_input() -> bytes:
    """Read standard input up to the size that the JSON reader refuses."""
    if sys.stdin is None:
        raise InputError("standard input is closed")
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"standard input: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
