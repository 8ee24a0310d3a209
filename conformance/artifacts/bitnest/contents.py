"""Contents of a bitnest package: nibble planes, scales, biases, norms and Hadamard matrices."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from nibblespec.conformance.artifacts.bitnest.content_rules import (
    AUX_CONTENT_RULES,
    LAYER_CONTENT_RULES,
    AuxContents,
    LayerContents,
)
from nibblespec.conformance.artifacts.bitnest.orthogonality import scan_products
from nibblespec.conformance.artifacts.bitnest.statistics import LAYER_STATISTICS
from nibblespec.conformance.artifacts.findings import Finding, apply_rules
from nibblespec.conformance.artifacts.reading.blocks import Bytes, Run, TensorBytes
from nibblespec.conformance.artifacts.reading.tensor_entries import shape_fits
from nibblespec.conformance.artifacts.scanning.facts import Counts, Facts, Hit
from nibblespec.conformance.artifacts.scanning.float_contents import (
    FLOATS,
    Lanes,
    scan_finite,
    scan_ones,
)
from nibblespec.conformance.artifacts.scanning.samples import sample
from nibblespec.conformance.artifacts.scanning.units import Part, Scan, Unit
from nibblespec.conformance.artifacts.scanning.zero_groups import Codes, scan_scales
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES, expected_tensors
from nibblespec.spec.bitnest_package.v1.manifest import Layer, Manifest, Norms
from nibblespec.spec.tensors import TensorSpec

NEUTRAL = 8
"""The nibble that stands for the code 0."""


Tensors = Mapping[tuple[str, str], TensorBytes]
"""Tensors of a package by file and name."""


def bitnest_units(manifest: Manifest, tensors: Tensors) -> Iterator[Unit]:
    """Yield what is to be looked at, in the order in which it lies in the files."""
    sound = {
        (spec.file, spec.name): spec
        for spec in expected_tensors(manifest)
        if (found := tensors.get((spec.file, spec.name))) is not None
        and found.entry.dtype == spec.dtype
        and shape_fits(found.entry.shape, spec.shape)
    }
    layers: dict[str, dict[str, TensorBytes]] = {}
    for key, spec in sound.items():
        layers.setdefault(spec.module, {})[spec.role] = tensors[key]
    done = {""}
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[0][0], item[1].begin)):
        known = sound.get(key)
        module = known.module if known else ""
        if module not in done:
            done.add(module)
            yield _layer_unit(manifest.layers[module], manifest.group_size, layers[module])
        elif not module and tensor.source.file == AUX and tensor.entry.dtype in FLOATS:
            yield _aux_unit(tensor, known, manifest.norms)


def _layer_unit(layer: Layer, group: int, own: Mapping[str, TensorBytes]) -> Unit:
    planes = tuple(own[role] for role in ("hi", "lo") if role in own)
    parts: list[Part] = []
    if len(planes) == 2:
        parts.append(Part(name="planes", tensors=planes, scan=_scan_planes))
    if "scale" in own:
        whole = len(planes) == 2 and layer.groups * group == layer.shape[1]
        codes = Codes(tensors=planes, nbits=4, word_bytes=1, group=group, neutral=NEUTRAL)
        scan: Scan = partial(scan_scales, dtype="F16", codes=codes if whole else None)
        parts.append(Part(name="scale", tensors=(own["scale"],), scan=scan))
    if "bias" in own:
        scan = partial(scan_finite, dtype=own["bias"].entry.dtype)
        parts.append(Part(name="bias", tensors=(own["bias"],), scan=scan))

    def judge(facts: Mapping[str, Facts]) -> Iterator[Finding]:
        contents = LayerContents(layer=layer, group_size=group, tensors=own, facts=facts)
        return apply_rules({**LAYER_CONTENT_RULES, **LAYER_STATISTICS}, contents, PLANES)

    return Unit(parts=tuple(parts), judge=judge)


def _aux_unit(tensor: TensorBytes, spec: TensorSpec | None, norms: Norms | None) -> Unit:
    """Return the unit of a tensor of aux.safetensors; without a `spec`, it has no known use."""
    scan: Scan = partial(scan_finite, dtype=tensor.entry.dtype)
    if spec is not None and spec.role == "hadamard":
        scan = partial(_scan_matrix, tensor=tensor)
    elif spec is not None and spec.role == "norm" and _is_identity(spec.name, norms):
        scan = partial(scan_ones, dtype="BF16", kind="not one")

    def judge(facts: Mapping[str, Facts]) -> Iterator[Finding]:
        contents = AuxContents(tensor=tensor, facts=facts.get("values", Facts()))
        return apply_rules(AUX_CONTENT_RULES, contents, AUX)

    return Unit(parts=(Part(name="values", tensors=(tensor,), scan=scan),), judge=judge)


def _is_identity(name: str, norms: Norms | None) -> bool:
    """Say whether the manifest promises that the weight of a norm is all ones."""
    if norms is None:
        return False
    return (norms.fused if name == "final_norm" else norms.decoder_norms_identity) is True


def _scan_matrix(
    blocks: tuple[Bytes, ...], position: int, run: Run, *, tensor: TensorBytes
) -> Facts:
    """Look at the elements of had_K and, along with its first block, at had_K·had_Kᵀ."""
    facts = scan_ones(blocks, position, run, dtype="F32", kind="no sign")
    product = scan_products(tensor, run) if position == 0 else None
    return Facts(hits={**facts.hits, "product": product} if product else facts.hits)


def _scan_planes(blocks: tuple[Bytes, ...], position: int, _run: Run) -> Facts:
    """Look at both planes: pairs that overflow int8, bits in common, and the sample's pairs."""
    hi, lo = blocks
    overflow = _overflow(hi, lo, 2 * position)
    return Facts(
        hits={"overflow": overflow} if overflow else {},
        every=tuple(int(np.bitwise_and.reduce(plane)) for plane in blocks),
        some=tuple(int(np.bitwise_or.reduce(plane)) for plane in blocks),
        counts=_count_pairs(sample(hi), sample(lo)),
    )


def _overflow(hi: Bytes, lo: Bytes, at: int) -> Hit | None:
    """Find the pairs of q4 = −8 (a nibble 0 in hi) and qr < 0 (a nibble below 8 in lo)."""
    size = 8 if len(hi) % 8 == 0 else 1
    high: Lanes = hi.view(f"u{size}")
    low: Lanes = lo.view(f"u{size}")
    lowest = int.from_bytes(b"\x11" * size)
    # The lowest bit of each nibble becomes 0 where the nibble of hi is 0 and that of lo below 8.
    sound = high | high >> 2
    sound |= sound >> 1
    sound |= low >> 3
    if int(np.bitwise_and.reduce(sound)) & lowest == lowest:
        return None
    broken = (~sound & lowest).view(np.uint8)
    index = int(np.flatnonzero(broken)[0])
    nibble = 0 if broken[index] & 1 else 1
    pair = (int(hi[index]) >> 4 * nibble & 15) << 4 | int(lo[index]) >> 4 * nibble & 15
    return Hit(int(np.bitwise_count(broken).sum()), at + 2 * index + nibble, pair)


def _count_pairs(hi: Bytes, lo: Bytes) -> Counts:
    """Count the pairs of nibbles of both planes: index 16·(q4 + 8) + (qr + 8), int64 [256]."""
    first = (hi & 15) << 4 | lo & 15
    second = hi & 240 | lo >> 4
    counts: Counts = np.bincount(first, minlength=256) + np.bincount(second, minlength=256)
    return counts
