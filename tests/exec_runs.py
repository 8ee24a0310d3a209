"""Running the suite on adapters, for tests of the exec protocol."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nibblespec.conformance.exec.backend import ExecBackend
from nibblespec.conformance.suite.run import Outcome, run

ADAPTER = Path(__file__).parent / "exec_adapters" / "adapter.py"
SECONDS = 2.0
"""Limit of time for adapters that do not answer."""
PLENTY = 60.0
"""Limit of time for those that do, on a busy machine."""


def command(fault: str = "") -> str:
    """Return the command that starts the test adapter with a fault."""
    # Without the packages of this environment, it starts several times as fast.
    return shlex.join([sys.executable, "-ISE", str(ADAPTER), *([fault] if fault else [])])


@contextmanager
def started(program: str, seconds: float = PLENTY) -> Iterator[ExecBackend]:
    """Start an adapter as a backend, and end it. The limit of time is for calls after the start."""
    backend = ExecBackend(program, PLENTY)
    assert backend._adapter is not None
    backend._adapter._seconds = seconds
    try:
        yield backend
    finally:
        backend.close()


def suite(
    program: str,
    *,
    files: Sequence[str],
    select: str = "",
    seconds: float = PLENTY,
    shrink: bool = True,
    max_examples: int = 25,
) -> Outcome:
    """Run tests of the suite on an adapter."""
    with started(program, seconds) as backend:
        return run(backend, files=files, select=select, shrink=shrink, max_examples=max_examples)


def results(outcome: Outcome) -> dict[str, str]:
    """Return results by the names of the test functions."""
    return {one.test.partition("::")[2]: one.result for one in outcome.results}


def messages(outcome: Outcome, result: str) -> list[str]:
    """Return what is said of the tests with a result."""
    return [one.message for one in outcome.results if one.result == result]
