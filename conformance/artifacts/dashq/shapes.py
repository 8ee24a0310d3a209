"""Rules on modules of `dashq-packed-linear` that belong together: attention, MLP, experts."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts import siblings
from nibblespec.conformance.artifacts.dashq.modules import MODULES
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest, Module
from nibblespec.spec.json_strict import pointer

Family = Mapping[str, Module]
"""Modules under one parent, by their last segment."""

_BEFORE_DOWN = {"gate_proj": 1, "up_proj": 1, "gate_up_proj": 2}
"""What comes before `down_proj`, with its rows for each column of that."""

_LISTS = {"gate_up_proj_list": 2, "up_proj_list": 1}
"""What comes before `down_proj_list`, likewise."""

_DECODER_LAYER = re.compile(r"(?:.*\.)?layers\.[0-9]{1,9}", re.DOTALL)

_HIDDEN = {
    "self_attn.q_proj": "in_features",
    "self_attn.k_proj": "in_features",
    "self_attn.v_proj": "in_features",
    "mlp.gate_proj": "in_features",
    "mlp.up_proj": "in_features",
    "self_attn.o_proj": "out_features",
    "mlp.down_proj": "out_features",
}
"""Modules of a decoder layer that read or add to the hidden states, with the key of that width."""

_LATENT = ("kv_b_proj", "kv_a_proj_with_mqa")
"""Modules of latent attention, whose query and value heads differ in width."""


def _families(manifest: Manifest, *needed: str) -> Iterator[tuple[str, Family]]:
    """Yield the parents that have all of some modules."""
    for parent, family in siblings.families(manifest.quantized_modules).items():
        if all(last in family for last in needed):
            yield parent, family


def _problem(parent: str, last: str, key: str, message: str, expected: str, found: int) -> Problem:
    name = f"{parent}.{last}" if parent else last
    return Problem(
        message=message,
        pointer=pointer(MODULES, name, key),
        expected=expected,
        found=show(found),
    )


def _heads_differ(family: Family) -> bool:
    """Say whether the heads of keys and of values have different widths, by DQ1, 3.5."""
    if not family.keys() >= {"q_proj", "k_proj", "v_proj", "o_proj"}:
        return False
    query, key, value = (family[last].out_features for last in ("q_proj", "k_proj", "v_proj"))
    output = family["o_proj"].in_features
    return query * value == key * output and key != value and query != 2 * output


def key_value(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-KV: as many value rows as key rows."""
    for parent, family in _families(manifest, "k_proj", "v_proj"):
        key, value = family["k_proj"].out_features, family["v_proj"].out_features
        if key != value and not _heads_differ(family):
            yield _problem(
                parent,
                "v_proj",
                "out_features",
                "`k_proj` and `v_proj` differ in `out_features`",
                f"{show(key)}, as k_proj has",
                value,
            )


