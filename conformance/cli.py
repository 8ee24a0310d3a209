"""The command line. Each command imports what it needs when it runs."""
# ruff: noqa: PLC0415

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from nibblespec.conformance.interrupts import TERMINATED, cleaning_up, end_at_once

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

FOUND_ERRORS = 1
COULD_NOT_RUN = 2


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


class Target(StrEnum):
    """What a model can be converted to."""

    dashq = "dashq"
    bitnest = "bitnest"


class XfailMode(StrEnum):
    """What becomes of expected failures."""

    xfail = "xfail"
    skip = "skip"


class Layout(StrEnum):
    """How an inspection is written."""

    text = "text"
    json = "json"


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
        _complain(f"cannot write the output: {error.strerror or error}")
        sys.exit(COULD_NOT_RUN)
    except SystemExit as error:
        # A reader of the help that went away early, such as `head`, is no error.
        if isinstance(error.__context__, BrokenPipeError):
            sys.exit(0)
        raise


def _print_version(asked: bool) -> None:
    if asked:
        _print(f"nibblespec {_version()}\n")
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
            _complain(str(error))
    _print(_rendered(output, reports, failures, strict=strict))
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

    width, colour = _terminal()
    if requirement is None:
        _print(requirements_text(width=width, colour=colour))
        return
    if operation := operation_text(requirement):
        _print(operation)
        return
    try:
        found = find_requirement(requirement)
    except UnknownRequirementError as error:
        _fail(str(error))
    _print(requirement_text(found, width=width, colour=colour))


@app.command()
def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="Id of a format, `findings`, `report`, `merged-report` or `exec-protocol`.",
        ),
    ],
) -> None:
    """Print the JSON Schema of a format's manifest, of findings or of a conformance report."""
    from nibblespec.schemas import schema_text

    try:
        text = schema_text(name)
    except ValueError as error:
        _fail(str(error))
    _print(text)


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
        _fail(str(error))
    errors = count(report.findings)["error"]
    noun = f"{errors:,} error{'' if errors == 1 else 's'}"
    if report.manifest is None or not report.sound:
        _complain(f"{path}: no valid manifest ({noun}): see nibblespec validate")
        raise typer.Exit(FOUND_ERRORS)
    found = inspect_manifest(report.manifest)
    stored = inspect_files(report.manifest, report.headers) if report.headers else None
    if layout is Layout.json:
        _print(inspection_json(path, found, stored))
    else:
        width, colour = _terminal()
        _print(inspection_text(path, found, stored, width=width, colour=colour))
    if errors:
        _complain(f"{path}: {noun} in its files: see nibblespec validate")


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
            _print(f"{name:<20} {known.summary} ({', '.join(known.requirements)})\n")
        return
    if folder is None:
        _fail("example: expected the name of a folder, or --list-faults")
    try:
        with cleaning_up():
            write_example(Path(folder), format_.value, fault)
    except OSError as error:
        _fail(f"{folder}: cannot be written: {error.strerror or error}")
    except ValueError as error:
        _fail(str(error))
    _print(f"{folder}: {format_.value}, {f'with the fault {fault}' if fault else 'valid'}\n")


@app.command()
def convert(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_DIR", help="A Hugging Face folder: config.json, safetensors."
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[
        Target,
        typer.Option(help="dashq takes any causal language model, bitnest Llama and Qwen2."),
    ],
    bits: Annotated[int, typer.Option(min=1, max=8, help="Bits of a code; dashq only.")] = 4,
    group_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Weights that share a scale.", show_default="32 for dashq, 128 for bitnest"
        ),
    ] = None,
    rotate: Annotated[
        bool, typer.Option(help="Fold the rotations R1 and R2 into the weights; bitnest only.")
    ] = True,
    online_hadamard: Annotated[
        bool, typer.Option(help="Transform the input of down_proj at run time; bitnest only.")
    ] = True,
    nest_head: Annotated[
        bool, typer.Option("--nest-head", help="Nest lm_head too; bitnest only.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the rotations; bitnest only.")] = 0,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Fit weights to the inputs that the model has on a text; dashq only.",
        ),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="The model's Hub id, for the manifest."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a checkpoint that is in OUT already.")
    ] = False,
) -> None:
    """Convert a model to a checkpoint, its weights rounded to nearest.

    OUT is written whole or not at all, and memory does not grow with the model. The exit status is
    0 where the checkpoint was written, 2 where it was not.
    """
    try:
        from nibblespec.optimized.convert import ConversionError
        from nibblespec.optimized.convert import convert as run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        _fail("convert needs torch: pip install 'nibblespec[optimized]'")
    from nibblespec.conformance.progress import progress_bar

    try:
        with cleaning_up(), progress_bar(model) as progress:
            run(
                model,
                out,
                to=to.value,
                bits=bits,
                group_size=group_size,
                rotate=rotate,
                online_hadamard=online_hadamard,
                nest_head=nest_head,
                seed=seed,
                calibrate=calibrate,
                base_model=base_model,
                overwrite=overwrite,
                progress=progress,
            )
    except ConversionError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"convert --calibrate needs {error.name}: pip install 'nibblespec[models]'")
    except OSError as error:
        _fail(f"{error.filename or out}: {error.strerror or error}")
    _print(f"{out}: {to.value}, written\n")


