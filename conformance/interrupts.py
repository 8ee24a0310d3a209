"""Ctrl-C and SIGTERM: most of a run may end at once, some of it has to be cleaned up first."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""The exit status after SIGTERM where there was something to clean up, as shells count it."""


def end_at_once() -> None:
    """Let Ctrl-C end the process as SIGTERM does, and without a word.

    Python's own handler waits for code in C that looks at no signal, such as the reading of a
    long document. Where whoever started the process wants Ctrl-C to be ignored, it is.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt and SIGTERM SystemExit, for the time being."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(TERMINATED)
