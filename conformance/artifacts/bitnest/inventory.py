"""Tensors of a bitnest package: those that the manifest implies against those in the headers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header
from nibblespec.conformance.artifacts.reading.tensor_entries import (
    TensorEntry,
    entry_text,
    shape_fits,
    shape_text,
)
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES, expected_tensors
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer
from nibblespec.spec.tensors import TensorSpec

MANIFEST = "meta.json"
_METADATA_FORMAT = {PLANES: "bitnest-planes-v1", AUX: "bitnest-aux-v1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BitnestInventory:
    """What the manifest implies, and what was found."""

    manifest: Manifest
    specs: tuple[TensorSpec, ...]
    headers: Mapping[str, Header]
    """Of planes.safetensors and aux.safetensors, where they could be read."""


def take_inventory(
    manifest: Manifest, headers: Mapping[str, Header], vocab_size: int | None
) -> BitnestInventory:
    """Compare a manifest with the headers of the package's two files."""
    return BitnestInventory(
        manifest=manifest,
        specs=tuple(expected_tensors(manifest, vocab_size)),
        headers={file: headers[file] for file in (PLANES, AUX) if file in headers},
    )


def _found(inventory: BitnestInventory, spec: TensorSpec) -> TensorEntry | None:
    """Return a tensor where it belongs."""
    header = inventory.headers.get(spec.file)
    return header.tensors.get(spec.name) if header else None


def _kind(spec: TensorSpec) -> str:
    """Return a tensor's role, with the norms of decoder layers apart from the final one."""
    return "decoder norm" if spec.name.startswith("layers.") else spec.role


def _is_missing(inventory: BitnestInventory, spec: TensorSpec) -> bool:
    """Say whether a tensor is surely not where it belongs."""
    header = inventory.headers.get(spec.file)
    return header is not None and spec.name not in header.tensors and spec.name not in header.broken


def _elsewhere(inventory: BitnestInventory, spec: TensorSpec) -> str:
    """Say where a missing tensor is instead."""
    files = [file for file, header in inventory.headers.items() if spec.name in header.tensors]
    return f"the tensor in {files[0]}" if files else "nothing"


def _missing(inventory: BitnestInventory, kinds: frozenset[str]) -> Iterator[Problem]:
    for spec in inventory.specs:
        if _kind(spec) in kinds and spec.required and _is_missing(inventory, spec):
            yield Problem(
                message=f"a tensor is missing: {spec.role}",
                file=spec.file,
                tensor=spec.name,
                expected=f"{spec.dtype} {shape_text(spec.shape)}",
                found=_elsewhere(inventory, spec),
            )


def _bias(inventory: BitnestInventory) -> Iterator[Problem]:
    yield from _missing(inventory, frozenset(("bias",)))
    for name, entry in _tensors(inventory, PLANES):
        layer = inventory.manifest.layers.get(name.removesuffix(".bias"))
        if name.endswith(".bias") and layer is not None and not layer.has_bias:
            yield _surplus(PLANES, entry, "a layer has a bias that its has_bias denies", "no bias")


def _lm_head(inventory: BitnestInventory) -> Iterator[Problem]:
    yield from _missing(inventory, frozenset(("lm_head",)))
    for name, entry in _tensors(inventory, AUX):
        if name == "lm_head" and "lm_head" in inventory.manifest.layers:
            message = "the output layer is nested and stored unquantized too"
            yield _surplus(AUX, entry, message, "the nested one alone")


def _planes_extra(inventory: BitnestInventory) -> Iterator[Problem]:
    known = {spec.name for spec in inventory.specs if spec.file == PLANES}
    for name, entry in _tensors(inventory, PLANES):
        layer, _, kind = name.rpartition(".")
        if name not in known and not (kind == "bias" and layer in inventory.manifest.layers):
            message = "a tensor belongs to no layer of the manifest"
            yield _surplus(PLANES, entry, message, "the tensors of the entries of layers")


