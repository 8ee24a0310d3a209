"""Llama and Qwen2 into a package of `bitnest-package-v1`."""

import hashlib
from collections.abc import Callable, Mapping
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
from nibblespec.optimized.convert.fold import blocks, folded_bias, folded_rows, vector
from nibblespec.optimized.convert.rotations import Rotations
from nibblespec.optimized.convert.source import Source, require_finite
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
            for first, rows in folded_rows(layer, plan.rotations):
                _nest(out, name, first, rows, plan.group_size)
            if layer.bias is not None:
                out.write(f"{name}.bias", 0, folded_bias(layer, plan.rotations))
            advance(layer.weight.size)
    for name, data in copied_documents(source.folder).items():
        write_file(folder / name, data)
    write_json(folder, "config.json", {**source.config, "tie_word_embeddings": False})
    # The manifest comes last, and the checksums that name it just before.
    write_json(folder, f".{MANIFEST}", manifest_of(plan, source_model))
    names = {path.name.removeprefix("."): path for path in folder.iterdir()}
    lines = [f"{_digest(names[name])}  {name}\n" for name in sorted(names)]
    write_file(folder / CHECKSUMS, "".join(lines).encode())
    (folder / f".{MANIFEST}").rename(folder / MANIFEST)


def _write_tables(out: TensorFiles, plan: Plan, advance: Advance) -> None:
    model, rotate = plan.architecture, plan.rotations.residual
    for first, rows in blocks(model.embedding):
        turned = rotate(rows).to(torch.bfloat16)
        require_finite(model.embedding, turned)
        out.write("embed_tokens", first * model.hidden, turned)
    advance(model.embedding.size)
    out.write("final_norm", 0, torch.ones(model.hidden, dtype=torch.bfloat16))
    if not plan.nest_head:
        norm = vector(model.final_norm)
        require_finite(model.final_norm, norm)
        for first, rows in blocks(model.head):
            turned = rotate(rows * norm).to(torch.bfloat16)
            require_finite(model.head, turned)
            out.write("lm_head", first * model.hidden, turned)
        advance(model.head.size)
    order = plan.rotations.order
    if order is not None and order > 1:
        out.write(f"had_K.{order}", 0, torch.from_numpy(hadamard_matrix(order).copy()))


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


def manifest_of(plan: Plan, source_model: str | None) -> dict[str, Any]:
    """Return the manifest of what will be written."""
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
