"""The command that makes checkpoints of models."""
# ruff: noqa: PLC0415

from enum import StrEnum
from typing import Annotated

import typer
from nibblespec.conformance.console import fail, put
from nibblespec.conformance.interrupts import cleaning_up


class Target(StrEnum):
    """What a model can be converted to."""

    dashq = "dashq"
    bitnest = "bitnest"


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
    bits: Annotated[
        int | None,
        typer.Option(min=1, max=8, help="Bits of a code; dashq only.", show_default="4"),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Weights that share a scale.", show_default="32 for dashq, 128 for bitnest"
        ),
    ] = None,
    rotate: Annotated[
        bool | None,
        typer.Option(
            "--rotate/--no-rotate",
            help="Fold the rotations R1 and R2 into the weights; bitnest only.",
            show_default="on",
        ),
    ] = None,
    online_hadamard: Annotated[
        bool | None,
        typer.Option(
            "--online-hadamard/--no-online-hadamard",
            help="Transform the input of down_proj at run time; bitnest only.",
            show_default="on",
        ),
    ] = None,
    nest_head: Annotated[
        bool | None, typer.Option("--nest-head", help="Nest lm_head too; bitnest only.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of the rotations; bitnest only.", show_default="0"),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Fit weights to the inputs that the model has on a text, with all of the model "
            "in memory; dashq only.",
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
    """Convert a model to a checkpoint.

    Weights are rounded to nearest and memory does not grow with the model, unless --calibrate is
    given. OUT is written whole or not at all. What load_model would refuse is refused before
    anything is written. The exit status is 0 where the checkpoint was written, 2 where it was not.
    """
    try:
        from nibblespec.optimized.convert import ConversionError
        from nibblespec.optimized.convert import convert as run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        fail("convert needs torch: pip install 'nibblespec[optimized]'")
    from nibblespec.conformance.progress import progress_bar
    from nibblespec.conformance.terminal import visible

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
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"convert --calibrate needs {error.name}: pip install 'nibblespec[models]'")
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}")
    put(f"{visible(out, 400)}: {to.value}, written\n")
