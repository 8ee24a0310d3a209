"""The files of a bitnest package, by their names."""

from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.reading.folder import INDEX, Folder, safetensors_names
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES


def _tensors(folder: Folder) -> Iterator[Problem]:
    for name in (PLANES, AUX):
        if name not in folder.names:
            yield Problem(
                message="a tensor file is missing", file=name, expected=name, found="no such file"
            )


def _extra(folder: Folder) -> Iterator[Problem]:
    extra = {*safetensors_names(folder), *({INDEX} & set(folder.names))} - {PLANES, AUX}
    for name in sorted(extra):
        yield Problem(
            message="a tensor file or index is not part of a package",
            file=name,
            expected=f"{PLANES} and {AUX} alone",
            found="a file that no reader opens",
            hint="remove it",
        )


def _rotation(folder: Folder) -> Iterator[Problem]:
    for name in folder.nested:
        if name.startswith("rotation/"):
            yield Problem(
                message="the rotation is a pickle; it was not opened, and no reader needs it",
                file=name,
                expected="no need to load it",
                found="a file under rotation/",
            )


def _leftover(folder: Folder) -> Iterator[Problem]:
    for name in folder.names:
        if name.endswith(".pre_lmhead"):
            yield Problem(
                message="a leftover from before the output layer was nested; it means nothing",
                file=name,
                expected="no such file",
                found="a name that ends in .pre_lmhead",
            )


BITNEST_FILE_RULES: Mapping[str, Rule[Folder]] = {
    "BN1-FILES-TENSORS": _tensors,
    "BN1-FILES-EXTRA": _extra,
    "BN1-FILES-ROTATION": _rotation,
    "BN1-FILES-LEFTOVER": _leftover,
}
"""What the names of a package's files have to satisfy."""
