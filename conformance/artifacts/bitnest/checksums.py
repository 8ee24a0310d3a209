"""checksums.sha256 of a bitnest package: its lines, the files that they name, their digests."""

import errno
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.blocks import (
    BLOCK,
    Run,
    Source,
    StoppedError,
    read_into,
    reading,
)
from nibblespec.conformance.artifacts.reading.folder import (
    CONFIG,
    Folder,
    irregularity,
    leads_out,
    list_folder,
    read_bounded,
)
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES

CHECKSUMS = "checksums.sha256"
MAX_BYTES = 2**24

_UNQUOTED = "(not shown: the list is a link out of the folder)"
_NAMED = ("meta.json", PLANES, AUX, CONFIG)
_LINE = re.compile(r"(?P<digest>[0-9A-Fa-f]{64}) (?P<marker>[ *])(?P<name>[^\r]+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Line:
    """A well-formed line of the file."""

    number: int
    digest: str
    """In lower case."""
    marker: str
    name: str
    """Relative to the folder, without a `./` in front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums:
    """What the file says, and what there is."""

    path: Path
    """The folder."""
    folder: Folder
    size: int = 0
    """Bytes of the file, MAX_BYTES + 1 of a longer one."""
    text: str | None = None
    """None where the file is not regular, too long, or no UTF-8."""
    irregular: str = ""
    """What there is instead of a regular file; empty for a regular file."""
    elsewhere: bool = False
    """Whether the file is a link out of the folder, whose text is not to be quoted."""
    malformed: tuple[tuple[int, str], ...] = ()
    """Number and text of lines that are not as they should be."""
    lines: tuple[Line, ...] = ()
    present: frozenset[str] = frozenset()
    """Names among them that are safe to follow and lead to a regular file."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Actual digests of those."""


def read_checksums(path: Path) -> Checksums | None:
    """Read the file of a folder, None where nothing has its name.

    Raises OSError where it cannot be read.
    """
    folder = list_folder(path)
    if CHECKSUMS not in folder.names:
        return None
    if irregular := irregularity(path / CHECKSUMS):
        return Checksums(path=path, folder=folder, irregular=irregular)
    elsewhere = leads_out(path, CHECKSUMS)
    data = read_bounded(path / CHECKSUMS, MAX_BYTES)
    try:
        text = data.decode("utf-8") if len(data) <= MAX_BYTES else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        return Checksums(path=path, folder=folder, size=len(data), elsewhere=elsewhere)
    malformed: list[tuple[int, str]] = []
    lines: list[Line] = []
    for number, raw in enumerate(text.removesuffix("\n").split("\n") if text else [], start=1):
        match = _LINE.fullmatch(raw)
        if match is None:
            malformed.append((number, raw))
        else:
            name = match["name"].removeprefix("./")
            lines.append(Line(number, match["digest"].lower(), match["marker"], name))
    names = {line.name for line in lines if stays_inside(line.name)}
    return Checksums(
        path=path,
        folder=folder,
        size=len(data),
        text=text,
        elsewhere=elsewhere,
        malformed=tuple(malformed),
        lines=tuple(lines),
        present=frozenset(name for name in names if _is_file(path, name)),
    )


def _is_file(path: Path, name: str) -> bool:
    """Say whether a name leads to a regular file. Raises OSError where that cannot be found out."""
    try:
        return not irregularity(path / name)
    except ValueError:
        return False  # no file can have a name that the system's encoding cannot express
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def stays_inside(name: str) -> bool:
    """Say whether a name is relative and leads to a place in the folder (BN1-CHECKSUMS-NAMES)."""
    parts = name.split("/")
    return not (
        _CONTROL.search(name)
        or "\\" in name
        or ":" in name
        or any(part in ("", ".", "..") for part in parts)
    )


def digest_of(source: Source, run: Run) -> str:
    """Return the SHA-256 of a file. Raises OSError and StoppedError as `read_blocks`."""
    digest = hashlib.sha256()
    buffer = np.empty(min(BLOCK, max(source.size, 1)), np.uint8)
    with reading(source) as stream:
        for position in range(0, source.size, BLOCK):
            if run.stop.is_set():
                raise StoppedError
            block = buffer[: min(BLOCK, source.size - position)]
            read_into(stream, block, position, source)
            digest.update(block.data)
            run.read.put(len(block))
    return digest.hexdigest()


def _quoted(checksums: Checksums, text: str) -> str:
    """Return a piece of the file as a finding may show it."""
    return _UNQUOTED if checksums.elsewhere else show(text)


def _lines(checksums: Checksums) -> Iterator[Problem]:
    if checksums.irregular:
        yield Problem(
            message="the list of checksums is no regular file",
            expected="a regular file, or nothing of that name",
            found=checksums.irregular,
        )
    elif checksums.text is None:
        too_long = checksums.size > MAX_BYTES
        yield Problem(
            message="the list of checksums cannot be read",
            expected=f"at most {MAX_BYTES:,} bytes of UTF-8",
            found="more" if too_long else "bytes that are no UTF-8",
        )
    for number, raw in checksums.malformed:
        carriage = raw.endswith("\r")
        yield Problem(
            message="a line of the list of checksums is malformed",
            expected="64 hexadecimal digits, two spaces and a file name",
            found="a CR before the end of the line" if carriage else _quoted(checksums, raw),
            hint="write the file with LF at the ends of lines" if carriage else "",
            line=number,
            column=1,
        )


def _marker(checksums: Checksums) -> Iterator[Problem]:
    for line in checksums.lines:
        if line.marker == "*":
            yield Problem(
                message="a name has the marker of binary mode",
                expected="two spaces before the name",
                found=f"a space and * before {_quoted(checksums, line.name)}",
                line=line.number,
                column=65,
            )


def _names(checksums: Checksums) -> Iterator[Problem]:
    for line in checksums.lines:
        if not stays_inside(line.name):
            yield Problem(
                message="a name in the list of checksums leads out of the folder, or nowhere",
                expected="a relative name without `..`, `\\` and control characters",
                found=_quoted(checksums, line.name),
                hint="it was not followed",
                line=line.number,
                column=67,
            )


def _unique(checksums: Checksums) -> Iterator[Problem]:
    counts = Counter(line.name for line in checksums.lines)
    seen: set[str] = set()
    for line in checksums.lines:
        if counts[line.name] > 1 and line.name in seen:
            yield Problem(
                message="a name is in the list of checksums more than once",
                expected="each name once",
                found=f"{_quoted(checksums, line.name)} {counts[line.name]:,} times",
                line=line.number,
                column=67,
            )
        seen.add(line.name)


def _files(checksums: Checksums) -> Iterator[Problem]:
    for line in checksums.lines:
        if stays_inside(line.name) and line.name not in checksums.present:
            yield Problem(
                message="a file of the list of checksums is missing",
                expected=f"the file {_quoted(checksums, line.name)}",
                found="no such regular file",
                line=line.number,
                column=67,
            )


def _match(checksums: Checksums) -> Iterator[Problem]:
    for line in checksums.lines:
        actual = checksums.digests.get(line.name)
        if actual is not None and actual != line.digest:
            yield Problem(
                message="a file is not the one that its checksum was taken of",
                file=line.name,
                expected=f"SHA-256 {_UNQUOTED if checksums.elsewhere else line.digest}",
                found=actual,
                hint="it was changed afterwards, or damaged on its way: copy it again",
            )


def _complete(checksums: Checksums) -> Iterator[Problem]:
    if checksums.text is None:
        return
    named = {line.name for line in checksums.lines}
    for name in _NAMED:
        if name not in named and _is_file(checksums.path, name):
            yield Problem(
                message="the list of checksums lacks a file of the package",
                expected=f"a line for {name}",
                found="none",
            )


def _unlisted(checksums: Checksums) -> Iterator[Problem]:
    if checksums.text is None:
        return
    named = {line.name for line in checksums.lines} | {CHECKSUMS, *_NAMED}
    folder = checksums.folder
    for name in (*folder.names, *folder.nested):
        hidden = any(part.startswith(".") for part in name.split("/"))
        if name not in named and not hidden and _is_file(checksums.path, name):
            yield Problem(
                message="a file is not in the list of checksums",
                file=name,
                expected="a line for each file",
                found="none",
            )


CHECKSUM_RULES: Mapping[str, Rule[Checksums]] = {
    "BN1-CHECKSUMS-LINES": _lines,
    "BN1-CHECKSUMS-MARKER": _marker,
    "BN1-CHECKSUMS-NAMES": _names,
    "BN1-CHECKSUMS-UNIQUE": _unique,
    "BN1-CHECKSUMS-FILES": _files,
    "BN1-CHECKSUMS-MATCH": _match,
    "BN1-CHECKSUMS-COMPLETE": _complete,
    "BN1-CHECKSUMS-UNLISTED": _unlisted,
}
"""What the list of checksums has to satisfy."""
