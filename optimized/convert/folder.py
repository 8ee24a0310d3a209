"""The folder that a conversion writes: the old one or the new one, whole, at any moment.

Everything is written into a hidden folder beside it, the manifest last, synced to disk, and then
renamed. A folder without a manifest is no checkpoint, so that what a killed conversion leaves
behind is never taken for one.
"""

import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.spec.formats import FORMATS

MANIFESTS = tuple(known.manifest_name for known in FORMATS)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def replacing(out: Path, source: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder; rename it to `out` where the block ends well, remove it where not.

    Raises ConversionError where `out` is there already and is not to be overwritten, is no
    checkpoint, or holds the source.
    """
    _check(out, source, overwrite=overwrite)
    parent = out.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}-", dir=parent))
    except OSError as error:
        raise ConversionError(f"{parent}: cannot be written: {error.strerror}") from error
    try:
        yield temporary
        temporary.chmod(0o755)
        sync_folder(temporary)
        _publish(temporary, out)
        sync_folder(parent)
    finally:
        _remove(temporary)  # after an exchange, the old folder


def sync_folder(folder: Path) -> None:
    """Have the names in a folder reach the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(out: Path, source: Path, *, overwrite: bool) -> None:
    here, there = out.resolve(), source.resolve()
    if here == there or here in there.parents:
        raise ConversionError(f"{out}: holds the model that is converted; name another folder")
    if here == Path.cwd():
        raise ConversionError(f"{out}: is the current folder; name a new one inside it")
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise ConversionError(
            f"{out}: is there already; name a new folder, or have it overwritten (--overwrite)"
        )
    if (
        out.is_symlink()
        or not out.is_dir()
        or not any((out / name).is_file() for name in MANIFESTS)
    ):
        raise ConversionError(
            f"{out}: is no checkpoint (it has no {' or '.join(MANIFESTS)}) and is not overwritten"
        )


def _publish(temporary: Path, out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
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
    """Replace `out` in two steps: whoever looks between them finds neither, but the old is kept."""
    old = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}-old-", dir=out.absolute().parent))
    out.rename(old)
    try:
        temporary.rename(out)
    except BaseException:
        old.rename(out)
        raise
    _remove(old)


def _remove(folder: Path) -> None:
    """Remove a folder, its manifest first: half of a checkpoint is none."""
    for name in MANIFESTS:
        with suppress(OSError):
            (folder / name).unlink()
    shutil.rmtree(folder, ignore_errors=True)
