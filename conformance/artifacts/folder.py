"""The files of a checkpoint's folder: which there are, and what their names alone tell."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nibblespec.conformance.artifacts.findings import Problem, Rule

SUFFIX = ".safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What lies in a folder, by name, sorted. Nothing is opened."""

    path: Path
    names: tuple[str, ...]
    """Every name in the folder, whatever kind of file it is."""
    nested: tuple[str, ...]
    """Names in its direct subfolders, as `rotation/R.bin`."""
    rotation: bool
    """Whether the format keeps a pickle under `rotation/`, which is then no surprise."""

    @property
    def safetensors(self) -> list[str]:
        """Names in the folder that promise a safetensors file."""
        return [name for name in self.names if name.endswith(SUFFIX)]


def list_folder(path: Path, *, rotation: bool) -> Folder:
    """List a folder and its direct subfolders. Raises OSError where it cannot be listed."""
    names = sorted(os.listdir(path))
    nested: list[str] = []
    for name in names:
        child = path / name
        if not name.startswith(".") and child.is_dir() and not child.is_symlink():
            nested.extend(f"{name}/{inner}" for inner in sorted(os.listdir(child)))
    return Folder(path=path, names=tuple(names), nested=tuple(nested), rotation=rotation)


def is_regular(path: Path) -> bool:
    """Say whether a path is, or leads to, a regular file: the only kind that is ever opened."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def read_bounded(path: Path, limit: int) -> bytes:
    """Read at most limit + 1 bytes of a regular file. Raises OSError."""
    with path.open("rb") as stream:
        return stream.read(limit + 1)


def _links(folder: Folder) -> Iterator[Problem]:
    home = folder.path.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    for name in folder.names:
        link = folder.path / name
        if not name.endswith((SUFFIX, ".json")) or not link.is_symlink() or not is_regular(link):
            continue
        target = link.resolve()
        if not target.is_relative_to(home) and target.parent != blobs:
            yield Problem(
                message="a link leads out of the folder: a copy of the folder lacks the file",
                file=name,
                expected="a file of its own, or a link inside the folder",
                found=f"a link to {os.readlink(link)}",
            )


def _pickles(folder: Folder) -> Iterator[Problem]:
    for name in (*folder.names, *folder.nested):
        if name.endswith(_PICKLES) and not (folder.rotation and name.startswith("rotation/")):
            yield Problem(
                message="this looks like a pickle, which runs its publisher's code when loaded",
                file=name,
                expected="safetensors files alone",
                found=f"a name that ends in {os.path.splitext(name)[1]}",
                hint="it was not opened; remove it if nothing needs it",
            )


FOLDER_RULES: Mapping[str, Rule[Folder]] = {
    "ST-FILE-LINK": _links,
    "ST-FILE-PICKLE": _pickles,
}
"""What the names in a folder have to satisfy."""
