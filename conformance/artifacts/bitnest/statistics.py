"""Statistics of a nested layer's codes and scales: what no producer makes of weights.

The thresholds are those of the specification's section on statistics, which says where they
come from.
"""

from collections.abc import Iterator, Mapping
from math import sqrt

import numpy as np
from nibblespec.conformance.artifacts.bitnest.content_rules import LayerContents
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.scanning.facts import Counts, Facts, is_constant
from nibblespec.conformance.artifacts.scanning.float_contents import FLOATS, float_value
from nibblespec.conformance.artifacts.scanning.samples import (
    ENOUGH,
    LEAST_GROUP,
    LEAST_GROUPS,
    LONGEST_GROUP,
)

FEW_CODES = 4
SATURATED = 0.75
LOWEST_SHARE = 1 / 200
PEAKEDNESS = 1.2
ENOUGH_PAIRS = 16_384
CORRELATION = -0.02

_CODES = np.arange(-8, 8)


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
    pairs = _pairs(contents)
    if pairs is None or any(is_constant(contents.facts["planes"], index) for index in (0, 1)):
        return
    total = float(pairs.sum())
    q4, qr = pairs.sum(axis=1) / total, pairs.sum(axis=0) / total
    if q4[0] > LOWEST_SHARE and (qr**2).sum() > PEAKEDNESS * (q4**2).sum():
        tensor = contents.tensors["hi"]
        yield Problem(
            message="the planes hi and lo look exchanged",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="q4 around 0 and hardly ever −8, qr evenly distributed",
            found="the other way round",
        )


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


LAYER_STATISTICS: Mapping[str, Rule[LayerContents]] = {
    "BN1-STATISTICS-CONSTANT": _constant,
    "BN1-STATISTICS-CODES": _few_codes,
    "BN1-STATISTICS-SCALES": _equal_scales,
    "BN1-STATISTICS-SATURATION": _saturation,
    "BN1-STATISTICS-SWAPPED": _swapped,
    "BN1-STATISTICS-PAIRS": _correlated,
}
"""What codes and scales of a layer have to look like; each subject is one layer."""
