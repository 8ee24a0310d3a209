"""Running the suite from Python: on a backend object, in this process."""

import contextlib
import io
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from nibblespec.conformance import plugin
from nibblespec.conformance.interrupts import TERMINATED
from nibblespec.conformance.suite import session
from nibblespec.conformance.suite.outcomes import Terminated
from nibblespec.conformance.suite.results import TestResult
from nibblespec.spec.operations import Backend

SUITE = Path(__file__).parent

ARGUMENTS = (
    "-p",
    "no:cacheprovider",
    # The folder where the user stands may have a configuration of its own; it is not ours.
    "-c",
    os.devnull,
    f"--rootdir={SUITE}",
    "--import-mode=importlib",
    "--no-header",
    "--strict-markers",
    "-ra",
)
"""Arguments that make a run the same wherever it is started."""

AMBIENT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
"""Variables by which an environment changes what pytest does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found: pytest's exit status, its results, and what it printed."""

    exit_status: int
    results: tuple[TestResult, ...]
    output: str


@dataclass(slots=True, eq=False)  # pytest 8.4 keeps plugins in a set
class _Hooks:
    """Puts the preset into a run and keeps hold of its results."""

    preset: session.Preset
    results: list[TestResult]
    terminable: bool = False
    interrupted: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[session.PRESET] = self.preset
        # Before, nothing in pytest would take it for the end of a run.
        if self.terminable and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, _terminate)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.interrupted = not isinstance(excinfo.value, Terminated)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        collector = config.stash.get(session.COLLECTOR, None)  # a signal may end the start
        self.results.extend(collector.results if collector is not None else ())


def run(
    backend: Backend,
    *,
    files: Sequence[str] = (),
    select: str = "",
    max_examples: int = plugin.DEFAULT_MAX_EXAMPLES,
    seed: int = 0,
    shrink: bool = True,
    stop_at_first: bool = False,
    arguments: Sequence[str] = (),
) -> Outcome:
    """Run the suite on a backend object and return what was found. Nothing is printed.

    `files` are names of test files of the suite (all where none is given), `select` is an
    expression for pytest's -k, `arguments` are further arguments of pytest.
    """
    hooks = _Hooks(session.Preset(backend=backend, shrink=shrink), [])
    chosen = [str(SUITE / name) for name in files] or [str(SUITE)]
    options = [f"--max-examples={max_examples}", f"--hypothesis-seed={seed}"]
    options += ["-k", select] if select else []
    options += ["--maxfail=1"] if stop_at_first else []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = _run([*chosen, *options, *arguments], hooks)
    return Outcome(status, tuple(hooks.results), printed.getvalue())


def run_installed(arguments: Sequence[str]) -> int:
    """Run the suite as `nibblespec conformance` does, with the given arguments of pytest.

    SIGTERM ends the run, with the status TERMINATED; what it does before is the caller's affair.
    Raises KeyboardInterrupt after Ctrl-C, when the report is written.
    """
    hooks = _Hooks(session.Preset(command="nibblespec conformance"), [], terminable=True)
    with tempfile.TemporaryDirectory() as folder:
        # Hypothesis would leave a folder of its notes where the user stands.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", folder)
        before = signal.getsignal(signal.SIGTERM)
        try:
            status = _run([str(SUITE), *arguments], hooks)
        finally:
            signal.signal(signal.SIGTERM, before)
    if hooks.interrupted:
        raise KeyboardInterrupt
    return status


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated("ended by SIGTERM", TERMINATED)


def _run(arguments: Sequence[str], hooks: _Hooks) -> int:
    # What the environment wants of pytest is for the user's own tests: --collect-only would pass.
    with mock.patch.dict(os.environ):
        for name in AMBIENT:
            os.environ.pop(name, None)
        # The plugin is handed over, not named by -p: it is imported already; pytest would warn.
        return int(pytest.main([*ARGUMENTS, *arguments], plugins=[hooks, plugin]))
