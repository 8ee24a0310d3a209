"""A checkpoint's folder, on this machine or on the Hub: its names, and how its files begin."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.spec.json_strict import MAX_BYTES

SUFFIX = ".safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a file begins."""

    file: str
    size: int = 0
    """Bytes of the whole file."""
    pieces: tuple[bytes, ...] = ()
    """Its first bytes, as they were asked for."""
    irregular: str = ""
    """What there is instead of a regular file; empty for a regular file."""


Extent = Callable[[tuple[bytes, ...], int], int]
"""Says how many more bytes of a file are wanted, given those there are and the file's size."""

Read = Callable[[Iterable[str], Extent], Iterator[Start]]
"""Reads how files begin, in the order of their names, as far as the extent of each goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What lies in a folder, by name, sorted. Only `read` opens anything."""

    place: str
    """Its path, or its address with the commit that is read."""
    names: tuple[str, ...]
    """Every name in the folder, whatever kind of file it is."""
    nested: tuple[str, ...]
    """Of its subfolders, what is in `rotation` and what has the name of a pickle."""
    strays: Mapping[str, str]
    """Links that lead out of the folder, with their targets."""
    read: Read
    rotation: bool = False
    """Whether the format keeps a pickle under `rotation/`, which is then no surprise."""


def list_folder(path: Path) -> Folder:
    """List a folder of this machine and its direct subfolders.

    Raises OSError where it cannot be listed. Its `read` raises OSError as `read_start`.
    """
    names: list[str] = []
    nested: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                with os.scandir(entry.path) as inside:
                    found = (f"{entry.name}/{each.name}" for each in inside)
                    nested.extend(filter(is_telling, found))
    return Folder(
        place=str(path),
        names=tuple(sorted(names)),
        nested=tuple(sorted(nested)),
        strays=dict(_strays(path, sorted(names))),
        read=lambda files, extent: (read_start(path / file, file, extent) for file in files),
    )


def is_telling(name: str) -> bool:
    """Say whether the name of a file in a subfolder is worth a look."""
    return name.startswith("rotation/") or name.endswith(_PICKLES)


def read_document(folder: Folder, name: str) -> Start:
    """Read a JSON document: all of it, up to the size that the reader refuses, in one piece."""
    [start] = folder.read((name,), lambda there, size: 0 if there else min(size, MAX_BYTES + 1))
    return start


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


def read_start(path: Path, file: str, extent: Extent) -> Start:
    """Read how a file begins, `file` being its name. Raises OSError as `opened`."""
    if found := irregularity(path):
        return Start(file=file, irregular=found)
    pieces: tuple[bytes, ...] = ()
    with opened(path) as (descriptor, size):
        while wanted := extent(pieces, size):
            piece = read_exactly(descriptor, wanted)
            if len(piece) < wanted:
                raise changed(path)
            pieces += (piece,)
    return Start(file=file, size=size, pieces=pieces)


def _strays(path: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the links among what is read that lead out of the folder, with their targets."""
    for name in names:
        if name.endswith((SUFFIX, ".json")) and leads_out(path, name):
            yield name, os.readlink(path / name)


def leads_out(path: Path, name: str) -> bool:
    """Say whether a name in a folder is a link to a file elsewhere (ST-FILE-LINK).

    Raises OSError where that cannot be found out.
    """
    link = path / name
    if not link.is_symlink() or irregularity(link):
        return False
    home, target = path.resolve(), link.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    return not target.is_relative_to(home) and target.parent != blobs


def _links(folder: Folder) -> Iterator[Problem]:
    for name, target in folder.strays.items():
        yield Problem(
            message="a link leads out of the folder: a copy of the folder lacks the file",
            file=name,
            expected="a file of its own, or a link inside the folder",
            found=f"a link to {target}",
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
