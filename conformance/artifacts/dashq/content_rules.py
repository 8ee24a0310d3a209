"""What the contents of a dashq module have to satisfy, given what was found in its tensors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.reading.blocks import TensorBytes
from nibblespec.conformance.artifacts.scanning.facts import Facts, Hit, is_constant
from nibblespec.conformance.artifacts.scanning.float_contents import FLOATS, float_value
from nibblespec.conformance.artifacts.scanning.samples import (
    ENOUGH,
    LEAST_GROUP,
    LEAST_GROUPS,
    LONGEST_GROUP,
)
from nibblespec.conformance.artifacts.scanning.units import and_more, hit_problem
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module

_TELLING_DTYPES = ("F16", "F32")
_PARAMETERS = (".weight", ".bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleContents:
    """What was found in the tensors of a module."""

    module: Module
    tensors: Mapping[str, TensorBytes]
    """Those that are there with the dtype and shape that they should have, by role."""
    facts: Mapping[str, Facts]
    """What was found in them, by role; nothing of those without elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherContents:
    """What was found in a floating-point tensor that belongs to no module."""

    tensor: TensorBytes
    facts: Facts


def _hit(contents: ModuleContents, role: str, kind: str) -> Hit | None:
    facts = contents.facts.get(role)
    return facts.hits.get(kind) if facts else None


def _elements(
    contents: ModuleContents, role: str, kind: str, message: str, expected: str
) -> Iterator[Problem]:
    hit = _hit(contents, role, kind)
    if hit is not None:
        yield hit_problem(hit, contents.tensors[role], message=message, expected=expected)


def _scale_zero(contents: ModuleContents) -> Iterator[Problem]:
    hit = _hit(contents, "scale", "mixed")
    if hit is not None:
        yield hit_problem(
            hit,
            contents.tensors["scale"],
            message="groups whose scale is 0 hold different codes",
            expected="one code only where the scale is 0",
            found="several codes",
        )


def _words(contents: ModuleContents, kind: str, message: str, expected: str) -> Iterator[Problem]:
    hit = _hit(contents, "words", kind)
    if hit is not None:
        tensor = contents.tensors["words"]
        yield Problem(
            message=message,
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected=expected,
            found=f"0x{hit.bits:08X} at [{hit.first}]{and_more(hit)}",
        )


def _constant(contents: ModuleContents) -> Iterator[Problem]:
    words, scales = contents.facts.get("words"), contents.facts.get("scale")
    if words and scales and _large(contents) and is_constant(words) and not _all_zero(contents):
        tensor = contents.tensors["words"]
        yield Problem(
            message="all packed words are equal, as in memory that was never written",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="words of codes that differ",
            found=f"0x{words.every[0]:08X} in every word",
        )


def _few_codes(contents: ModuleContents) -> Iterator[Problem]:
    words, bits = contents.facts.get("words"), contents.module.nbits
    if not words or words.counts is None or not _large(contents) or is_constant(words):
        return
    used = np.flatnonzero(words.counts)
    if len(used) ** 2 <= 2**bits:
        tensor = contents.tensors["words"]
        yield Problem(
            message="a module uses few of the codes that its bits allow",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected=f"more than {int(2 ** (bits / 2))} of {2**bits} codes",
            found=f"{len(used)}: {', '.join(map(str, used))}",
            hint="was it quantized to the width that nbits says?",
        )


def _equal_scales(contents: ModuleContents) -> Iterator[Problem]:
    scales, module = contents.facts.get("scale"), contents.module
    if not scales or module.num_groups < LEAST_GROUPS or module.group_size > LONGEST_GROUP:
        return
    tensor = contents.tensors["scale"]
    dtype = tensor.entry.dtype
    if dtype in _TELLING_DTYPES and is_constant(scales) and not _all_zero(contents):
        yield Problem(
            message="all scales of a module are equal",
            file=tensor.source.file,
            tensor=tensor.entry.name,
            expected="scales that follow the weights of their groups",
            found=f"{float_value(scales.every[0], dtype):g} in all {module.num_groups:,} groups",
        )


def _large(contents: ModuleContents) -> bool:
    """Say whether a module is so large that statements on its codes are no chance."""
    module = contents.module
    codes = module.out_features * module.quant_in_features
    return codes >= ENOUGH and module.group_size >= LEAST_GROUP


def _all_zero(contents: ModuleContents) -> bool:
    """Say whether all scales are zero, of either sign."""
    scales = contents.facts["scale"]
    return scales.some[0] & FLOATS[contents.tensors["scale"].entry.dtype].magnitude == 0


def _parameter(contents: OtherContents) -> Iterator[Problem]:
    if contents.tensor.entry.name.endswith(_PARAMETERS):
        yield from _other(contents)


def _buffer(contents: OtherContents) -> Iterator[Problem]:
    if not contents.tensor.entry.name.endswith(_PARAMETERS):
        yield from _other(contents)


def _other(contents: OtherContents) -> Iterator[Problem]:
    hit = contents.facts.hits.get("not finite")
    if hit is not None:
        message = "a tensor that is not quantized has elements that are not finite"
        yield hit_problem(hit, contents.tensor, message=message, expected="finite numbers")


DASHQ_CONTENT_RULES: Mapping[str, Rule[ModuleContents]] = {
    "DQ1-TENSOR-SCALE-FINITE": partial(
        _elements,
        role="scale",
        kind="not finite",
        message="scales are not finite",
        expected="finite numbers",
    ),
    "DQ1-TENSOR-ZERO-FINITE": partial(
        _elements,
        role="zero",
        kind="not finite",
        message="zero points are not finite",
        expected="finite numbers",
    ),
    "DQ1-TENSOR-BIAS-FINITE": partial(
        _elements,
        role="bias",
        kind="not finite",
        message="a bias is not finite",
        expected="finite numbers",
    ),
    "DQ1-TENSOR-SCALE-SIGN": partial(
        _elements,
        role="scale",
        kind="negative",
        message="scales are negative",
        expected="scales of at least 0",
    ),
    "DQ1-TENSOR-SCALE-ZERO": _scale_zero,
    "DQ1-PACKING-SPARE-BITS": partial(
        _words,
        kind="spare",
        message="bits of words that hold no code are set",
        expected="zeros in the most significant bits",
    ),
    "DQ1-PACKING-TAIL-BITS": partial(
        _words,
        kind="tail",
        message="bits after the last code are set",
        expected="zeros after the last code",
    ),
    "DQ1-STATISTICS-CONSTANT": _constant,
    "DQ1-STATISTICS-CODES": _few_codes,
    "DQ1-STATISTICS-SCALES": _equal_scales,
}
"""What the tensors of a module have to satisfy; each subject is one module."""

DASHQ_OTHER_RULES: Mapping[str, Rule[OtherContents]] = {
    "DQ1-TENSOR-UNQUANTIZED-FINITE": _parameter,
    "DQ1-TENSOR-BUFFER-FINITE": _buffer,
}
"""What a floating-point tensor outside of the modules has to satisfy."""
