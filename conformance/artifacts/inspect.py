"""What a checkpoint is, by its manifest: sizes, kinds of layers, and where layers can be split.

A tensor-parallel split is legal where every part has whole groups and whole storage units: 32-bit
words of `dashq-packed-linear`, bytes of `bitnest-package-v1`. Attention heads, which a manifest
does not know, are not considered.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, lcm

from nibblespec.spec.bitnest_package.v1 import layout as bitnest
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1 import layout as dashq
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.formats import AnyManifest
from nibblespec.spec.tensors import TensorSpec, tensor_bytes

MOST_PARTS = 64
"""The largest number of devices that splits are listed for."""

PARTS: Mapping[str, str] = {
    "words": "codes",
    "hi": "hi plane",
    "lo": "lo plane",
    "scale": "scales",
    "zero": "zero points",
    "bias": "biases",
    "hadamard": "Hadamard matrices",
}
"""Roles of tensors whose sizes the manifest tells, each with its name for people."""

_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How one dimension of a weight may be divided."""

    step: int | None
    """Legal parts are multiples of this many rows or columns; None: it cannot be divided."""
    ways: tuple[int, ...]
    """Numbers of equal legal parts, from 2 to MOST_PARTS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One packed or nested linear layer, in terms that both formats share."""

    name: str
    rows: int
    """N, the width of the output."""
    columns: int
    """K, the width of the input."""
    bits: int
    """Bits of a code; 8 for two nested nibbles."""
    group_size: int
    groups: int
    """Groups of the whole matrix."""
    bytes: int
    row_split: Split
    column_split: Split
    input: str
    """What happens to the layer's input first; empty where nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Layers that are alike in all but their number."""

    pattern: str
    """Their names, with `*` for the numbers."""
    count: int
    example: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """Layers of one width of code and one size of group."""

    bits: int
    group_size: int
    layers: int
    weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a manifest says about its checkpoint."""

    format: str
    model: str | None
    layers: int
    weights: int
    groups: int
    parts: Mapping[str, int]
    """Bytes by what they hold; tensors of unknown size and optional ones are not counted."""
    draft_bytes: int | None
    """Bytes of layers that a draft reads (bitnest-package-v1)."""
    widths: tuple[Width, ...]
    """The most weights first."""
    kinds: tuple[Kind, ...]


def inspect_manifest(manifest: AnyManifest) -> Inspection:
    """Describe a manifest that has no errors."""
    layers = list(linears(manifest))
    return Inspection(
        format=manifest.format,
        model=manifest.source_model or manifest.model
        if isinstance(manifest, BitnestManifest)
        else manifest.base_model,
        layers=len(layers),
        weights=count_weights(manifest),
        groups=sum(layer.groups for layer in layers),
        parts=implied_bytes(manifest),
        draft_bytes=_draft_bytes(manifest) if isinstance(manifest, BitnestManifest) else None,
        widths=tuple(_widths(layers)),
        kinds=tuple(_kinds(layers)),
    )


def count_weights(manifest: AnyManifest) -> int:
    """Return the logical weights of all packed or nested layers."""
    if isinstance(manifest, DashqManifest):
        modules = manifest.quantized_modules.values()
        return sum(module.out_features * module.in_features for module in modules)
    return sum(layer.shape[0] * layer.shape[1] for layer in manifest.layers.values())


def count_layers(manifest: AnyManifest) -> int:
    """Return the number of packed or nested layers."""
    if isinstance(manifest, DashqManifest):
        return len(manifest.quantized_modules)
    return len(manifest.layers)


def layer_noun(format_id: str) -> str:
    """Return what the format calls its packed or nested layers."""
    return "modules" if format_id == "dashq-packed-linear" else "layers"


def linears(manifest: AnyManifest) -> Iterator[Linear]:
    """Yield every packed or nested layer, in the order of the manifest."""
    if isinstance(manifest, DashqManifest):
        for name, module in manifest.quantized_modules.items():
            yield _packed(name, module)
    else:
        for name in manifest.layers:
            yield _nested(name, manifest)


def _packed(name: str, module: Module) -> Linear:
    columns, stored = module.in_features, module.quant_in_features
    per_word = dashq.codes_per_word(module.nbits)
    # Words run on over the ends of rows: a column split needs every row to start a word.
    column_step = None if stored % per_word else lcm(module.group_size, per_word)
    return Linear(
        name=name,
        rows=module.out_features,
        columns=columns,
        bits=module.nbits,
        group_size=module.group_size,
        groups=module.num_groups,
        bytes=sum(_bytes(spec) for spec in dashq.module_tensors(name, module)),
        row_split=split(module.out_features, per_word // gcd(per_word, stored)),
        column_split=split(columns, column_step),
        input="",
    )


def _nested(name: str, manifest: BitnestManifest) -> Linear:
    layer = manifest.layers[name]
    rows, columns = layer.shape
    shared = manifest.activation.per_layer_group.get(name, -1)
    hadamard = manifest.online_hadamard.layers.get(name)
    token = "one scale a token" if shared < 0 else f"one scale per {shared}"
    return Linear(
        name=name,
        rows=rows,
        columns=columns,
        bits=8,
        group_size=manifest.group_size,
        groups=rows * layer.groups,
        bytes=sum(_bytes(spec) for spec in bitnest.layer_tensors(name, layer)),
        row_split=split(rows, 1),
        column_split=split(columns, lcm(manifest.group_size, 2, max(shared, 1))),
        input=token if hadamard is None else f"Hadamard (K = {hadamard.K}), {token}",
    )


def split(size: int, step: int | None) -> Split:
    """Say how a dimension can be divided into parts that are multiples of `step`."""
    if step is None or step > size:
        return Split(step=None, ways=())
    ways = (parts for parts in range(2, MOST_PARTS + 1) if size % (parts * step) == 0)
    return Split(step=step, ways=tuple(ways))


def _widths(layers: Iterable[Linear]) -> list[Width]:
    """Collect layers by their widths."""
    alike: dict[tuple[int, int], list[Linear]] = {}
    for layer in layers:
        alike.setdefault((layer.bits, layer.group_size), []).append(layer)
    widths = [
        Width(
            bits=bits,
            group_size=group_size,
            layers=len(found),
            weights=sum(layer.rows * layer.columns for layer in found),
        )
        for (bits, group_size), found in alike.items()
    ]
    return sorted(widths, key=lambda width: -width.weights)


def _kinds(layers: Iterable[Linear]) -> Iterator[Kind]:
    """Collect layers that differ in the numbers of their names only."""
    alike: dict[tuple[str, Linear], list[Linear]] = {}
    for layer in layers:
        pattern = pattern_of(layer.name)
        alike.setdefault((pattern, replace(layer, name="")), []).append(layer)
    for (pattern, _), found in alike.items():
        yield Kind(pattern=pattern, count=len(found), example=found[0])


def pattern_of(name: str) -> str:
    """Return a name with `*` in place of its numbers."""
    return _NUMBER.sub("*", name)


def expected_tensors(manifest: AnyManifest) -> Iterator[TensorSpec]:
    """Yield the tensors that a manifest implies."""
    if isinstance(manifest, DashqManifest):
        return dashq.expected_tensors(manifest)
    return bitnest.expected_tensors(manifest)


def _draft_bytes(manifest: BitnestManifest) -> int:
    """Return the bytes of layers without their low planes."""
    tensors = bitnest.expected_tensors(manifest)
    return sum(_bytes(spec) for spec in tensors if spec.module and spec.role != "lo")


def _bytes(spec: TensorSpec) -> int:
    return (tensor_bytes(spec) or 0) if spec.required else 0


def implied_bytes(manifest: AnyManifest) -> dict[str, int]:
    """Return the bytes of tensors by what they hold, as far as the manifest tells."""
    parts: dict[str, int] = {}
    for spec in expected_tensors(manifest):
        if spec.role in PARTS and (size := _bytes(spec)):
            part = PARTS[spec.role]
            parts[part] = parts.get(part, 0) + size
    return parts
