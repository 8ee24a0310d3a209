"""The folder that a conversion writes: the old one or the new one, whole, at any moment.

Everything is written into a hidden folder beside it, the manifest last, synced to disk, and then
renamed. A folder without a manifest is no checkpoint, so that what a killed conversion leaves
behind is never taken for one. Whoever writes a hidden folder holds a lock on it, which ends with
the process: the next conversion to the same place removes what nobody holds.
"""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from nibblespec.optimized.convert.bitnest import CHECKSUMS
from nibblespec.optimized.convert.copies import PATTERNS
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.files import SHARDS
from nibblespec.optimized.convert.source import INDEX, SINGLE
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES
from nibblespec.spec.formats import FORMATS

MANIFESTS = tuple(known.manifest_name for known in FORMATS)

REPLACED = (
    "config.json",
    *MANIFESTS,
    *(SINGLE, INDEX, SHARDS),
    *(PLANES, AUX, CHECKSUMS),
    *PATTERNS,
)
"""Patterns of the names that conversions write: what else a folder holds, nobody could restore."""

MOST_LISTED = 3

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def replacing(out: Path, source: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder; rename it to `out` where the block ends well, remove it where not.

    Raises ConversionError as `check_out` does, also where that has changed in the meantime.
    """
    check_out(out, source, overwrite=overwrite)
    parent = out.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(out)
        temporary, lock = _held_folder(out)
    except OSError as error:
        raise ConversionError(f"{parent}: cannot be written: {error.strerror}") from error
    try:
        yield temporary
        temporary.chmod(0o755)
        sync_folder(temporary)
        check_out(out, source, overwrite=overwrite)
        _publish(temporary, out, overwrite=overwrite)
        sync_folder(parent)
    finally:
        _remove(temporary)  # after an exchange, the old folder
        os.close(lock)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder reach the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_out(out: Path, source: Path, *, overwrite: bool) -> None:
    """Require a place where a checkpoint can be written.

    Raises ConversionError where `out` is there already and is not to be overwritten, is a link or
    no checkpoint, holds the source or what no conversion writes, or is where the file system takes
    no such name, or none at all.
    """
    try:
        here, there = (Path(os.path.realpath(path)) for path in (out, source))
        # The root holds every model: what follows can count on a parent.
        if here == there or here in there.parents:
            raise ConversionError(f"{out}: holds the model that is converted; name another folder")
        if here == Path.cwd():
            raise ConversionError(f"{out}: is the current folder; name a new one inside it")
        _check_place(out.absolute())
    except OSError as error:
        raise ConversionError(f"{out}: cannot be written: {error.strerror}") from error
    if out.is_symlink():
        raise ConversionError(
            f"{out}: is there already, as a link, which is not followed; "
            "name the folder that it leads to, or a new one"
        )
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise ConversionError(
            f"{out}: is there already; name a new folder, or have it overwritten (--overwrite)"
        )
    if not out.is_dir() or not any((out / name).is_file() for name in MANIFESTS):
        raise ConversionError(
            f"{out}: is no checkpoint (it has no {' or '.join(MANIFESTS)}) and is not overwritten"
        )
    if others := _others(out):
        more = len(others) - MOST_LISTED
        listed = ", ".join(others[:MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
        raise ConversionError(
            f"{out}: holds what no conversion writes, and overwriting would remove: {listed}; "
            "move that elsewhere, or name another folder"
        )


def _others(out: Path) -> list[str]:
    """Return the entries of a folder that conversions do not write, folders with a slash."""
    with os.scandir(out) as entries:
        return sorted(
            f"{entry.name}/" if folder else entry.name
            for entry in entries
            if (folder := entry.is_dir(follow_symlinks=False))
            or not any(fnmatchcase(entry.name, pattern) for pattern in REPLACED)
        )


def _check_place(path: Path) -> None:
    """Raise OSError for a name that is too long, and where nothing can be written.

    That is said of folders that are not there yet, too.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
    there = next(folder for folder in path.parents if folder.is_dir())
    for name in path.relative_to(there).parts:
        with suppress(FileNotFoundError):
            (there / name).lstat()
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _hidden(out: Path, what: str) -> str:
    """Return how names of hidden folders beside `out` begin; all fit the file system's limit."""
    name = out.name
    while len(os.fsencode(name)) > 100:  # by characters: some file systems take UTF-8 alone
        name = name[:-1]
    return f".{name}-nibblespec-{what}-"


def _held_folder(out: Path) -> tuple[Path, int]:
    """Return a new folder beside `out`, and the descriptor that keeps others from removing it."""
    while True:
        parent = out.absolute().parent
        folder = Path(tempfile.mkdtemp(prefix=_hidden(out, "unfinished"), dir=parent))
        with suppress(FileNotFoundError):  # somebody took it for an orphan in the meantime
            descriptor = os.open(folder, os.O_RDONLY)
            if _lock(descriptor) is not False and folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a folder; return False where somebody else has, None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_orphans(out: Path) -> None:
    """Remove what conversions to `out` have left behind that were killed, and no others."""
    name = re.compile(re.escape(_hidden(out, "unfinished")) + "[a-z0-9_]{8}")
    for folder in out.absolute().parent.iterdir():
        if not name.fullmatch(folder.name):
            continue
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _lock(descriptor):
                    _remove(folder)
            finally:
                os.close(descriptor)


def _publish(temporary: Path, out: Path, *, overwrite: bool) -> None:
    if overwrite and out.is_dir() and any(out.iterdir()):
        if not _exchange(temporary, out):
            _replace(temporary, out)
        return
    try:
        temporary.rename(out)
    except OSError as error:
        raise ConversionError(f"{out}: cannot be written: {error.strerror}") from error


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; return False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise ConversionError(f"{second}: cannot be replaced: {os.strerror(number)}")


def _replace(temporary: Path, out: Path) -> None:
    """Replace `out` in two steps: whoever looks between them finds neither, but the old is kept.

    What is killed there leaves the old one under a name that no conversion removes.
    """
    old = Path(tempfile.mkdtemp(prefix=_hidden(out, "old"), dir=out.absolute().parent))
    out.rename(old)
    try:
        temporary.rename(out)
    except BaseException:
        old.rename(out)
        raise
    old.rename(temporary)


def _remove(folder: Path) -> None:
    """Remove a folder, its manifest first: half of a checkpoint is none."""
    for name in MANIFESTS:
        with suppress(OSError):
            (folder / name).unlink()
    shutil.rmtree(folder, ignore_errors=True)
