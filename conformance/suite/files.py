"""Files that the user names: read within bounds, written whole, refused before a long run."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from nibblespec.conformance.artifacts.reading.folder import irregularity, read_bounded

_ABSENT = "no such file"  # as `irregularity` says it
_WITHOUT_END = ("a pipe", "a device", "a socket")
_NOT_OPENED = "is a pipe or device, which is not opened; expected a file"


class UnreadableError(Exception):
    """A file cannot be read; the message is one line that begins with its path."""


def read_whole(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes. Raises UnreadableError."""
    try:
        found = irregularity(path)
        if found in _WITHOUT_END:
            raise UnreadableError(f"{path}: {_NOT_OPENED}")
        if found:
            raise UnreadableError(f"{path}: cannot be read: expected a file, found {found}")
        data = read_bounded(path, most)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise UnreadableError(f"{path}: cannot be read: expected at most {most:,} bytes")
    return data


def refusal(path: Path, inputs: Sequence[Path] = ()) -> str:
    """Say why no report is to be written to a path; empty where it may be.

    Nothing is opened or made. `inputs` are files that the report must not take the place of.
    """
    if path.suffix not in (".json", ".md"):
        return f"expected a .json or .md file, found {path}"
    final = Path(os.path.realpath(path))
    if not final.parent.is_dir():
        return f"no folder {final.parent}"
    try:
        found = irregularity(final)
    except OSError as error:
        return f"{path}: cannot be written: {error.strerror or error}"
    if found in _WITHOUT_END:
        return f"{path}: {_NOT_OPENED}"
    if found not in ("", _ABSENT):
        return f"{path}: cannot be written: expected a .json or .md file, found {found}"
    for one in inputs:
        if not found and one.exists() and os.path.samefile(one, final):
            return f"{path}: would take the place of {one}, which is read; name another file"
    return ""


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OSError, also in place of what is no file."""
    final = Path(os.path.realpath(path))
    # A device would be replaced, where the user may do that.
    if (found := irregularity(final)) not in ("", _ABSENT):
        raise OSError(errno.EEXIST, f"expected a file, found {found}", str(path))
    # The draft's name stays short where the file's is as long as names may be.
    draft = final.with_name(f".{final.name[:50]}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(final)
    finally:
        draft.unlink(missing_ok=True)
