"""Contents of a dashq checkpoint: packed words, scales, zero points, and what is not quantized."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from nibblespec.conformance.artifacts.dashq.content_rules import (
    DASHQ_CONTENT_RULES,
    DASHQ_OTHER_RULES,
    ModuleContents,
    OtherContents,
)
from nibblespec.conformance.artifacts.findings import Finding, apply_rules
from nibblespec.conformance.artifacts.reading.blocks import Bytes, Run, TensorBytes
from nibblespec.conformance.artifacts.scanning.facts import Counts, Facts, Hit, first_hit
from nibblespec.conformance.artifacts.scanning.float_contents import (
    FLOATS,
    scan_finite,
)
from nibblespec.conformance.artifacts.scanning.samples import sample
from nibblespec.conformance.artifacts.scanning.units import Part, Scan, Unit
from nibblespec.conformance.artifacts.scanning.zero_groups import Codes, scan_scales
from nibblespec.spec.dashq_packed_linear.v1.layout import (
    codes_per_word,
    module_tensors,
    word_count,
)
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest, Module


def dashq_units(manifest: Manifest, tensors: Mapping[str, TensorBytes]) -> Iterator[Unit]:
    """Yield what is to be looked at, in the order in which it lies in the files."""
    owners: dict[str, str] = {}
    for name, module in manifest.quantized_modules.items():
        owners.update(dict.fromkeys(_own_tensors(name, module, tensors).values(), name))
    done: set[str] = set()
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.source.file, tensor.begin)):
        owner = owners.get(tensor.entry.name)
        if owner is None:
            yield from _other_unit(tensor, manifest)
        elif owner not in done:
            done.add(owner)
            yield _module_unit(owner, manifest.quantized_modules[owner], tensors)


def _own_tensors(name: str, module: Module, tensors: Mapping[str, TensorBytes]) -> dict[str, str]:
    """Return the names of a module's tensors by role, where dtype and shape are as they should."""
    try:
        specs = list(module_tensors(name, module))
    except ValueError:
        return {}  # a dtype that no reader knows: the manifest's own rules report it
    return {
        spec.role: spec.name
        for spec in specs
        if (found := tensors.get(spec.name)) is not None
        and (found.entry.dtype, found.entry.shape) == (spec.dtype, spec.shape)
    }


def _module_unit(name: str, module: Module, tensors: Mapping[str, TensorBytes]) -> Unit:
    own = {role: tensors[found] for role, found in _own_tensors(name, module, tensors).items()}
    codes = _codes(module, own.get("words"))

    def scan(role: str, dtype: str) -> Scan:
        if role == "words":
            return partial(_scan_words, module=module)
        if role == "scale":
            return partial(scan_scales, dtype=dtype, codes=codes)
        return partial(scan_finite, dtype=dtype)

    def judge(facts: Mapping[str, Facts]) -> Iterator[Finding]:
        contents = ModuleContents(module=module, tensors=own, facts=facts)
        return apply_rules(DASHQ_CONTENT_RULES, contents, "")

    parts = tuple(
        Part(name=role, tensors=(tensor,), scan=scan(role, tensor.entry.dtype))
        for role, tensor in own.items()
    )
    return Unit(parts=parts, judge=judge)


def _other_unit(tensor: TensorBytes, manifest: Manifest) -> Iterator[Unit]:
    """Yield the unit of a tensor that is not quantized, if there is anything to look at."""
    name, dtype = tensor.entry.name, tensor.entry.dtype
    if dtype not in FLOATS or name.rpartition(".")[0] in manifest.quantized_modules:
        return

    def judge(facts: Mapping[str, Facts]) -> Iterator[Finding]:
        contents = OtherContents(tensor=tensor, facts=facts.get("values", Facts()))
        return apply_rules(DASHQ_OTHER_RULES, contents, "")

    scan = partial(scan_finite, dtype=dtype)
    yield Unit(parts=(Part(name="values", tensors=(tensor,), scan=scan),), judge=judge)


def _codes(module: Module, words: TensorBytes | None) -> Codes | None:
    """Return where the codes of a module are, None where they do not fit its groups."""
    whole = module.num_groups * module.group_size == module.out_features * module.quant_in_features
    if words is None or not whole:
        return None
    return Codes(tensors=(words,), nbits=module.nbits, word_bytes=4, group=module.group_size)


def _scan_words(blocks: tuple[Bytes, ...], position: int, _run: Run, *, module: Module) -> Facts:
    """Look at packed words: spare and tail bits, bits in common, and the codes of the sample."""
    words = blocks[0].view("<u4")
    at, bits = position // 4, module.nbits
    per_word = codes_per_word(bits)
    hits: dict[str, Hit] = {}
    spare = 2**32 - 2 ** (bits * per_word)
    if int(np.bitwise_or.reduce(words)) & spare:
        hits["spare"] = first_hit(words & spare != 0, words, at)
    rest = module.out_features * module.quant_in_features % per_word
    if rest and at + len(words) == word_count(module):
        if int(words[-1]) & (2 ** (bits * per_word) - 2 ** (bits * rest)):
            hits["tail"] = Hit(1, at + len(words) - 1, int(words[-1]))
        words = words[:-1]  # the last word has fewer codes, and is no part of what follows
    if not len(words):
        return Facts(hits=hits)
    every, some = np.bitwise_and.reduce(words), np.bitwise_or.reduce(words)
    counts = _count_codes(sample(words.view(np.uint8)), bits) if bits > 2 else None
    return Facts(hits=hits, every=(int(every),), some=(int(some),), counts=counts)


def _count_codes(raw: Bytes, bits: int) -> Counts:
    words = raw.view("<u4")
    mask = 2**bits - 1
    counts = np.zeros(2**bits, np.int64)
    for index in range(codes_per_word(bits)):
        counts += np.bincount(words >> bits * index & mask, minlength=2**bits)
    return counts