@app.command()
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
        _fail(f"conformance needs {error.name}: pip install 'nibblespec[suite]'")
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


@app.command("exec-check")
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
        _fail(f"exec-check needs {error.name}: pip install 'nibblespec[suite]'")

    steps = []
    try:
        with cleaning_up():
            for step in check_adapter(command, exec_timeout):
                steps.append(step)
                _print(f"{'✗' if step.requirement else '✓'} {step.name}: {step.says}\n")
    except (BackendNotFoundError, OSError) as error:
        _fail(str(error))
    _print(f"next: {advice(command, steps)}\n")
    if any(step.requirement for step in steps):
        raise typer.Exit(FOUND_ERRORS)


report_commands = typer.Typer(
    help="Reports that `nibblespec conformance --report` wrote.", no_args_is_help=True
)
app.add_typer(report_commands, name="report")


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
    from nibblespec.conformance.suite.merge import (
        ReportError,
        merge,
        merged_json,
        merged_markdown,
        read_report,
    )

    files = [Path(name) for name in output or ()]
    for file in files:
        if file.suffix not in (".json", ".md"):
            _fail(f"--output: expected a .json or .md file, found {file}")
    try:
        merged = merge([read_report(Path(path)) for path in paths])
    except ReportError as error:
        _fail(str(error))
    for file in files:
        text = merged_markdown(merged) if file.suffix == ".md" else merged_json(merged)
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            _fail(f"--output {file}: cannot be written: {error.strerror or error}")
    if not files:
        _print(merged_markdown(merged))


vectors = typer.Typer(
    help="Golden vectors: calls with their results, for programs in any language.",
    no_args_is_help=True,
)
app.add_typer(vectors, name="vectors")


@vectors.command("export")
def export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
    inputs_only: Annotated[
        bool, typer.Option("--inputs-only", help="Leave the expected outputs out.")
    ] = False,
) -> None:
    """Copy the golden vectors and the description of their format into a folder."""
    from nibblespec.conformance.vectors.export import export_vectors

    try:
        with cleaning_up():
            names = export_vectors(Path(folder), inputs_only=inputs_only)
    except OSError as error:
        _fail(f"{folder}: cannot be written: {error.strerror or error}")
    _print(f"{folder}: {', '.join(names)}\n")


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

    try:
        report = check_folder(Path(folder))
    except OutputsError as error:
        _fail(str(error))
    _print(report_json(report, _version()) if layout is Layout.json else report_text(report))
    if failed(report):
        raise typer.Exit(FOUND_ERRORS)


def _rendered(
    output: Output, reports: "Sequence[Report]", failures: "Sequence[Failure]", *, strict: bool
) -> str:
    if output is Output.json:
        from nibblespec.conformance.artifacts.output.render_json import reports_json

        return reports_json(reports, failures, version=_version())
    if output is Output.sarif:
        from nibblespec.conformance.artifacts.output.render_sarif import reports_sarif

        return reports_sarif(reports, failures, version=_version())
    from nibblespec.conformance.artifacts.output.render_text import reports_text

    width, colour = _terminal()
    return reports_text(reports, failures, strict=strict, width=width, colour=colour)


def _terminal() -> tuple[int, bool]:
    """Return the columns of standard output and whether to colour it."""
    from nibblespec.conformance.terminal import columns, wants_colour

    return columns(sys.stdout), wants_colour(sys.stdout)


def _print(text: str) -> None:
    from nibblespec.conformance.terminal import write

    try:
        write(text, sys.stdout)
    except OSError as error:
        _fail(f"cannot write the output: {error.strerror or error}")


def _complain(message: str) -> None:
    from nibblespec.conformance.terminal import visible, write

    with suppress(OSError):
        write(f"nibblespec: {visible(message, 400)}\n", sys.stderr)


def _fail(message: str) -> NoReturn:
    _complain(message)
    raise typer.Exit(COULD_NOT_RUN)


def _version() -> str:
    from importlib.metadata import version

    return version("nibblespec")
