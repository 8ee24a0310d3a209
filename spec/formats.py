"""The formats: which there are, how a manifest tells its own, and how to read one."""

import os
import stat
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.json_strict import MAX_BYTES, JsonProblem, parse, pointer
from nibblespec.spec.pieces import pieces
from nibblespec.spec.requirements import requirements
from pydantic import ValidationError

AnyManifest = DashqManifest | BitnestManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One version of one format."""

    id: str
    """The value of the manifest's key `format`."""
    version: int
    manifest_name: str
    """File name of the manifest inside a checkpoint's folder."""
    model: type[DashqManifest] | type[BitnestManifest]
    document: str
    """The normative text, relative to the package `nibblespec.spec`."""
    schema_name: str
    """File name of the JSON Schema, in the package `nibblespec.schemas`."""
    named: tuple[tuple[str, ...], ...]
    """Paths of the objects whose keys are names of layers."""


FORMATS = (
    Format(
        id="dashq-packed-linear",
        version=1,
        manifest_name="dashq_config.json",
        model=DashqManifest,
        document="dashq_packed_linear/v1/specification.md",
        schema_name="dashq-packed-linear-v1.schema.json",
        named=(("quantized_modules",),),
    ),
    Format(
        id="bitnest-package-v1",
        version=1,
        manifest_name="meta.json",
        model=BitnestManifest,
        document="bitnest_package/v1/specification.md",
        schema_name="bitnest-package-v1.schema.json",
        named=(
            ("layers",),
            ("activation", "per_layer_group"),
            ("online_hadamard", "layers"),
        ),
    ),
)


class ManifestError(ValueError):
    """A manifest that cannot be read; the message says what was expected, found, and where."""


def detect(value: object) -> Format | None:
    """Return the format that a JSON value names in its key `format`, None where it names none.

    A version that is not known does not hide the format: the manifest's structure judges it.
    """
    if not isinstance(value, dict):
        return None
    return next((known for known in FORMATS if known.id == value.get("format")), None)


def read_manifest(path: str | Path) -> AnyManifest:
    """Read a manifest from its file, or from the checkpoint's folder, into its model.

    This checks JSON and structure and nothing that relates two fields: for that, validate.
    Raises ManifestError, listing the first errors, where there is no such manifest.
    """
    file = manifest_file(path)
    document = parse(manifest_bytes(file))
    errors = [
        f"{_place(problem)}: {problem.message}: expected {problem.expected}, found {problem.found}"
        for problem in document.problems
        if requirements()[problem.requirement].severity == "error"
    ]
    if errors:
        raise ManifestError(_listed(file, errors))
    known = detect(document.value)
    if known is None:
        names = " or ".join(f'"{known.id}"' for known in FORMATS)
        raise ManifestError(f'{file}: no known format: expected {names} under the key "format"')
    piece = document.value
    try:
        for piece in pieces(document.value, known.named):
            manifest = known.model.model_validate(piece)
        return manifest if piece is document.value else known.model.model_validate(document.value)
    except ValidationError as error:
        errors = [
            f"{pointer(*details['loc']) or 'the document'}: {details['msg']}"
            for details in error.errors(
                include_url=False, include_context=False, include_input=False
            )
            if details["type"] != "default_factory_not_called"  # it follows from another error
        ]
        raise ManifestError(_listed(file, errors, piece is document.value)) from None


def _place(problem: JsonProblem) -> str:
    """Name the value that a problem is about, and its line and column where it has any."""
    value = problem.pointer or "the document"
    return f"{value} (line {problem.line}, column {problem.column})" if problem.line else value


def manifest_file(path: str | Path) -> Path:
    """Return the manifest that a path leads to: a folder holds one, any other path is one.

    Raises ManifestError where a folder holds none or both, or cannot be looked into, for a file of
    tensors, and for the empty path, which Python takes for the current folder.
    """
    if not os.fspath(path):
        raise ManifestError("the path is empty: expected a manifest or its folder (. is this one)")
    folder = Path(path)
    try:
        if folder.suffix == ".safetensors" and folder.is_file():
            known_names = " or ".join(known.manifest_name for known in FORMATS)
            raise ManifestError(
                f"{folder}: holds tensors: give its folder, or the manifest there, {known_names}"
            )
        if not folder.is_dir():
            return folder
        names = [known.manifest_name for known in FORMATS]
        present = [name for name in names if (folder / name).exists()]
    except OSError as error:
        raise ManifestError(f"{folder}: {error.strerror}") from error
    return folder / manifest_name(present, str(folder))


def manifest_name(names: Container[str], folder: str) -> str:
    """Return the manifest's name among those of the files of `folder`.

    Raises ManifestError, which names the folder, where there is none, or both.
    """
    known = [each.manifest_name for each in FORMATS]
    present = [name for name in known if name in names]
    if not present:
        raise ManifestError(f"{folder}: no manifest in it: expected {' or '.join(known)}")
    if len(present) > 1:
        raise ManifestError(f"{folder}: expected one manifest, found {' and '.join(present)}")
    return present[0]


def manifest_bytes(file: Path) -> bytes:
    """Read a manifest, up to the size that the JSON reader refuses.

    Raises ManifestError where that cannot be done: pipes and devices are not opened.
    """
    try:
        _expect_regular(file, file.stat())
        # Without O_NONBLOCK, a pipe that took the file's place since then would block for ever.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as stream:
            _expect_regular(file, os.fstat(descriptor))
            return stream.read(MAX_BYTES + 1)
    except ManifestError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ManifestError(f"{file}: {reason}") from error


def _expect_regular(file: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ManifestError(f"{file}: is a folder; expected a manifest")
    if not stat.S_ISREG(status.st_mode):
        raise ManifestError(f"{file}: is a pipe or device, which is not opened; expected a file")


def _listed(file: Path, errors: list[str], complete: bool = True) -> str:
    """Name the first errors, one a line, and how many more there are, or are at least."""
    lines = [f"{file}: no readable manifest", *errors[:10]]
    if len(errors) > 10:
        lines.append(f"and {'' if complete else 'at least '}{len(errors) - 10} more")
    return "\n  ".join(lines)
