"""The command line, and the commands about files. Each imports what it needs when it runs."""
# ruff: noqa: PLC0415

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from nibblespec.conformance import cli_backends, cli_convert
from nibblespec.conformance.console import (
    COULD_NOT_RUN,
    FOUND_ERRORS,
    Layout,
    complain,
    expect_name,
    fail,
    put,
    terminal,
    version,
)
from nibblespec.conformance.interrupts import cleaning_up, end_at_once
from nibblespec.schemas import DOCUMENTS

if TYPE_CHECKING:
    from nibblespec.conformance.artifacts.validate import Failure, Report

app = typer.Typer(
    name="nibblespec",
    help="Specification, reference and conformance suite for low-bit checkpoint formats.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(StrEnum):
    """How findings are written."""

    text = "text"
    json = "json"
    sarif = "sarif"


class Until(StrEnum):
    """The last level that is checked."""

    manifest = "manifest"
    headers = "headers"
    tensors = "tensors"


class Family(StrEnum):
    """The formats, by the names that their manifests give."""

    dashq = "dashq-packed-linear"
    bitnest = "bitnest-package-v1"


def main() -> None:
    """Run the command line; commands that have something to clean up say so."""
    end_at_once()
    # Python has None for a stream that was closed before it started (`>&-`).
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (open until the end)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # of the help, which Typer writes; what we write ourselves says so
        if error.filename is not None:
            raise
        complain(f"cannot write the output: {error.strerror or error}")
        sys.exit(COULD_NOT_RUN)
    except SystemExit as error:
        # A reader of the help that went away early, such as `head`, is no error.
        if isinstance(error.__context__, BrokenPipeError):
            sys.exit(0)
        raise


def _print_version(asked: bool) -> None:
    if asked:
        put(f"nibblespec {version()}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Specification, reference and conformance suite for low-bit checkpoint formats."""


@app.command()
def validate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Manifests, folders that hold one, hf://owner/name[@revision], or - for standard"
            " input.",
        ),
    ],
    output: Annotated[
        Output, typer.Option("--format", help="How to write what was found.")
    ] = Output.text,
    level: Annotated[
        Until | None,
        typer.Option(
            help="How far to look: the manifest alone, all files up to their headers, or all"
            " that is in them.",
            show_default="headers for a folder or repository, manifest for a file",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
) -> None:
    """Validate checkpoints: tell every place that breaks the specification.

    The exit status is 0 without errors, 1 with errors, 2 where something could not be read.
    """
    from nibblespec.conformance.artifacts.findings import worst
    from nibblespec.conformance.artifacts.validate import (
        Failure,
        InputError,
        check_path,
    )
    from nibblespec.conformance.progress import progress_bar

    reports, failures = [], []
    for path in dict.fromkeys(paths):
        try:
            with progress_bar(path) as progress:
                reports.append(check_path(path, level.value if level else None, progress))
        except InputError as error:
            failures.append(Failure(path=path, message=str(error)))
            complain(str(error))
    put(_rendered(output, reports, failures, strict=strict))
    if failures:
        raise typer.Exit(COULD_NOT_RUN)
    failing = ("error", "warning") if strict else ("error",)
    if any(worst(report.findings) in failing for report in reports):
        raise typer.Exit(FOUND_ERRORS)


@app.command()
def explain(
    requirement: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Id of a requirement, or name of an operation; none lists all requirements.",
        ),
    ] = None,
) -> None:
    """Explain a requirement by its id, such as DQ1-FORMAT, or an operation by its name."""
    from nibblespec.conformance.explain import (
        UnknownRequirementError,
        find_requirement,
        operation_text,
        requirement_text,
        requirements_text,
    )

    width, colour = terminal()
    if requirement is None:
        put(requirements_text(width=width, colour=colour))
        return
    expect_name(requirement, "the id of a requirement or an operation")
    if operation := operation_text(requirement):
        put(operation)
        return
    try:
        found = find_requirement(requirement)
    except UnknownRequirementError as error:
        fail(str(error))
    put(requirement_text(found, width=width, colour=colour))


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"Id of a format, as {' or '.join(Family)}, or one of {', '.join(DOCUMENTS)}.",
        ),
    ],
) -> None:
    """Print the JSON Schema of a format's manifest, or of what commands write."""
    from nibblespec.schemas import schema_text

    try:
        text = schema_text(name)
    except ValueError as error:
        fail(str(error))
    put(text)


