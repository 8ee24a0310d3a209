"""Writing an example to disk."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from nibblespec.conformance.examples.bitnest_faults import BITNEST_FAULTS
from nibblespec.conformance.examples.dashq_faults import DASHQ_FAULTS
from nibblespec.conformance.examples.faults import Fault
from nibblespec.conformance.examples.files import (
    EmptyFolder,
    Example,
    Files,
    Link,
    checksums_of,
    render,
)
from nibblespec.conformance.examples.models import (
    BITNEST,
    DASHQ,
    bitnest_example,
    dashq_example,
)

FAULTS: Mapping[str, Mapping[str, Fault]] = {DASHQ: DASHQ_FAULTS, BITNEST: BITNEST_FAULTS}
"""The faults that each format's example can have, by format and name."""

_EXAMPLES: Mapping[str, Callable[[], Example]] = {DASHQ: dashq_example, BITNEST: bitnest_example}


def example_files(format_id: str, fault: str | None = None) -> Files:
    """Return the files of a format's example, valid or with a named fault; nothing is written.

    Raises ValueError for a format or fault that does not exist.
    """
    if format_id not in _EXAMPLES:
        raise ValueError(f"format: expected {' or '.join(_EXAMPLES)}, found {format_id!r}")
    known = FAULTS[format_id]
    if fault is not None and fault not in known:
        similar = " or ".join(get_close_matches(fault, known)) or f"{next(iter(known))}, …"
        raise ValueError(f"fault: expected one that is listed, as {similar}, found {fault!r}")
    chosen = known[fault] if fault is not None else None
    example = _EXAMPLES[format_id]()
    if chosen is not None and chosen.edit is not None:
        chosen.edit(example)
    files = render(example)
    if chosen is not None and chosen.damage is not None:
        chosen.damage(files)
    if example.checksums:
        files["checksums.sha256"] = checksums_of(files)
    return files


def write_example(folder: Path, format_id: str, fault: str | None = None) -> None:
    """Write an example into a folder that does not exist yet, or is empty: all of it or nothing.

    Raises ValueError as `example_files`, FileExistsError where there is anything already, OSError
    where it cannot be written.
    """
    write_folder(folder, example_files(format_id, fault))


def write_folder(folder: Path, files: Files) -> None:
    """Write files into a folder that does not exist yet, or is empty: all of them or nothing.

    Raises FileExistsError where there is anything already, OSError where it cannot be written.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        reason = "is there already, and is no empty folder"
        raise FileExistsError(errno.EEXIST, reason, str(folder))
    if folder.resolve() == Path.cwd():
        reason = "is the current folder: name a new one inside it"
        raise FileExistsError(errno.EEXIST, reason, str(folder))
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}-", dir=parent))
    try:
        write_files(temporary, files)
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder that is there. Raises OSError."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        match content:
            case Link(target=target):
                path.symlink_to(target)
            case EmptyFolder():
                path.mkdir()
            case _:
                path.write_bytes(content)
