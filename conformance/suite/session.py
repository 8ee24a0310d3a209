"""What a run of the suite knows: the backend, its claims, expected failures, results so far.

It is kept in the stash of pytest's config and made when the first test of the suite is collected,
so that a run without such tests needs no backend.
"""

import re
import shlex
from dataclasses import dataclass

import pytest
from nibblespec.conformance.exec.backend import ExecBackend
from nibblespec.conformance.suite.backends import (
    BackendNotFoundError,
    checked_backend,
    claims,
    find_backend,
)
from nibblespec.conformance.suite.results import TestResult
from nibblespec.conformance.suite.trial import Trial
from nibblespec.conformance.suite.xfails import Xfail, XfailsError, find_xfail, read_xfails
from nibblespec.spec.operations import Backend, Capabilities
from nibblespec.spec.requirements import requirements

PROPERTY = "nibblespec"
"""Key under which a pytest report carries the test's result: it survives pytest-xdist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What `suite.run` sets besides the command line: a backend that has no name to import."""

    backend: Backend | None = None
    shrink: bool = True
    command: str = "pytest conformance"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a run of the suite is about."""

    backend: Backend
    capabilities: Capabilities
    xfails: tuple[Xfail, ...]


class Collector:
    """Keeps the results that reports bring, whichever process made them."""

    def __init__(self) -> None:
        self.results: list[TestResult] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the results of one report."""
        self.results.extend(results_of(report))


PRESET = pytest.StashKey[Preset]()
STATE = pytest.StashKey[State]()
COLLECTOR = pytest.StashKey[Collector]()


def trial_of(item: pytest.Item) -> Trial:
    """Return how a test of the suite is run."""
    config = item.config
    state = session_state(config)
    expected = find_xfail(state.xfails, requirement_ids(item), function_name(item)) is not None
    return Trial(
        capabilities=state.capabilities,
        max_examples=config.getoption("--max-examples"),
        seed=f"{seed(config)} {item.name}",
        # Shrinking takes most of a failing test's time; nobody reads an expected failure.
        shrink=preset(config).shrink and not expected,
    )


def backend_under_test(config: pytest.Config) -> Backend:
    """Return the backend of this run."""
    return session_state(config).backend


def session_state(config: pytest.Config) -> State:
    """Find backend, claims and expected failures, once; an error of the user ends the run."""
    if STATE not in config.stash:
        name = config.getoption("--backend")
        path = config.getoption("--xfails-file")
        given = preset(config).backend
        try:
            backend = (
                checked_backend(given, name)
                if given is not None
                else find_backend(name, config.getoption("--exec-timeout"))
            )
            config.stash[STATE] = State(
                backend=backend,
                capabilities=claims(backend),
                xfails=read_xfails(path, requirements()) if path else (),
            )
        except (BackendNotFoundError, XfailsError) as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[STATE]


def close_backend(config: pytest.Config) -> None:
    """End the process of a backend that this run has started."""
    if STATE in config.stash and preset(config).backend is None:
        backend = config.stash[STATE].backend
        if isinstance(backend, ExecBackend):
            backend.close()


def location(config: pytest.Config) -> str:
    """Return how to name the backend on a command line."""
    backend = preset(config).backend
    return (
        f"<module:attribute of {backend.name}>"
        if backend is not None
        else config.getoption("--backend")
    )


def reproduce(item: pytest.Item) -> str:
    """Return the command that runs one test as it was run."""
    config = item.config
    backend = shlex.quote(location(config))
    return (
        f"{preset(config).command} --backend {backend} -k {shlex.quote(keyword(item))} "
        f"--hypothesis-seed {seed(config)} --max-examples {config.getoption('--max-examples')}"
    )


def preset(config: pytest.Config) -> Preset:
    """Return what `suite.run` has set; the defaults under plain pytest."""
    return config.stash.get(PRESET, Preset())


def seed(config: pytest.Config) -> str:
    """Return Hypothesis's own seed option; without it every run draws the same cases."""
    return str(config.getoption("--hypothesis-seed", None) or 0)


def unmatched_xfails(config: pytest.Config) -> tuple[Xfail, ...]:
    """Return the expected failures that no failing test of this run used up."""
    if STATE not in config.stash:
        return ()
    used = [result for result in config.stash[COLLECTOR].results if result.override]
    return tuple(
        entry
        for entry in config.stash[STATE].xfails
        if not any(find_xfail((entry,), result.requirements, _name(result.test)) for result in used)
    )


def requirement_ids(item: pytest.Item) -> tuple[str, ...]:
    """Return the ids that a test states."""
    return tuple(name for marker in item.iter_markers("requirement") for name in marker.args)


def function_name(item: pytest.Item) -> str:
    """Return the test's name without parameters."""
    return item.name.partition("[")[0]


def keyword(item: pytest.Item) -> str:
    """Return what selects this test with -k, its parameters too: -k has no commas, = or blanks."""
    return re.sub(r"[^\w.\[\]-]+", "-", item.name)


def results_of(report: pytest.TestReport) -> list[TestResult]:
    """Return the result that a report carries, if it is of a test of the suite."""
    return [
        TestResult(**{**value, "requirements": tuple(value["requirements"])})
        for key, value in report.user_properties
        if key == PROPERTY and isinstance(value, dict)
    ]


def _name(test: str) -> str:
    return test.rpartition("::")[2].partition("[")[0]
