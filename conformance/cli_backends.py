"""Commands about code: the suite, adapters, reports and golden vectors."""
# ruff: noqa: PLC0415

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from nibblespec.conformance.console import (
    COULD_NOT_RUN,
    FOUND_ERRORS,
    Layout,
    expect_name,
    fail,
    put,
    version,
)
from nibblespec.conformance.interrupts import TERMINATED, cleaning_up


class XfailMode(StrEnum):
    """What becomes of expected failures."""

    xfail = "xfail"
    skip = "skip"


def conformance(
    backend: Annotated[
        str, typer.Option(help="reference, optimized, torch, module:attribute or exec:COMMAND.")
    ] = "reference",
    exec_timeout: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, help="Seconds that exec:COMMAND may take to answer."),
    ] = 30.0,
    select: Annotated[
        str | None, typer.Option("-k", metavar="EXPRESSION", help="Run only tests that match.")
    ] = None,
    max_examples: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Cases drawn for each property.")
    ] = 25,
    seed: Annotated[
        int, typer.Option("--seed", "--hypothesis-seed", help="Where the draws begin.")
    ] = 0,
    xfails_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Failures that the backend's owner expects.")
    ] = None,
    xfail_mode: Annotated[
        XfailMode, typer.Option(help="Run expected failures, or leave them out.")
    ] = XfailMode.xfail,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Write results by requirement, .json or .md."),
    ] = None,
) -> None:
    """Test a backend: run the conformance suite on code that computes with the formats.

    The exit status is 0 where all that is claimed passes, 1 where something fails, 2 where the
    suite could not run.
    """
    try:
        from nibblespec.conformance.suite.run import run_installed
    except ModuleNotFoundError as error:
        if error.name not in ("pytest", "hypothesis"):
            raise
        fail(f"conformance needs {error.name}: pip install 'nibblespec[suite]'")
    sys.path.insert(0, "")  # a backend may be a module in the current folder, as with python -m
    arguments = [
        f"--backend={backend}",
        f"--exec-timeout={exec_timeout}",
        f"--max-examples={max_examples}",
        f"--hypothesis-seed={seed}",
        f"--xfail-mode={xfail_mode.value}",
        *([f"--xfails-file={xfails_file}"] if xfails_file is not None else []),
        *(f"--report={path}" for path in report or []),
        *(["-k", select] if select is not None else []),
    ]
    with cleaning_up():
        status = run_installed(arguments)
    if status > FOUND_ERRORS and status != TERMINATED:
        raise typer.Exit(COULD_NOT_RUN)
    raise typer.Exit(status)


def exec_check(
    command: Annotated[
        str, typer.Argument(help="The program with its arguments, as one word of the shell.")
    ],
    exec_timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds it may take to answer.")
    ] = 30.0,
) -> None:
    """Check that a program speaks the exec protocol, step by step; `conformance` checks values.

    The exit status is 0 where it does, 1 where it does not, 2 where it cannot be started.
    """
    try:
        from nibblespec.conformance.exec.check import advice, check_adapter
        from nibblespec.conformance.suite.backends import BackendNotFoundError
    except ModuleNotFoundError as error:
        if error.name not in ("pytest", "hypothesis"):
            raise
        fail(f"exec-check needs {error.name}: pip install 'nibblespec[suite]'")

    steps = []
    try:
        with cleaning_up():
            for step in check_adapter(command, exec_timeout):
                steps.append(step)
                put(f"{'✗' if step.requirement else '✓'} {step.name}: {step.says}\n")
    except (BackendNotFoundError, OSError) as error:
        fail(str(error))
    put(f"next: {advice(command, steps)}\n")
    if any(step.requirement for step in steps):
        raise typer.Exit(FOUND_ERRORS)


report_commands = typer.Typer(
    help="Reports that `nibblespec conformance --report` wrote.", no_args_is_help=True
)


@report_commands.command("merge")
def merge(
    paths: Annotated[list[str], typer.Argument(metavar="FILE", help="Reports, .json.")],
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write the table, .json or .md."
        ),
    ] = None,
) -> None:
    """Put the reports of many backends into one table; without --output, print it as Markdown."""
    from nibblespec.conformance.suite.files import refusal, write_whole
    from nibblespec.conformance.suite.merge import (
        ReportError,
        merge,
        merged_json,
        merged_markdown,
        read_report,
    )

    files = [Path(name) for name in output or ()]
    given = [Path(path) for path in paths]
    for file in files:
        if reason := refusal(file, given):
            fail(f"--output: {reason}")
    try:
        merged = merge([read_report(path) for path in given])
    except ReportError as error:
        fail(str(error))
    for file in files:
        text = merged_markdown(merged) if file.suffix == ".md" else merged_json(merged)
        try:
            write_whole(file, text)
        except OSError as error:
            fail(f"--output: {file}: cannot be written: {error.strerror or error}")
    if not files:
        put(merged_markdown(merged))


vectors = typer.Typer(
    help="Golden vectors: calls with their results, for programs in any language.",
    no_args_is_help=True,
)


@vectors.command("export")
def export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
    inputs_only: Annotated[
        bool, typer.Option("--inputs-only", help="Leave the expected outputs out.")
    ] = False,
) -> None:
    """Copy the golden vectors and the description of their format into a folder."""
    from nibblespec.conformance.vectors.export import export_vectors

    expect_name(folder, "a folder that is new or empty")
    try:
        with cleaning_up():
            names = export_vectors(Path(folder), inputs_only=inputs_only)
    except OSError as error:
        fail(f"{folder}: cannot be written: {error.strerror or error}")
    put(f"{folder}: {', '.join(names)}\n")


@vectors.command("check")
def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder with the outputs.")],
    layout: Annotated[Layout, typer.Option("--format", help="How to write it.")] = Layout.text,
) -> None:
    """Check what another program wrote: outputs.safetensors, or one such file an operation.

    The exit status is 0 where every output that was written is right, 1 where one is not, 2 where
    there are none or they could not be read.
    """
    from nibblespec.conformance.vectors.check import check_folder, failed
    from nibblespec.conformance.vectors.outputs import OutputsError
    from nibblespec.conformance.vectors.report import report_json, report_text

    expect_name(folder, "the folder with the outputs (. is this one)")
    try:
        report = check_folder(Path(folder))
    except OutputsError as error:
        fail(str(error))
    put(report_json(report, version()) if layout is Layout.json else report_text(report))
    if failed(report):
        raise typer.Exit(FOUND_ERRORS)
