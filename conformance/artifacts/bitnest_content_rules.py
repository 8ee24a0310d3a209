"""What the contents of a bitnest package have to satisfy, given what was found in its tensors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from nibblespec.conformance.artifacts.blocks import TensorBytes
from nibblespec.conformance.artifacts.facts import Counts, Facts, Hit, is_constant
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.float_contents import FLOATS, float_value
from nibblespec.conformance.artifacts.orthogonality import tolerance
from nibblespec.conformance.artifacts.samples import (
    ENOUGH,
    LEAST_GROUP,
    LEAST_GROUPS,
    LONGEST_GROUP,
)
from nibblespec.conformance.artifacts.units import and_more, hit_problem, index_text
from nibblespec.spec.bitnest_package.v1.manifest import Layer

FEW_CODES = 4
SATURATED = 0.75
LOWEST_SHARE = 1 / 200
PEAKEDNESS = 1.2
ENOUGH_PAIRS = 16_384
CORRELATION = -0.02

_CODES = np.arange(-8, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContents:
    """What was found in the tensors of a nested layer."""

    layer: Layer
    group_size: int
    tensors: Mapping[str, TensorBytes]
    """Those that are there with the dtype and shape that they should have, by role."""
    facts: Mapping[str, Facts]
    """What was found in `planes` (both, hi first), `scale` and `bias`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxContents:
    """What was found in a tensor of aux.safetensors."""

    tensor: TensorBytes
    facts: Facts
    ones: bool
    """Whether the manifest promises that it is all ones."""


def _hit(contents: LayerContents, part: str, kind: str) -> Hit | None:
    facts = contents.facts.get(part)
    return facts.hits.get(kind) if facts else None


def _elements(
    contents: LayerContents, role: str, kind: str, message: str, expected: str
) -> Iterator[Problem]:
    hit = _hit(contents, role, kind)
    if hit is not None:
        yield hit_problem(hit, contents.tensors[role], message=message, expected=expected)


def _scale_zero(contents: LayerContents) -> Iterator[Problem]:
    hit = _hit(contents, "scale", "mixed")
    if hit is not None:
        tensor = contents.tensors["scale"]
        yield hit_problem(
            hit,
            tensor,
            message="groups whose scale is 0 hold codes that are not",
            expected="q4 = 0 and qr = 0 where the scale is 0",
            shape=tensor.entry.shape,
        )


def _overflow(contents: LayerContents) -> Iterator[Problem]:
    hit = _hit(contents, "planes", "overflow")
    if hit is not None:
        tensor = contents.tensors["lo"]
        rows, columns = contents.layer.shape
        residual = (hit.bits & 15) - 8
        yield Problem(
            message="q4 = −8 has a negative residual, so that q8 overflows eight bits",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="qr of at least 0 where q4 is −8",
            found=f"qr = {residual} at {index_text(hit.first, (rows, columns))}{and_more(hit)}",
            hint="are hi and lo exchanged?" if _is_swapped(contents) else "",
        )


def _constant(contents: LayerContents) -> Iterator[Problem]:
    planes, scales = contents.facts.get("planes"), contents.facts.get("scale")
    if not planes or not scales or not _large(contents) or _all_zero(scales):
        return
    for index, role in enumerate(("hi", "lo")):
        if is_constant(planes, index):
            tensor = contents.tensors[role]
            yield Problem(
                message="all bytes of a plane are equal, as in memory that was never written",
                file=tensor.source.file,
                tensor=tensor.entry.name,
                expected="codes that differ",
                found=f"0x{planes.every[index]:02X} in every byte",
            )


def _few_codes(contents: LayerContents) -> Iterator[Problem]:
    pairs = _pairs(contents)
    if pairs is None or is_constant(contents.facts["planes"], 0):
        return
    used = _CODES[pairs.sum(axis=1) > 0]
    if len(used) <= FEW_CODES:
        tensor = contents.tensors["hi"]
        yield Problem(
            message="a layer uses few values of q4",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected=f"more than {FEW_CODES} of 16 values",
            found=f"{len(used)}: {', '.join(map(str, used))}",
        )


def _equal_scales(contents: LayerContents) -> Iterator[Problem]:
    scales, groups = contents.facts.get("scale"), contents.layer.shape[0] * contents.layer.groups
    size = contents.group_size
    if not scales or groups < LEAST_GROUPS or not LEAST_GROUP <= size <= LONGEST_GROUP:
        return
    if is_constant(scales) and not _all_zero(scales):
        tensor = contents.tensors["scale"]
        yield Problem(
            message="all scales of a layer are equal",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="scales that follow the weights of their groups",
            found=f"{float_value(scales.every[0], 'F16'):g} in all {groups:,} groups",
        )


def _saturation(contents: LayerContents) -> Iterator[Problem]:
    pairs = _pairs(contents)
    if pairs is None or is_constant(contents.facts["planes"], 1):
        return
    share = float(pairs[:, [0, 15]].sum() / pairs.sum())
    if share > SATURATED:
        tensor = contents.tensors["lo"]
        yield Problem(
            message="most residuals are at an end of their range",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected=f"at most {SATURATED:.0%} of qr that are −8 or 7",
            found=f"{share:.1%}",
            hint="was the residual divided by scale / 16?",
        )


def _swapped(contents: LayerContents) -> Iterator[Problem]:
    if _is_swapped(contents):
        tensor = contents.tensors["hi"]
        yield Problem(
            message="the planes hi and lo look exchanged",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="q4 around 0 and hardly ever −8, qr evenly distributed",
            found="the other way round",
        )