def _aux_extra(inventory: BitnestInventory) -> Iterator[Problem]:
    known = {"lm_head", *(spec.name for spec in inventory.specs if spec.file == AUX)}
    for name, entry in _tensors(inventory, AUX):
        if name not in known:
            message = "a tensor has no use"
            expected = "embed_tokens, final_norm, lm_head, norms and the had_K that layers use"
            yield _surplus(AUX, entry, message, expected)


def _norms_partial(inventory: BitnestInventory) -> Iterator[Problem]:
    norms = [spec for spec in inventory.specs if not spec.required]
    stored = [spec for spec in norms if _found(inventory, spec)]
    if not stored:
        return
    for spec in norms:
        if _is_missing(inventory, spec):
            yield Problem(
                message="some decoder norms are stored and some are not",
                file=AUX,
                tensor=spec.name,
                expected=f"{spec.dtype} {shape_text(spec.shape)}, as {stored[0].name} is there",
                found=_elsewhere(inventory, spec),
            )


def _dtype(inventory: BitnestInventory, file: str) -> Iterator[Problem]:
    for spec in inventory.specs:
        entry = _found(inventory, spec) if spec.file == file else None
        if entry is not None and entry.dtype != spec.dtype:
            yield Problem(
                message=f"the dtype is wrong: {spec.role}",
                file=file,
                pointer=pointer(spec.name, "dtype"),
                tensor=spec.name,
                expected=spec.dtype,
                found=entry.dtype[:40],
            )


def _shape(inventory: BitnestInventory, file: str) -> Iterator[Problem]:
    for spec in inventory.specs:
        entry = _found(inventory, spec) if spec.file == file else None
        if entry is not None and not shape_fits(entry.shape, spec.shape):
            yield Problem(
                message=f"the shape is wrong: {spec.role}",
                file=file,
                pointer=pointer(spec.name, "shape"),
                tensor=spec.name,
                expected=shape_text(spec.shape),
                found=shape_text(entry.shape),
            )


def _metadata(inventory: BitnestInventory) -> Iterator[Problem]:
    for file, header in inventory.headers.items():
        given = header.metadata.get("format")
        if given != _METADATA_FORMAT[file]:
            yield Problem(
                message="the metadata does not name the format of the file",
                file=file,
                pointer=pointer("__metadata__", "format") if given is not None else "",
                expected=_METADATA_FORMAT[file],
                found=show(given) if given is not None else "nothing",
            )


def _tensors(inventory: BitnestInventory, file: str) -> Iterator[tuple[str, TensorEntry]]:
    if file in inventory.headers:
        yield from inventory.headers[file].tensors.items()


def _surplus(file: str, entry: TensorEntry, message: str, expected: str) -> Problem:
    return Problem(
        message=message,
        file=file,
        pointer=pointer(entry.name),
        tensor=entry.name,
        expected=expected,
        found=entry_text(entry),
    )


BITNEST_INVENTORY_RULES: Mapping[str, Rule[BitnestInventory]] = {
    "BN1-PLANES-PRESENT": partial(_missing, kinds=frozenset(("hi", "lo", "scale"))),
    "BN1-PLANES-BIAS": _bias,
    "BN1-PLANES-DTYPE": partial(_dtype, file=PLANES),
    "BN1-PLANES-SHAPE": partial(_shape, file=PLANES),
    "BN1-PLANES-EXTRA": _planes_extra,
    "BN1-AUX-PRESENT": partial(_missing, kinds=frozenset(("embedding", "norm"))),
    "BN1-AUX-LM-HEAD": _lm_head,
    "BN1-AUX-HADAMARD": partial(_missing, kinds=frozenset(("hadamard",))),
    "BN1-AUX-NORMS": partial(_missing, kinds=frozenset(("decoder norm",))),
    "BN1-AUX-NORMS-PARTIAL": _norms_partial,
    "BN1-AUX-DTYPE": partial(_dtype, file=AUX),
    "BN1-AUX-SHAPE": partial(_shape, file=AUX),
    "BN1-AUX-EXTRA": _aux_extra,
    "BN1-METADATA-FORMAT": _metadata,
}
"""What the tensors of a package have to satisfy, given its manifest."""
