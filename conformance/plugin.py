"""pytest plugin of the conformance suite: options, results by requirement, report.

Loaded with `-p nibblespec.conformance.plugin`. It acts on the tests of `suite/` alone; to any
other test of the same run it does nothing. What a test may call, it gets from suite/conftest.py.
"""

import traceback
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from nibblespec.conformance.suite.backends import (
    BackendNotFoundError,
    checked_backend,
    claims,
    find_backend,
)
from nibblespec.conformance.suite.outcomes import BackendError, NotClaimed, Violation
from nibblespec.conformance.suite.report import Run, write_report
from nibblespec.conformance.suite.results import Result, TestResult
from nibblespec.conformance.suite.trial import Trial
from nibblespec.conformance.suite.xfails import Xfail, XfailsError, find_xfail, read_xfails
from nibblespec.spec.operations import Backend, Capabilities
from nibblespec.spec.requirements import requirements

SUITE = Path(__file__).parent / "suite"
DEFAULT_MAX_EXAMPLES = 25
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
        self.results.extend(_results(report))


PRESET = pytest.StashKey[Preset]()
STATE = pytest.StashKey[State]()
COLLECTOR = pytest.StashKey[Collector]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("nibblespec", "conformance suite of nibblespec")
    group.addoption(
        "--backend",
        default="reference",
        help="backend under test: reference, optimized, torch or module:attribute",
    )
    group.addoption(
        "--max-examples",
        type=_positive,
        default=DEFAULT_MAX_EXAMPLES,
        help="cases drawn for each property (default: %(default)s)",
    )
    group.addoption(
        "--xfails-file",
        type=Path,
        help="expected failures of the backend, lines 'REQUIREMENT-ID [test] reason'",
    )
    group.addoption(
        "--xfail-mode",
        choices=("xfail", "skip"),
        default="xfail",
        help="run expected failures (xfail) or leave them out (skip)",
    )
    group.addoption(
        "--report",
        type=Path,
        action="append",
        default=[],
        help="write results by requirement to this file, .json or .md; may be repeated",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 10**6):
        raise ValueError(text)
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse a report that could not be written at the end."""
    config.addinivalue_line("markers", "requirement(*ids): requirements that a test speaks of")
    config.stash[COLLECTOR] = Collector()
    config.pluginmanager.register(config.stash[COLLECTOR], "nibblespec-collector")
    for path in config.getoption("--report"):
        if path.suffix not in (".json", ".md"):
            raise pytest.UsageError(f"--report: expected a .json or .md file, found {path}")
        if not path.absolute().parent.is_dir():
            raise pytest.UsageError(f"--report: no folder {path.absolute().parent}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find the backend and check the requirement ids, if there are tests of the suite."""
    suite = [item for item in items if _is_ours(item)]
    if not suite:
        return
    known = requirements()
    for item in suite:
        ids = _ids(item)
        if not ids:
            raise pytest.UsageError(f"{item.nodeid}: states no requirement")
        for unknown in [name for name in ids if name not in known]:
            raise pytest.UsageError(f"{item.nodeid}: no requirement {unknown} in the text")
    state = _state(config)
    if config.getoption("--xfail-mode") == "skip":
        for item in suite:
            if entry := find_xfail(state.xfails, _ids(item), _function(item)):
                item.add_marker(pytest.mark.skip(reason=_reason(entry)))


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say what is under test."""
    if STATE not in config.stash:
        return []
    backend = config.stash[STATE].backend
    return [
        f"conformance: backend {backend.name} {backend.version} on {backend.device}, "
        f"{config.getoption('--max-examples')} examples, seed {_seed(config)}"
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the result by requirement; a broken SHOULD or an expected failure fails no run."""
    report = yield
    if not _is_ours(item) or (call.when != "call" and report.passed):
        return report
    error = call.excinfo.value if call.excinfo else None
    result = _result(report, error)
    ids = _ids(item)
    if isinstance(error, Violation):
        ids = tuple(dict.fromkeys((*error.requirements, *ids)))
    if isinstance(error, Violation | BackendError):
        report.longrepr = _explain(item, error, ids)
    entry = find_xfail(_state(item.config).xfails, ids, _function(item))
    override = _reason(entry) if entry and result in ("fail", "error", "skipped") else ""
    report.user_properties.append(
        (
            PROPERTY,
            asdict(
                TestResult(
                    test=f"{item.path.name}::{item.name}",
                    requirements=ids,
                    result=result,
                    message=str(error) if error is not None else "",
                    override=override,
                )
            ),
        )
    )
    if result in ("fail", "error") and override:
        report.outcome, report.wasxfail = "skipped", override
    elif result == "fail" and all(requirements()[name].level != "MUST" for name in ids):
        report.outcome, report.wasxfail = "skipped", f"SHOULD: {error}"
    return report


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    """Spell the results as the report does; what could not be collected has none."""
    for found in _results(report) if isinstance(report, pytest.TestReport) else ():
        if report.outcome == "passed":
            continue
        if found.result == "not-claimed":
            return "not-claimed", "n", "NOT-CLAIMED"
        if found.result == "error" and not found.override:
            return "error", "E", "ERROR"
        if found.result == "fail" and not found.override and report.outcome == "skipped":
            return "warned", "w", "WARNED"
    return None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List broken SHOULDs and the expected failures that did not happen."""
    results = config.stash[COLLECTOR].results
    warned = [result for result in results if result.result == "fail" and _only_advice(result)]
    if warned:
        terminalreporter.section("broken SHOULD requirements (warnings)")
        for result in warned:
            terminalreporter.write_line(f"{result.test}: {result.message}")
    unmatched = _unmatched(config)
    if unmatched:
        terminalreporter.section("unmatched expected failures")
        for entry in unmatched:
            terminalreporter.write_line(
                f"{entry.requirement} {entry.test}".rstrip()
                + ": no test of this run failed by it; remove the entry if it is fixed"
            )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the reports."""
    config = session.config
    results = config.stash[COLLECTOR].results
    if hasattr(config, "workerinput") or not results:
        return
    for path in config.getoption("--report"):
        state = _state(config)
        run = Run(
            backend=state.backend,
            location=_location(config),
            capabilities=state.capabilities,
            max_examples=config.getoption("--max-examples"),
            seed=_seed(config),
            results=tuple(results),
            unmatched=_unmatched(config),
        )
        try:
            write_report(run, path)
        except OSError as error:
            # Only pytest.exit ends a session that is at its end without a traceback.
            reason = f"--report {path}: cannot be written: {error}"
            pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)


