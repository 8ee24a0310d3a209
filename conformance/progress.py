"""A progress bar for what takes long: on a terminal alone, and on standard error alone."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from nibblespec.conformance.artifacts.validate import Progress
from nibblespec.conformance.interrupts import cleaning_up
from nibblespec.conformance.terminal import visible, wants_colour


@contextmanager
def progress_bar(title: str, stream: TextIO | None = None) -> Iterator[Progress | None]:
    """Yield what draws how far a run is, None where nobody would see it.

    The bar appears at the first call and is wiped off in the end, whatever ends the run: the
    terminal gets its cursor back.
    """
    stream = stream or sys.stderr
    if not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield None
        return
    with ExitStack() as stack:
        draw: Progress | None = None

        def tell(done: int, total: int) -> None:
            nonlocal draw
            if draw is None:
                stack.enter_context(cleaning_up())
                draw = stack.enter_context(_drawing(title, stream))
            draw(done, total)

        yield tell


@contextmanager
def _drawing(title: str, stream: TextIO) -> Iterator[Progress]:
    from rich.console import Console  # noqa: PLC0415 (late, as most runs draw nothing)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=stream, no_color=not wants_colour(stream))
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(visible(title, 40), total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
