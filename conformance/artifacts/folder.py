"""The files of a checkpoint's folder: which there are, and what their names alone tell."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """Of its subfolders, what is in `rotation` and what has the name of a pickle."""
    rotation: bool
    """Whether the format keeps a pickle under `rotation/`, which is then no surprise."""


def list_folder(path: Path, *, rotation: bool) -> Folder:
    """List a folder and its direct subfolders. Raises OSError where it cannot be listed."""
    names: list[str] = []
    nested: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                nested.extend(_telling(entry.path, entry.name))
    return Folder(
        path=path, names=tuple(sorted(names)), nested=tuple(sorted(nested)), rotation=rotation
    )


def _telling(path: str, name: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        for entry in entries:
            if name == "rotation" or entry.name.endswith(_PICKLES):
                yield f"{name}/{entry.name}"


def safetensors_names(folder: Folder) -> list[str]:
    """Return the names that promise a safetensors file."""
    return [name for name in folder.names if name.endswith(SUFFIX)]


def irregularity(path: Path) -> str:
    """Say what a path leads to where that is no regular file; empty for a regular file.

    Raises OSError where that cannot be found out.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads to itself"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return "a link that leads nowhere" if path.is_symlink() else "no such file"
        raise
    return "" if kind == stat.S_IFREG else _KINDS.get(kind, "something else")


_KINDS: Mapping[int, str] = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """Open a file that is known to be regular: its descriptor and size, while nothing changes it.

    Raises OSError where it cannot be opened, and where it turns out to have changed: a pipe in
    its place, another size, another time of writing.
    """
    # Without O_NONBLOCK, a pipe that took the file's place since then would block for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise changed(path)
        yield descriptor, before.st_size
        after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise changed(path)
    finally:
        os.close(descriptor)


def changed(path: Path) -> OSError:
    """Return the error that a file is not the one it was."""
    reason = "the file changed while it was read; validate again when nothing writes to it"
    return OSError(errno.EBUSY, reason, str(path))


def read_exactly(descriptor: int, count: int) -> bytes:
    """Read `count` bytes, fewer only where the file ends before."""
    parts: list[bytes] = []
    while count > 0 and (part := os.read(descriptor, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_bounded(path: Path, limit: int) -> bytes:
    """Read at most limit + 1 bytes of a regular file. Raises OSError as `opened`."""
    with opened(path) as (descriptor, size):
        return read_exactly(descriptor, min(size, limit + 1))


def _links(folder: Folder) -> Iterator[Problem]:
    home = folder.path.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    for name in folder.names:
        link = folder.path / name
        if not name.endswith((SUFFIX, ".json")) or not link.is_symlink() or irregularity(link):
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