def trial_of(item: pytest.Item) -> Trial:
    """Return how a test of the suite is run."""
    config = item.config
    state = _state(config)
    expected = find_xfail(state.xfails, _ids(item), _function(item)) is not None
    return Trial(
        capabilities=state.capabilities,
        max_examples=config.getoption("--max-examples"),
        seed=f"{_seed(config)} {item.name}",
        # Shrinking takes most of a failing test's time; nobody reads an expected failure.
        shrink=_preset(config).shrink and not expected,
    )


def backend_under_test(config: pytest.Config) -> Backend:
    """Return the backend of this run."""
    return _state(config).backend


def _state(config: pytest.Config) -> State:
    """Find backend, claims and expected failures, once; an error of the user ends the run."""
    if STATE not in config.stash:
        name = config.getoption("--backend")
        path = config.getoption("--xfails-file")
        preset = _preset(config).backend
        try:
            backend = checked_backend(preset, name) if preset else find_backend(name)
            config.stash[STATE] = State(
                backend=backend,
                capabilities=claims(backend),
                xfails=read_xfails(path, requirements()) if path else (),
            )
        except (BackendNotFoundError, XfailsError) as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[STATE]


def _location(config: pytest.Config) -> str:
    """Return how to name the backend on a command line."""
    backend = _preset(config).backend
    return f"<module:attribute of {backend.name}>" if backend else config.getoption("--backend")


def _preset(config: pytest.Config) -> Preset:
    return config.stash.get(PRESET, Preset())


def _seed(config: pytest.Config) -> str:
    """Return Hypothesis's own seed option; without it every run draws the same cases."""
    return str(config.getoption("--hypothesis-seed", None) or 0)


def _is_ours(item: pytest.Item) -> bool:
    return item.path.is_relative_to(SUITE)


def _ids(item: pytest.Item) -> tuple[str, ...]:
    return tuple(name for marker in item.iter_markers("requirement") for name in marker.args)


def _function(item: pytest.Item) -> str:
    """Return the test's name without parameters."""
    return item.name.partition("[")[0]


def _reason(entry: Xfail) -> str:
    return f"expected failure: {entry.reason}"


def _result(report: pytest.TestReport, error: BaseException | None) -> Result:
    if isinstance(error, NotClaimed):
        return "not-claimed"
    if report.skipped:
        return "skipped"
    if report.passed:
        return "pass"
    return "fail" if isinstance(error, Violation) else "error"


def _results(report: pytest.TestReport) -> list[TestResult]:
    return [
        TestResult(**{**value, "requirements": tuple(value["requirements"])})
        for key, value in report.user_properties
        if key == PROPERTY and isinstance(value, dict)
    ]


def _only_advice(result: TestResult) -> bool:
    return all(requirements()[name].level != "MUST" for name in result.requirements)


def _unmatched(config: pytest.Config) -> tuple[Xfail, ...]:
    """Return the expected failures that no failing test of this run used up."""
    if STATE not in config.stash:
        return ()
    used = [result for result in config.stash[COLLECTOR].results if result.override]
    return tuple(
        entry
        for entry in config.stash[STATE].xfails
        if not any(find_xfail((entry,), result.requirements, _name(result.test)) for result in used)
    )


def _name(test: str) -> str:
    return test.rpartition("::")[2].partition("[")[0]


def _explain(item: pytest.Item, error: Violation | BackendError, ids: Sequence[str]) -> str:
    """Write a failure: which requirement, what was seen, for which case, how to see it again."""
    stated = [requirements()[name] for name in ids]
    config = item.config
    lines = [f"{one.id} ({one.level}; {one.document}, {one.section}): {one.text}" for one in stated]
    lines += ["", str(error)]
    if isinstance(error, BackendError):
        lines += ["".join(traceback.format_exception(error.__cause__))]
    if error.case:
        lines += [f"case: {error.case}"]
    lines += [
        "reproduce: "
        f"{_preset(config).command} --backend {_location(config)} -k {_function(item)} "
        f"--hypothesis-seed {_seed(config)} --max-examples {config.getoption('--max-examples')}"
    ]
    return "\n".join(lines)
