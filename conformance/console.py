"""What commands share: exit statuses, and what they say to the user."""
# ruff: noqa: PLC0415

import sys
from contextlib import suppress
from enum import StrEnum
from typing import NoReturn

import typer

FOUND_ERRORS = 1
COULD_NOT_RUN = 2


class Layout(StrEnum):
    """How an inspection is written."""

    text = "text"
    json = "json"


def terminal() -> tuple[int, bool]:
    """Return the columns of standard output and whether to colour it."""
    from nibblespec.conformance.terminal import columns, wants_colour

    return columns(sys.stdout), wants_colour(sys.stdout)


def put(text: str) -> None:
    """Write text to standard output; end the command where that cannot be."""
    from nibblespec.conformance.terminal import write

    try:
        write(text, sys.stdout)
    except OSError as error:
        fail(f"cannot write the output: {error.strerror or error}")


def complain(message: str) -> None:
    """Write one line to standard error, if it can be."""
    from nibblespec.conformance.terminal import visible, write

    with suppress(OSError):
        write(f"nibblespec: {visible(message, 400)}\n", sys.stderr)


def fail(message: str) -> NoReturn:
    """End the command: it could not run."""
    complain(message)
    raise typer.Exit(COULD_NOT_RUN)


def version() -> str:
    """Return the version of the package."""
    from importlib import metadata

    return metadata.version("nibblespec")


def expect_name(name: str, what: str) -> None:
    """End the command where a name is empty: Python takes such a path for the current folder."""
    if not name.strip():
        fail(f"expected {what}, found an empty name: '{name}'")
