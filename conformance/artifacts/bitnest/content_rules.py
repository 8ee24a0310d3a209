"""What the contents of a bitnest package have to satisfy, given what was found in its tensors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from nibblespec.conformance.artifacts.bitnest.orthogonality import tolerance
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.reading.blocks import TensorBytes
from nibblespec.conformance.artifacts.scanning.facts import Facts, Hit
from nibblespec.conformance.artifacts.scanning.float_contents import float_value
from nibblespec.conformance.artifacts.scanning.units import and_more, hit_problem, index_text
from nibblespec.spec.bitnest_package.v1.manifest import Layer


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
        yield hit_problem(
            hit,
            contents.tensors["scale"],
            message="groups whose scale is 0 hold codes that are not",
            expected="q4 = 0 and qr = 0 where the scale is 0",
            found="other codes",
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
        )


def _aux_finite(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("not finite")
    if hit is not None:
        message = "a tensor has elements that are not finite"
        yield hit_problem(hit, contents.tensor, message=message, expected="finite numbers")


def _ones(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("not one")
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
            hint="the transform would change the layer: store the matrix that was folded into it, "
            "with rows of norm √K, and round it to no 16-bit type on the way",
        )


def _signs(contents: AuxContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("no sign")
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
}
"""What the tensors of a layer have to satisfy; each subject is one layer."""

AUX_CONTENT_RULES: Mapping[str, Rule[AuxContents]] = {
    "BN1-AUX-FINITE": _aux_finite,
    "BN1-NORM-ONES": _ones,
    "BN1-HADK-ORTHOGONAL": _orthogonal,
    "BN1-HADK-SIGNS": _signs,
}
"""What a tensor of aux.safetensors has to satisfy."""
