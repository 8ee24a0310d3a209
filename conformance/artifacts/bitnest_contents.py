"""Contents of a bitnest package: nibble planes, scales, biases, norms and Hadamard matrices."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from nibblespec.conformance.artifacts.bitnest_content_rules import (
    AUX_CONTENT_RULES,
    LAYER_CONTENT_RULES,
    AuxContents,
    LayerContents,
)
from nibblespec.conformance.artifacts.blocks import Bytes, Run, TensorBytes
from nibblespec.conformance.artifacts.facts import Counts, Facts, Hit
from nibblespec.conformance.artifacts.findings import Finding, apply_rules
from nibblespec.conformance.artifacts.float_contents import (
    FLOATS,
    ONE,
    Lanes,
    scan_equal,
    scan_finite,
)
from nibblespec.conformance.artifacts.orthogonality import scan_products
from nibblespec.conformance.artifacts.samples import sample
from nibblespec.conformance.artifacts.units import Part, Scan, Unit
from nibblespec.conformance.artifacts.zero_groups import Codes, scan_scales
from nibblespec.spec.bitnest_package.v1.layout import AUX, PLANES, expected_tensors
from nibblespec.spec.bitnest_package.v1.manifest import Layer, Manifest

NEUTRAL = 8
"""The nibble that stands for the code 0."""


Tensors = Mapping[tuple[str, str], TensorBytes]
"""Tensors of a package by file and name."""


def bitnest_units(manifest: Manifest, tensors: Tensors) -> Iterator[Unit]:
    """Yield what is to be looked at, in the order in which it lies in the files."""
    own: dict[str, dict[str, TensorBytes]] = {}
    owners: dict[tuple[str, str], str] = {}
    for spec in expected_tensors(manifest):
        found = tensors.get((spec.file, spec.name)) if spec.module else None
        if found and (found.entry.dtype, found.entry.shape) == (spec.dtype, spec.shape):
            own.setdefault(spec.module, {})[spec.role] = found
            owners[spec.file, spec.name] = spec.module
    done: set[str] = set()
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[0][0], item[1].begin)):
        owner = owners.get(key)
        if owner is None:
            if tensor.source.file == AUX and tensor.entry.dtype in FLOATS:
                yield _aux_unit(tensor, manifest)
        elif owner not in done:
            done.add(owner)
            yield _layer_unit(manifest.layers[owner], manifest.group_size, own[owner])


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
        return apply_rules(LAYER_CONTENT_RULES, contents, PLANES)

    return Unit(parts=tuple(parts), judge=judge)


def _aux_unit(tensor: TensorBytes, manifest: Manifest) -> Unit:
    entry = tensor.entry
    matrix = entry.name.startswith("had_K.") and len(entry.shape) == 2 and entry.dtype == "F32"
    ones = _is_identity(entry.name, manifest) and entry.dtype in ONE
    scan: Scan
    if matrix and entry.shape[0] == entry.shape[1]:
        scan = partial(_scan_matrix, tensor=tensor)
    elif ones:
        scan = partial(scan_equal, dtype=entry.dtype, bits=ONE[entry.dtype], signed=True)
    else:
        scan = partial(scan_finite, dtype=entry.dtype)

    def judge(facts: Mapping[str, Facts]) -> Iterator[Finding]:
        contents = AuxContents(tensor=tensor, facts=facts.get("values", Facts()), ones=ones)
        return apply_rules(AUX_CONTENT_RULES, contents, AUX)

    return Unit(parts=(Part(name="values", tensors=(tensor,), scan=scan),), judge=judge)


def _is_identity(name: str, manifest: Manifest) -> bool:
    """Say whether the manifest promises that a tensor is the weight of a norm that is all ones."""
    if manifest.norms is None:
        return False
    if name == "final_norm":
        return manifest.norms.fused is True
    norm = name.endswith((".input_layernorm", ".post_attention_layernorm"))
    return norm and manifest.norms.decoder_norms_identity is True


def _scan_matrix(
    blocks: tuple[Bytes, ...], position: int, run: Run, *, tensor: TensorBytes
) -> Facts:
    """Look at the elements of had_K and, along with its first block, at had_K·had_Kᵀ."""
    facts = scan_equal(blocks, position, run, dtype="F32", bits=ONE["F32"], signed=False)
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
