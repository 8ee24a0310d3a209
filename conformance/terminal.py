"""Text on its way to a terminal: nothing hostile gets through, and every encoding works."""

import codecs
import os
import shutil
import sys
from io import StringIO
from typing import TextIO

from rich.console import Console, RenderableType

UNWRAPPED = 10_000
"""Columns of output that goes to a file or a pipe, where wrapped lines would only hurt."""

_PLAIN = {"✓": "+", "✗": "x", "×": "x", "…": "~", "–": "-", "·": "-", "≤": "<", "†": "*"}
"""What our own marks become on an output that cannot show them: one column each, as before."""


def visible(text: str, longest: int = 160) -> str:
    """Return the text on one line, with escapes for what a terminal would obey or hide.

    Control characters, escape sequences, marks that change the direction of writing, other
    invisible characters and lone surrogates become escapes as Python writes them; a text that
    is longer than `longest` loses its middle.
    """
    if len(text) > longest:
        head, tail = longest * 2 // 3, longest // 4
        text = f"{text[:head]} … {text[-tail:]} ({len(text):,} characters)"
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii")
        for mark in text
    )


def wants_colour(stream: TextIO) -> bool:
    """Say whether to colour: on a terminal that can, unless NO_COLOR asks not to."""
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


def columns(stream: TextIO) -> int:
    """Return the columns to fill: those of the terminal, or of COLUMNS where that is set."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return max(shutil.get_terminal_size().columns, 40)
    return UNWRAPPED


def render(*parts: RenderableType, width: int, colour: bool) -> str:
    """Lay out the parts, one below the other. Strings in them are text, never markup."""
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=width,
        height=25,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def write(text: str, stream: TextIO | None = None) -> None:
    """Write the text. A reader that went away early, such as `head`, is no error.

    Raises OSError where the stream cannot be written, a full disk for instance.
    """
    stream = stream or sys.stdout
    try:
        stream.write(plain(text, stream.encoding or "ascii"))
        stream.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends; give it something that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def plain(text: str, encoding: str) -> str:
    """Replace what the encoding cannot express, our own marks by look-alikes."""
    return text.encode(encoding, "nibblespec-plain").decode(encoding)


def _plain_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    piece = error.object[error.start : error.end]
    marks = (_PLAIN.get(mark) or mark.encode("unicode_escape").decode("ascii") for mark in piece)
    return "".join(marks), error.end


codecs.register_error("nibblespec-plain", _plain_marks)
