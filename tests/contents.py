"""Checkpoints for tests of level `tensors`, and what is found in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nibblespec.conformance.artifacts.contents import check_contents
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.manifest import ManifestReport
from nibblespec.conformance.artifacts.reading.blocks import TensorBytes, find_source
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header, read_header
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry
from nibblespec.conformance.examples.files import Tensor, safetensors_bytes, tensor
from nibblespec.reference.dashq_encoder import PackedModule
from nibblespec.reference.planes import pack_nibbles
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.operations import Array


def on_disk(path: Path, data: bytes, dtype: str = "U8", shape: tuple[int, ...] = ()) -> TensorBytes:
    """Write a tensor to a file of its own, behind 8 bytes of something else."""
    path.write_bytes(b"something"[:8] + data)
    entry = TensorEntry(
        name="m.tensor", dtype=dtype, shape=shape or (len(data),), begin=0, end=len(data)
    )
    return TensorBytes(entry=entry, source=find_source(path, path.name), begin=8, size=len(data))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Header:
    """Write a safetensors file and return its header."""
    path.write_bytes(safetensors_bytes(tensors, {}))
    header = read_header(path, path.name).header
    assert header is not None
    return header


def dashq_findings(
    folder: Path, modules: Mapping[str, PackedModule], more: Mapping[str, Tensor] | None = None
) -> list[Finding]:
    """Return what is found in the contents of modules, and of tensors besides."""
    tensors = dict(more or {})
    for name, packed in modules.items():
        tensors[f"{name}.W_q_packed"] = tensor(packed.words)
        tensors[f"{name}.scale"] = tensor_of(packed.scale)
        tensors[f"{name}.zero"] = tensor_of(packed.zero)
    header = write_tensors(folder / "model.safetensors", tensors)
    document = {
        "format": "dashq-packed-linear",
        "format_version": 1,
        "quantized_modules": {
            name: packed.module.model_dump(exclude_none=True) for name, packed in modules.items()
        },
    }
    manifest = DashqManifest.model_validate(document)
    report = ManifestReport(findings=[], format=FORMATS[0], manifest=manifest)
    return check_contents(folder, report, {"model.safetensors": header})


def bitnest_findings(
    folder: Path,
    layers: Mapping[str, tuple[Array, Array, Array]],
    group: int,
    aux: Mapping[str, Tensor] | None = None,
    **keys: object,
) -> list[Finding]:
    """Return what is found in the contents of layers (q4, qr, scale), and of aux.safetensors."""
    planes: dict[str, Tensor] = {}
    described: dict[str, Any] = {}
    for name, (q4, qr, scale) in layers.items():
        planes[f"{name}.hi"] = tensor(pack_nibbles(q4))
        planes[f"{name}.lo"] = tensor(pack_nibbles(qr))
        planes[f"{name}.scale"] = tensor(scale)
        described[name] = {"shape": list(q4.shape), "groups": scale.shape[1], "has_bias": False}
    headers = {
        name: write_tensors(folder / name, tensors)
        for name, tensors in {"planes.safetensors": planes, "aux.safetensors": aux or {}}.items()
    }
    document = {
        "format": "bitnest-package-v1",
        "arch": "llama",
        "group_size": group,
        "pack": "unsigned+8",
        "layers": {
            name: {**each, "shape": list(each["shape"])} for name, each in described.items()
        },
        "activation": {"per_layer_group": {}},
        "online_hadamard": {"layers": {}},
        **keys,
    }
    manifest = BitnestManifest.model_validate(document)
    report = ManifestReport(findings=[], format=FORMATS[1], manifest=manifest)
    return check_contents(folder, report, headers)


def tensor_of(array: Array) -> Tensor:
    """Turn an array of any dtype of the formats into a tensor."""
    names = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
    if array.dtype.name in names:
        return Tensor(names[array.dtype.name], array.shape, array.tobytes())
    return tensor(array)


def ids(findings: list[Finding]) -> list[str]:
    """Return the requirements of findings, in their order."""
    return [found.requirement for found in findings]


def random_bytes(count: int, seed: int = 0) -> bytes:
    """Return bytes that are always the same."""
    return np.random.default_rng(seed).bytes(count)