def _is_swapped(contents: LayerContents) -> bool:
    pairs = _pairs(contents)
    planes = contents.facts.get("planes")
    if pairs is None or planes is None or is_constant(planes, 0) or is_constant(planes, 1):
        return False
    total = float(pairs.sum())
    q4, qr = pairs.sum(axis=1) / total, pairs.sum(axis=0) / total
    return bool(q4[0] > LOWEST_SHARE and (qr**2).sum() > PEAKEDNESS * (q4**2).sum())


def _correlated(contents: LayerContents) -> Iterator[Problem]:
    planes = contents.facts.get("planes")
    if planes is None or planes.counts is None or contents.group_size < LEAST_GROUP:
        return
    pairs = planes.counts.reshape(16, 16).copy()
    pairs[8, :] = pairs[:, 8] = 0
    if pairs.sum() < ENOUGH_PAIRS:
        return
    found = correlation(pairs)
    if not found < CORRELATION:
        tensor = contents.tensors["lo"]
        yield Problem(
            message="the residuals do not belong to the codes of their layer",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected=f"a correlation of q4 and qr below {CORRELATION}",
            found=f"{found:.4f} over {pairs.sum():,} weights",
            hint="is lo another layer's, in another order of nibbles, or in another encoding?",
        )


def correlation(pairs: Counts) -> float:
    """Return the correlation of q4 and qr, given how often each pair occurs, int64 [16, 16].

    It is 0 where one of the two has a single value.
    """
    total = float(pairs.sum())
    rows, columns = pairs.sum(axis=1), pairs.sum(axis=0)
    q4 = _CODES - float(rows @ _CODES) / total
    qr = _CODES - float(columns @ _CODES) / total
    spread = float(rows @ q4**2) * float(columns @ qr**2)
    return float(q4 @ pairs @ qr) / sqrt(spread) if spread else 0.0


def _pairs(contents: LayerContents) -> Counts | None:
    """Return how often each pair occurs, int64 [16, 16], where a layer is large enough to tell."""
    planes = contents.facts.get("planes")
    if planes is None or planes.counts is None or not _large(contents):
        return None
    return planes.counts.reshape(16, 16)


def _large(contents: LayerContents) -> bool:
    rows, columns = contents.layer.shape
    return rows * columns >= ENOUGH and contents.group_size >= LEAST_GROUP


def _all_zero(scales: Facts) -> bool:
    """Say whether all scales are zero, of either sign."""
    return scales.some[0] & FLOATS["F16"].magnitude == 0


def _aux_finite(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("not finite")
    if hit is not None:
        message = "a tensor has elements that are not finite"
        yield hit_problem(hit, contents.tensor, message=message, expected="finite numbers")


def _ones(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("other") if contents.ones else None
    if hit is not None:
        yield hit_problem(
            hit,
            contents.tensor,
            message="the weight of a norm is not all ones, though the manifest says so",
            expected="ones",
        )


def _orthogonal(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("product")
    if hit is not None:
        entry, order = contents.tensor.entry, contents.tensor.entry.shape[0]
        diagonal = hit.first // order == hit.first % order
        found = float_value(hit.bits, "F64")
        yield Problem(
            message="had_K·had_Kᵀ is not K·I",
            file=contents.tensor.source.file,
            tensor=entry.name,
            expected=f"{order if diagonal else 0} to within {tolerance(order):.2g}",
            found=f"{found:g} at {index_text(hit.first, entry.shape)}{and_more(hit)}",
            hint="the transform would change the layer: store the matrix in float32",
        )


def _signs(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("other") if not contents.ones else None
    if hit is not None:
        yield hit_problem(
            hit,
            contents.tensor,
            message="had_K is no Hadamard matrix; its transform is not of the exact class",
            expected="elements +1 and −1",
        )


LAYER_CONTENT_RULES: Mapping[str, Rule[LayerContents]] = {
    "BN1-SCALE-FINITE": partial(
        _elements,
        role="scale",
        kind="not finite",
        message="scales are not finite",
        expected="finite numbers",
    ),
    "BN1-SCALE-SIGN": partial(
        _elements,
        role="scale",
        kind="negative",
        message="scales are negative",
        expected="scales of at least 0",
    ),
    "BN1-SCALE-ZERO": _scale_zero,
    "BN1-BIAS-FINITE": partial(
        _elements,
        role="bias",
        kind="not finite",
        message="a bias is not finite",
        expected="finite numbers",
    ),
    "BN1-CODES-INT8": _overflow,
    "BN1-STATISTICS-CONSTANT": _constant,
    "BN1-STATISTICS-CODES": _few_codes,
    "BN1-STATISTICS-SCALES": _equal_scales,
    "BN1-STATISTICS-SATURATION": _saturation,
    "BN1-STATISTICS-SWAPPED": _swapped,
    "BN1-STATISTICS-PAIRS": _correlated,
}
"""What the tensors of a layer have to satisfy; each subject is one layer."""

AUX_CONTENT_RULES: Mapping[str, Rule[AuxContents]] = {
    "BN1-AUX-FINITE": _aux_finite,
    "BN1-NORM-ONES": _ones,
    "BN1-HADK-ORTHOGONAL": _orthogonal,
    "BN1-HADK-SIGNS": _signs,
}
"""What a tensor of aux.safetensors has to satisfy."""
