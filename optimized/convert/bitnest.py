"""Llama and Qwen2 into a package of `bitnest-package-v1`."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.architecture import Architecture, Layer
from nibblespec.optimized.convert.copies import copied_documents
from nibblespec.optimized.convert.encode_nested import encode_nested
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.files import (
    Planned,
    TensorFiles,
    tensor_files,
    write_file,
    write_json,
)
from nibblespec.optimized.convert.rotations import BLOCK, Rotation, Rotations
from nibblespec.optimized.convert.source import Source, Stored, read_rows
from nibblespec.optimized.portable.planes import pack_planes
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES
from torch import Tensor

FORMAT = "bitnest-package-v1"
MANIFEST = "meta.json"
CHECKSUMS = "checksums.sha256"
METADATA: Mapping[str, Mapping[str, str]] = {
    PLANES: {"format": "bitnest-planes-v1"},
    AUX: {"format": "bitnest-aux-v1"},
}
_READ = 1 << 20

Advance = Callable[[int], None]
"""Told how many bytes of the source are done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the weights go through."""

    architecture: Architecture
    layers: Mapping[str, Layer]
    group_size: int
    rotations: Rotations
    nest_head: bool

    def files(self) -> dict[str, list[Planned]]:
        """Return the tensors of both files."""
        planes = []
        for name, layer in self.layers.items():
            rows, columns = layer.weight.shape
            for plane in ("hi", "lo"):
                planes.append(Planned(f"{name}.{plane}", "U8", (rows, columns // 2)))
            planes.append(Planned(f"{name}.scale", "F16", (rows, columns // self.group_size)))
            if layer.bias is not None:
                planes.append(Planned(f"{name}.bias", "F16", (rows,)))
        model = self.architecture
        table = (model.vocabulary, model.hidden)
        aux = [Planned("embed_tokens", "BF16", table), Planned("final_norm", "BF16", table[1:])]
        if not self.nest_head:
            aux.append(Planned("lm_head", "BF16", table))
        order = self.rotations.order
        if order is not None and order > 1:
            aux.append(Planned(f"had_K.{order}", "F32", (order, order)))
        return {PLANES: planes, AUX: aux}


def write_bitnest(
    source: Source, plan: Plan, folder: Path, *, source_model: str | None, advance: Advance
) -> None:
    """Write the package, its manifest last."""
    with tensor_files(folder, plan.files(), METADATA) as out:
        _write_tables(out, plan, advance)
        for name, layer in plan.layers.items():
            for first, rows in _rotated(layer, plan.rotations):
                _nest(out, name, first, rows, plan.group_size)
            if layer.bias is not None:
                out.write(f"{name}.bias", 0, _rotated_bias(layer, plan.rotations))
            advance(layer.weight.size)
    for name, data in copied_documents(source.folder).items():
        write_file(folder / name, data)
    write_json(folder, "config.json", {**source.config, "tie_word_embeddings": False})
    # The manifest comes last, and the checksums that name it just before.
    write_json(folder, f".{MANIFEST}", _manifest(plan, source_model))
    names = {path.name.removeprefix("."): path for path in folder.iterdir()}
    lines = [f"{_digest(names[name])}  {name}\n" for name in sorted(names)]
    write_file(folder / CHECKSUMS, "".join(lines).encode())
    (folder / f".{MANIFEST}").rename(folder / MANIFEST)


def _write_tables(out: TensorFiles, plan: Plan, advance: Advance) -> None:
    model, rotate = plan.architecture, plan.rotations.residual
    for first, rows in _blocks(model.embedding):
        out.write("embed_tokens", first * model.hidden, rotate(rows).to(torch.bfloat16))
    advance(model.embedding.size)
    out.write("final_norm", 0, torch.ones(model.hidden, dtype=torch.bfloat16))
    if not plan.nest_head:
        norm = _vector(model.final_norm)
        for first, rows in _blocks(model.head):
            out.write("lm_head", first * model.hidden, rotate(rows * norm).to(torch.bfloat16))
        advance(model.head.size)
    order = plan.rotations.order
    if order is not None and order > 1:
        out.write(f"had_K.{order}", 0, torch.from_numpy(hadamard_matrix(order).copy()))


def _blocks(stored: Stored) -> Iterator[tuple[int, Tensor]]:
    """Yield a matrix in blocks of rows, float32, each with the number of its first row."""
    rows, columns = stored.shape
    step = max(1, BLOCK // columns)
    for first in range(0, rows, step):
        yield first, read_rows(stored, first, min(first + step, rows)).to(torch.float32)


def _vector(stored: Stored) -> Tensor:
    return read_rows(stored, 0, 1).view(-1).to(torch.float32)


def _rotated(layer: Layer, rotations: Rotations) -> Iterator[tuple[int, Tensor]]:
    """Yield a layer's weight as it is stored, in blocks of rows: norms and rotations folded in."""
    into = _into(layer, rotations)
    norm = None if layer.norm is None else _vector(layer.norm)
    whole = None if _out_of(layer, rotations) is None else torch.empty(layer.weight.shape)
    for first, rows in _blocks(layer.weight):
        turned = into(rows if norm is None else rows * norm)
        if whole is None:
            yield first, turned
        else:
            whole[first : first + len(rows)] = turned
    if whole is None:
        return
    out_of = _out_of(layer, rotations)
    assert out_of is not None
    # Outputs are turned column by column, so that the whole matrix has to be there.
    step = max(1, BLOCK // len(whole))
    for first in range(0, whole.shape[1], step):
        part = whole[:, first : first + step]
        part.copy_(out_of(part.T.contiguous()).T)
    for first in range(0, len(whole), max(1, BLOCK // whole.shape[1])):
        yield first, whole[first : first + max(1, BLOCK // whole.shape[1])]


def _rotated_bias(layer: Layer, rotations: Rotations) -> Tensor:
    assert layer.bias is not None
    bias = _vector(layer.bias)
    out_of = _out_of(layer, rotations)
    stored = (bias if out_of is None else out_of(bias)).to(torch.float16)
    if not bool(stored.isfinite().all()):
        raise ConversionError(f"{layer.bias}: expected finite elements that fit float16")
    return stored


def _into(layer: Layer, rotations: Rotations) -> Rotation:
    """Return what turns a row of the weight as the layer's input is turned."""
    match layer.kind:
        case "down_proj":
            return rotations.down
        case "o_proj":
            return _by_head(rotations.value(layer.number), layer.head)
        case _:
            return rotations.residual


def _out_of(layer: Layer, rotations: Rotations) -> Rotation | None:
    """Return what turns a column of the weight as the layer's output is turned."""
    match layer.kind:
        case "o_proj" | "down_proj":
            return rotations.residual
        case "v_proj":
            return _by_head(rotations.value(layer.number), layer.head)
        case _:
            return None


def _by_head(rotation: Rotation, width: int) -> Rotation:
    return lambda x: rotation(x.reshape(*x.shape[:-1], -1, width)).reshape(x.shape)


def _nest(out: TensorFiles, name: str, first: int, weight: Tensor, group_size: int) -> None:
    try:
        q4, qr, scale = encode_nested(weight, group_size)
    except ValueError as error:
        last = first + len(weight) - 1
        raise ConversionError(f"{name}, rows {first} to {last}: {error}") from None
    hi, lo = pack_planes(q4, qr)
    out.write(f"{name}.hi", first * hi.shape[1], hi)
    out.write(f"{name}.lo", first * lo.shape[1], lo)
    out.write(f"{name}.scale", first * scale.shape[1], scale)


def _manifest(plan: Plan, source_model: str | None) -> dict[str, Any]:
    model, order = plan.architecture, plan.rotations.order
    widths = {"o_proj": model.head_width}
    return {
        "format": FORMAT,
        "arch": model.name,
        **({"source_model": source_model} if source_model else {}),
        "rotation": None,
        "group_size": plan.group_size,
        "pack": "unsigned+8",
        "layers": {
            name: {
                "shape": list(layer.weight.shape),
                "groups": layer.weight.shape[1] // plan.group_size,
                "has_bias": layer.bias is not None,
            }
            for name, layer in plan.layers.items()
        },
        "activation": {
            "scheme": "symmetric int8 per token; the input of o_proj per token and head",
            "per_layer_group": {
                name: widths.get(layer.kind, -1) for name, layer in plan.layers.items()
            },
        },
        "norms": {"fused": True, "decoder_norms_identity": True},
        "online_hadamard": {
            "layers": {
                name: {"K": order, "fp32": True}
                for name, layer in plan.layers.items()
                if layer.kind == "down_proj" and order is not None
            }
        },
        "rope": model.rope,
    }


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(_READ):
            digest.update(data)
    return digest.hexdigest()