def query_output(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-QO: o_proj takes what the query heads give, with or without a gate."""
    for parent, family in _families(manifest, "q_proj", "o_proj"):
        if any(last in family for last in _LATENT):
            continue
        query, output = family["q_proj"].out_features, family["o_proj"].in_features
        if query not in (output, 2 * output) and not _heads_differ(family):
            yield _problem(
                parent,
                "o_proj",
                "in_features",
                "`o_proj` does not take what `q_proj` gives",
                f"{show(query)}, the rows of q_proj, or half of them",
                output,
            )


def heads(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-HEADS: whole numbers of query heads for each key head."""
    for parent, family in _families(manifest, "q_proj", "k_proj"):
        query, key = family["q_proj"].out_features, family["k_proj"].out_features
        if query % key:
            yield _problem(
                parent,
                "q_proj",
                "out_features",
                "the rows of `q_proj` are no multiple of those of `k_proj`",
                f"a multiple of {show(key)}",
                query,
            )


def attention_input(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-ATTENTION-INPUT: queries, keys and values are made of the same input."""
    for parent, family in _families(manifest, "q_proj"):
        if siblings.split(parent)[1] != "self_attn":
            continue
        width = family["q_proj"].in_features
        for last in ("k_proj", "v_proj"):
            if last in family and family[last].in_features != width:
                yield _problem(
                    parent,
                    last,
                    "in_features",
                    f"`q_proj` and `{last}` differ in `in_features`",
                    f"{show(width)}, as q_proj has",
                    family[last].in_features,
                )


def gate_up(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-GATE-UP: the gate is multiplied with what it gates."""
    for parent, family in _families(manifest, "gate_proj", "up_proj"):
        gate, up = family["gate_proj"].out_features, family["up_proj"].out_features
        if gate != up:
            yield _problem(
                parent,
                "up_proj",
                "out_features",
                "`gate_proj` and `up_proj` differ in `out_features`",
                f"{show(gate)}, as gate_proj has",
                up,
            )


def mlp_input(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-MLP-INPUT: the gate reads what the gated layer reads."""
    for parent, family in _families(manifest, "gate_proj", "up_proj"):
        gate, up = family["gate_proj"].in_features, family["up_proj"].in_features
        if gate != up:
            yield _problem(
                parent,
                "up_proj",
                "in_features",
                "`gate_proj` and `up_proj` differ in `in_features`",
                f"{show(gate)}, as gate_proj has",
                up,
            )


def _width(rows: int, for_each: int) -> str:
    return show(rows) if for_each == 1 else f"half of {show(rows)}"


def down(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-DOWN: down_proj takes what the layers before it give."""
    for parent, family in _families(manifest, "down_proj"):
        columns = family["down_proj"].in_features
        before = {last: family[last].out_features for last in _BEFORE_DOWN if last in family}
        if before and all(rows != columns * _BEFORE_DOWN[last] for last, rows in before.items()):
            yield _problem(
                parent,
                "down_proj",
                "in_features",
                "`down_proj` does not take what the layers before it give",
                " or ".join(_width(rows, _BEFORE_DOWN[last]) for last, rows in before.items()),
                columns,
            )


def hidden(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-HIDDEN: one width of the hidden states in a decoder layer."""
    modules = manifest.quantized_modules
    owners = (siblings.split(siblings.split(name)[0])[0] for name in modules)
    for layer in filter(_DECODER_LAYER.fullmatch, dict.fromkeys(owners)):
        widths: dict[tuple[str, str], int] = {
            (f"{layer}.{rest}", key): getattr(modules[f"{layer}.{rest}"], key)
            for rest, key in _HIDDEN.items()
            if f"{layer}.{rest}" in modules
        }
        usual = siblings.most_common(widths.values())
        for (name, key), width in widths.items():
            if width != usual:
                yield Problem(
                    message="modules of one decoder layer differ in the width of the hidden states",
                    pointer=pointer(MODULES, name, key),
                    expected=f"{show(usual)}, as most of {show(layer)} have",
                    found=show(width),
                )


def experts(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-SHAPE-EXPERTS: the same within every expert of a list."""
    modules = manifest.quantized_modules
    for name, module in modules.items():
        parent, index = siblings.split(name)
        owner, kind = siblings.split(parent)
        down = modules.get(f"{owner}.down_proj_list.{index}" if owner else "")
        if kind in _LISTS and down and module.out_features != _LISTS[kind] * down.in_features:
            yield _problem(
                f"{owner}.down_proj_list",
                index,
                "in_features",
                f"an expert's `down_proj_list` does not take what its `{kind}` gives",
                _width(module.out_features, _LISTS[kind]),
                down.in_features,
            )


def experts_complete(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-EXPERTS-COMPLETE: the lists of a layer's experts agree and have no gaps."""
    for owner, lists in _expert_numbers(manifest).items():
        everyone = set().union(*lists.values())
        last = max(everyone)
        for name, numbers in lists.items():
            absent = siblings.gap(numbers | {last + 1})
            if absent is not None and absent <= last:
                yield Problem(
                    message="experts are missing",
                    pointer=pointer(MODULES),
                    expected=f"each of 0 to {last} in {show(f'{owner}.{name}' if name else owner)}",
                    found=f"{len(numbers)} of them, not {absent}",
                )


def _expert_numbers(manifest: Manifest) -> Mapping[str, Mapping[str, set[int]]]:
    """Collect the numbers of experts by owner and list; without lists the list is ""."""
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name in manifest.quantized_modules:
        for owner, of_list, number in siblings.experts(name):
            found[owner][of_list].add(number)
    return found


def contiguous(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-LAYERS-CONTIGUOUS: a decoder layer has nothing packed."""
    return siblings.missing_layers(manifest.quantized_modules, MODULES)


def coverage(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-LAYERS-COVERAGE: which kinds of module are packed in some layers only."""
    lasts: dict[str, dict[str, None]] = defaultdict(dict)
    families = siblings.families(manifest.quantized_modules)
    for parent, family in families.items():
        lasts[siblings.kind(parent)].update(dict.fromkeys(map(siblings.kind, family)))
    for parent, family in families.items():
        present = set(map(siblings.kind, family))
        everywhere = lasts[siblings.kind(parent)]
        if len(present) < len(everywhere):
            absent = next(last for last in everywhere if last not in present)
            yield Problem(
                message=f"a layer lacks {show(absent)}, which is packed in other layers",
                pointer=pointer(MODULES),
                expected=f"{len(everywhere)} kinds of module in {show(parent)}",
                found=f"{len(present)} of them",
            )
