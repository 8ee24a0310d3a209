"""pytest plugin of the conformance suite: options, results by requirement, report.

Loaded with `-p nibblespec.conformance.plugin`. It acts on the tests of `suite/` alone; to any
other test of the same run it does nothing. What a test may call, it gets from suite/conftest.py.
"""

from collections.abc import Generator, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

import pytest
from nibblespec.conformance.suite.backends import EXEC_SECONDS
from nibblespec.conformance.suite.explain import explain
from nibblespec.conformance.suite.files import refusal
from nibblespec.conformance.suite.outcomes import BackendError, NotClaimed, Violation
from nibblespec.conformance.suite.report import Run, write_report
from nibblespec.conformance.suite.results import Result, TestResult
from nibblespec.conformance.suite.session import (
    COLLECTOR,
    PROPERTY,
    STATE,
    Collector,
    close_backend,
    function_name,
    keyword,
    location,
    reproduce,
    requirement_ids,
    results_of,
    seed,
    session_state,
    unmatched_xfails,
)
from nibblespec.conformance.suite.xfails import Xfail, find_xfail
from nibblespec.conformance.terminal import visible
from nibblespec.spec.requirements import requirements

SUITE = Path(__file__).resolve().parent / "suite"
DEFAULT_MAX_EXAMPLES = 25
UNWRITTEN = pytest.StashKey[list[str]]()
"""What to say of the reports that could not be written in the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("nibblespec", "conformance suite of nibblespec")
    group.addoption(
        "--backend",
        default="reference",
        help="backend under test: reference, optimized, torch, module:attribute or exec:COMMAND",
    )
    group.addoption(
        "--exec-timeout",
        type=_seconds,
        default=EXEC_SECONDS,
        metavar="SECONDS",
        help="how long a backend exec:COMMAND may take for an answer (default: %(default)g)",
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


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise ValueError(text)
    return seconds


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse a report that could not be written at the end."""
    config.addinivalue_line("markers", "requirement(*ids): requirements that a test speaks of")
    config.stash[COLLECTOR] = Collector()
    config.stash[UNWRITTEN] = []
    config.pluginmanager.register(config.stash[COLLECTOR], "nibblespec-collector")
    xfails = config.getoption("--xfails-file")
    for path in config.getoption("--report"):
        if reason := refusal(path, [xfails] if xfails else []):
            raise pytest.UsageError(f"--report: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find the backend and check the requirement ids, if there are tests of the suite."""
    suite = [item for item in items if _is_ours(item)]
    if not suite:
        return
    known = requirements()
    for item in suite:
        ids = requirement_ids(item)
        if not ids:
            raise pytest.UsageError(f"{item.nodeid}: states no requirement")
        item.extra_keyword_matches.add(keyword(item))
        for unknown in [name for name in ids if name not in known]:
            raise pytest.UsageError(f"{item.nodeid}: no requirement {unknown} in the text")
    state = session_state(config)
    if config.getoption("--xfail-mode") == "skip":
        for item in suite:
            if entry := find_xfail(state.xfails, requirement_ids(item), function_name(item)):
                item.add_marker(pytest.mark.skip(reason=_reason(entry)))


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say what is under test."""
    return [_under_test(config)] if STATE in config.stash else []


def _under_test(config: pytest.Config) -> str:
    backend = session_state(config).backend
    return (
        f"conformance: backend {backend.name} {backend.version} on {backend.device}, "
        f"{config.getoption('--max-examples')} examples, seed {seed(config)}"
    )


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
    ids = requirement_ids(item)
    if isinstance(error, Violation):
        ids = tuple(dict.fromkeys((*error.requirements, *ids)))
    if call.excinfo and isinstance(error, Violation | BackendError):
        _show(report, call.excinfo, explain(error, ids, reproduce(item)), ids)
    entry = find_xfail(session_state(item.config).xfails, ids, function_name(item))
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


def _show(
    report: pytest.TestReport,
    found: pytest.ExceptionInfo[BaseException],
    text: str,
    ids: Sequence[str],
) -> None:
    # In pytest's own form, which workers can send. The line is for the summary, which pytest
    # prints whole where the environment says CI, and for JUnit's message.
    shown = found.getrepr(style="value", chain=False)
    shown.reprtraceback.reprentries[-1].lines = text.splitlines()
    if shown.reprcrash is not None:
        shown.reprcrash.message = f"{ids[0]}: {str(found.value).splitlines()[0]}"
    report.longrepr = shown


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    """Spell the results as the report does; what could not be collected has none."""
    for found in results_of(report) if isinstance(report, pytest.TestReport) else ():
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
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """List broken SHOULDs, expected failures that did not happen and what could not be written.

    Also says where -k fits nothing.
    """
    results = config.stash[COLLECTOR].results
    select = config.getoption("keyword")
    if select and STATE in config.stash and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        terminalreporter.write_line(_no_match(select))
    if results and config.getoption("dist", "no") != "no":
        # Workers of pytest-xdist have collected the tests, and have not said of what.
        terminalreporter.write_line(_under_test(config))
    warned = [result for result in results if result.result == "fail" and _only_advice(result)]
    if warned:
        terminalreporter.section("broken SHOULD requirements (warnings)")
        for result in warned:
            terminalreporter.write_line(f"{result.test}: {result.message}")
    unmatched = unmatched_xfails(config)
    if unmatched:
        terminalreporter.section("unmatched expected failures")
        for entry in unmatched:
            terminalreporter.write_line(
                f"{entry.requirement} {entry.test}".rstrip()
                + ": no test of this run failed by it; remove the entry if it is fixed"
            )
    for reason in config.stash[UNWRITTEN]:
        terminalreporter.write_line(f"ERROR: {reason}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the reports."""
    config = session.config
    results = config.stash[COLLECTOR].results
    if hasattr(config, "workerinput") or not results:
        return
    for path in config.getoption("--report"):
        state = session_state(config)
        run = Run(
            backend=state.backend,
            location=location(config),
            capabilities=state.capabilities,
            max_examples=config.getoption("--max-examples"),
            seed=seed(config),
            results=tuple(results),
            unmatched=unmatched_xfails(config),
        )
        try:
            write_report(run, path)
        except OSError as error:
            # What failed is shown all the same: this is said below the summary.
            reason = f"--report: {path}: cannot be written: {error.strerror or error}"
            config.stash[UNWRITTEN].append(reason)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what the run has started."""
    close_backend(config)


def _no_match(select: str) -> str:
    """Say that -k selects nothing, and what comes close."""
    files = [path.stem.removeprefix("test_") for path in sorted(SUITE.glob("test_*.py"))]
    close = get_close_matches(select[:100], files, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"try one of {', '.join(files)}"
    return f"no test matches -k {visible(select, 100)!r}, so nothing was tested; {hint}"


def _is_ours(item: pytest.Item) -> bool:
    # Both without links: a clone may be imported through some.
    return item.path.resolve().is_relative_to(SUITE)


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


def _only_advice(result: TestResult) -> bool:
    return all(requirements()[name].level != "MUST" for name in result.requirements)
