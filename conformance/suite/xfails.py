"""The file of expected failures, which the owner of a backend keeps.

One entry a line, `REQUIREMENT-ID [test] reason`; `#` starts a comment line. With a test (the name
of a test function, `test_...`) the entry is for that test alone, otherwise for every test of the
requirement.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nibblespec.conformance.suite.files import UnreadableError, read_whole
from nibblespec.conformance.terminal import visible

MOST_BYTES = 1 << 20


class XfailsError(Exception):
    """The file cannot be read, or a line of it makes no sense."""


@dataclass(frozen=True, slots=True)
class Xfail:
    """One expected failure. An empty test stands for every test of the requirement."""

    requirement: str
    test: str
    reason: str


def read_xfails(path: Path, known: Collection[str]) -> tuple[Xfail, ...]:
    """Read the entries of a file; `known` are the requirement ids that exist.

    Raises XfailsError, naming file and line, on anything that is no entry.
    """
    try:
        text = read_whole(path, MOST_BYTES).decode("utf-8")
    except UnreadableError as error:
        raise XfailsError(f"--xfails-file {error}") from error
    except UnicodeDecodeError as error:
        raise XfailsError(f"--xfails-file {path}: cannot be read: {error}") from error
    return tuple(
        _entry(line, f"{path}:{number}", known)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def find_xfail(
    entries: Collection[Xfail], requirements: Collection[str], test: str
) -> Xfail | None:
    """Return the entry that is for a test of these requirements; `test` is its function's name."""
    return next(
        (
            entry
            for entry in entries
            if entry.requirement in requirements and entry.test in ("", test)
        ),
        None,
    )


def _entry(line: str, where: str, known: Collection[str]) -> Xfail:
    requirement, *rest = line.split()
    if requirement not in known:
        raise XfailsError(f"{where}: expected a requirement id, found '{visible(requirement)}'")
    test = rest.pop(0) if rest and rest[0].startswith("test_") else ""
    if not rest:
        raise XfailsError(f"{where}: expected 'REQUIREMENT-ID [test] reason', found no reason")
    return Xfail(requirement, test, " ".join(rest))