@app.command()
def inspect(
    path: Annotated[
        str,
        typer.Argument(
            help="A manifest, a folder that holds one, hf://owner/name[@revision], or - for"
            " standard input."
        ),
    ],
    layout: Annotated[Layout, typer.Option("--format", help="How to write it.")] = Layout.text,
) -> None:
    """Show what a checkpoint is: sizes, layers, what is not quantized, where it can be split."""
    from nibblespec.conformance.artifacts.findings import count
    from nibblespec.conformance.artifacts.inspect import inspect_manifest
    from nibblespec.conformance.artifacts.inspect_files import inspect_files
    from nibblespec.conformance.artifacts.output.render_inspect import (
        inspection_json,
        inspection_text,
    )
    from nibblespec.conformance.artifacts.validate import InputError, check_path

    try:
        report = check_path(path)
    except InputError as error:
        fail(str(error))
    errors = count(report.findings)["error"]
    noun = f"{errors:,} error{'' if errors == 1 else 's'}"
    if report.manifest is None or not report.sound:
        complain(f"{path}: no valid manifest ({noun}): see nibblespec validate")
        raise typer.Exit(FOUND_ERRORS)
    found = inspect_manifest(report.manifest)
    stored = inspect_files(report.manifest, report.headers) if report.headers else None
    if layout is Layout.json:
        put(inspection_json(path, found, stored))
    else:
        width, colour = terminal()
        put(inspection_text(path, found, stored, width=width, colour=colour))
    if errors:
        complain(f"{path}: {noun} in its files: see nibblespec validate")


@app.command()
def example(
    folder: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="A folder that is new or empty.")
    ] = None,
    format_: Annotated[
        Family, typer.Option("--format", help="Format of the checkpoint.")
    ] = Family.dashq,
    fault: Annotated[
        str | None, typer.Option(metavar="NAME", help="What is to be wrong with it.")
    ] = None,
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="List the faults of the format and exit.")
    ] = False,
) -> None:
    """Write a small checkpoint, valid or with a named fault."""
    from nibblespec.conformance.examples.write import FAULTS, write_example

    if list_faults:
        for name, known in FAULTS[format_.value].items():
            put(f"{name:<20} {known.summary} ({', '.join(known.requirements)})\n")
        return
    if folder is None:
        fail("example: expected the name of a folder, or --list-faults")
    expect_name(folder, "a folder that is new or empty")
    try:
        with cleaning_up():
            write_example(Path(folder), format_.value, fault)
    except OSError as error:
        fail(f"{folder}: cannot be written: {error.strerror or error}")
    except ValueError as error:
        fail(str(error))
    put(f"{folder}: {format_.value}, {f'with the fault {fault}' if fault else 'valid'}\n")


def _rendered(
    output: Output, reports: "Sequence[Report]", failures: "Sequence[Failure]", *, strict: bool
) -> str:
    if output is Output.json:
        from nibblespec.conformance.artifacts.output.render_json import reports_json

        return reports_json(reports, failures, version=version())
    if output is Output.sarif:
        from nibblespec.conformance.artifacts.output.render_sarif import reports_sarif

        return reports_sarif(reports, failures, version=version())
    from nibblespec.conformance.artifacts.output.render_text import reports_text

    width, colour = terminal()
    return reports_text(reports, failures, strict=strict, width=width, colour=colour)


app.command()(cli_convert.convert)
app.command()(cli_backends.conformance)
app.command("exec-check")(cli_backends.exec_check)
app.add_typer(cli_backends.report_commands, name="report")
app.add_typer(cli_backends.vectors, name="vectors")
