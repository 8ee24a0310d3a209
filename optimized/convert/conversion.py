"""The converter: a Hugging Face folder in, a checkpoint out, whole or not at all."""

import os
from collections.abc import Callable
from math import gcd
from os import PathLike
from pathlib import Path
from typing import Literal

import torch
from nibblespec.optimized.checks import check_integer
from nibblespec.optimized.convert.architecture import Layer, read_architecture
from nibblespec.optimized.convert.bitnest import Plan as BitnestPlan
from nibblespec.optimized.convert.bitnest import manifest_of, write_bitnest
from nibblespec.optimized.convert.dashq import plan_dashq, write_dashq
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.folder import check_out, replacing
from nibblespec.optimized.convert.loadable import check_loadable
from nibblespec.optimized.convert.rotations import rotations
from nibblespec.optimized.convert.source import Source, open_source

Progress = Callable[[int, int], None]
"""Called with the bytes of weights that are done, and with all there are."""

BITS = 4
SHARD_BYTES = 5_000_000_000
DASHQ_GROUP = 32
BITNEST_GROUP = 128


def convert(
    model_dir: str | PathLike[str],
    out: str | PathLike[str],
    *,
    to: Literal["dashq", "bitnest"],
    bits: int | None = None,
    group_size: int | None = None,
    rotate: bool | None = None,
    online_hadamard: bool | None = None,
    nest_head: bool | None = None,
    seed: int | None = None,
    calibrate: str | PathLike[str] | None = None,
    base_model: str | None = None,
    shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Convert the model in `model_dir`, config.json with safetensors, to a checkpoint in `out`.

    Weights are rounded to nearest, unless `calibrate` is given. They are read and written in
    blocks: memory does not grow with the model, for `bitnest` with its largest layer (twice that in
    float32). Before anything is written, `load_model` is asked whether it would take the result,
    where transformers is installed and knows the architecture.

    to: `dashq` takes any causal language model, `bitnest` Llama and Qwen2.
    bits: of a dashq code, 1 to 8, by default 4.
    group_size: weights that share a scale, 32 in dashq, 128 in bitnest by default. Where it does
        not divide a width, dashq takes a half, quarter … of it, down to 16, for that layer; bitnest
        has one for all.
    rotate: whether bitnest's weights are rotated by R1 and R2, from `seed`; by default they
        are, from 0.
    online_hadamard: whether the input of bitnest's down_proj goes through R4 at run time; by
        default it does.
    nest_head: whether bitnest's lm_head is nested too; by default it is not.
    calibrate: a text file of at most 16 MiB. dashq then runs the model on its beginning, as a whole
        in memory, and fits each group so that errors count by how large the inputs of their columns
        are.
    base_model: Hub id of the model, for the manifest.
    shard_bytes: most bytes of tensors in a file of dashq, by default 5,000,000,000.
    overwrite: whether a checkpoint that is in `out` already is replaced, in one step at the end.

    Raises ConversionError for a model that cannot be converted, an `out` that cannot be written and
    an argument that the format does not take, ValueError for one out of range, TypeError for one of
    another type, OSError where a disk fails.
    """
    if to not in ("dashq", "bitnest"):
        raise ValueError(f"to: expected dashq or bitnest, found {to!r}")
    numbers = (
        ("bits", bits, 1, 8),
        ("group_size", group_size, 1, None),
        ("seed", seed, 0, None),
        ("shard_bytes", shard_bytes, 1, None),
    )
    for name, number, least, most in numbers:
        if number is not None:
            check_integer(number, name, least, most)
    dashq = {"bits": bits, "calibrate": calibrate, "shard_bytes": shard_bytes}
    bitnest = {
        "rotate": rotate,
        "online_hadamard": online_hadamard,
        "nest_head": nest_head,
        "seed": seed,
    }
    for other, arguments in (("dashq", dashq), ("bitnest", bitnest)):
        for name, value in arguments.items():
            if value is not None and to != other:
                raise ConversionError(f"{name}: expected none for {to}: {other} alone takes it")
    for name, path in (("model_dir", model_dir), ("out", out), ("calibrate", calibrate)):
        if path is not None and not os.fspath(path):
            raise ConversionError(f"{name}: the path is empty (. is the current folder)")
    if base_model is not None and not base_model.isprintable():
        raise ConversionError(f"base_model: expected OWNER/NAME, found {base_model!r}")
    if not Path(model_dir).is_dir():
        raise ConversionError(f"{model_dir}: expected the folder of a Hugging Face model")
    check_out(Path(out), Path(model_dir), overwrite=overwrite)
    with torch.device("cpu"):  # whatever the user's default device
        source = open_source(Path(model_dir))
        done = _Count(sum(stored.size for stored in source.tensors.values()), progress)
        if to == "dashq":
            group = group_size or DASHQ_GROUP
            text = None if calibrate is None else Path(calibrate)
            width = BITS if bits is None else bits
            plan = plan_dashq(source, width, group, text)
            with replacing(Path(out), source.folder, overwrite=overwrite) as folder:
                write_dashq(
                    source,
                    plan,
                    folder,
                    bits=width,
                    group_size=group,
                    base_model=base_model,
                    shard_bytes=shard_bytes or SHARD_BYTES,
                    advance=done.advance,
                )
            return
        nested = _plan_bitnest(
            source,
            group_size or BITNEST_GROUP,
            rotate=rotate is not False,
            online_hadamard=online_hadamard is not False,
            nest_head=bool(nest_head),
            seed=seed or 0,
        )
        with replacing(Path(out), source.folder, overwrite=overwrite) as folder:
            write_bitnest(source, nested, folder, source_model=base_model, advance=done.advance)


def _plan_bitnest(
    source: Source,
    group_size: int,
    *,
    rotate: bool,
    online_hadamard: bool,
    nest_head: bool,
    seed: int,
) -> BitnestPlan:
    model = read_architecture(source)
    layers = dict(model.layers)
    if nest_head:
        layers["lm_head"] = Layer(
            kind="lm_head",
            number=-1,
            weight=model.head,
            bias=None,
            norm=model.final_norm,
            head=model.head_width,
        )
    common = gcd(*(layer.weight.shape[1] for layer in layers.values()))
    if common % group_size:
        fitting = ", ".join(str(n) for n in range(16, common + 1) if common % n == 0)
        raise ConversionError(
            f"group_size: expected a divisor of all widths, {', '.join(_widths(layers))}, found "
            f"{group_size}; choose among {fitting or 'smaller ones'}"
        )
    if common % 2:
        raise ConversionError(f"config.json: expected even widths, found {_widths(layers)}")
    plan = BitnestPlan(
        architecture=model,
        layers=layers,
        group_size=group_size,
        rotations=rotations(
            model.hidden,
            model.head_width,
            model.inner,
            seed=seed,
            rotate=rotate,
            online=online_hadamard,
        ),
        nest_head=nest_head,
    )
    check_loadable(source, manifest_of(plan, None), plan.files())
    return plan


def _widths(layers: dict[str, Layer]) -> list[str]:
    return [str(width) for width in sorted({layer.weight.shape[1] for layer in layers.values()})]


class _Count:
    """How far a conversion is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def advance(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
