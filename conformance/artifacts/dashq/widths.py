"""Widths of a dashq checkpoint's modules against `config.json`: layers, heads and experts."""

from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts import siblings
from nibblespec.conformance.artifacts.dashq.config import DashqConfig
from nibblespec.conformance.artifacts.dashq.inventory import MANIFEST
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.reading.model_config import (
    Config,
    head_dim,
    integer,
    key_value_heads,
    text_config,
    width_problem,
)
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.json_strict import pointer

_FROM_HIDDEN = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
)
_TO_HIDDEN = ("self_attn.o_proj", "mlp.down_proj")
_OTHER_HEADS = (
    "kv_lora_rank",
    "v_head_dim",
    "global_head_dim",
    "attention_other_setting",
    "block_configs",
)
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def _hidden(subject: DashqConfig) -> Iterator[Problem]:
    hidden = integer(text_config(subject.config)[0], "hidden_size")
    for name, _, rest, module in _modules(subject):
        if rest in _FROM_HIDDEN:
            yield from _input(name, module, (hidden,), "hidden_size")
        if rest in _TO_HIDDEN:
            yield from _output(name, module, (hidden,), "hidden_size")


def _intermediate(subject: DashqConfig) -> Iterator[Problem]:
    text = text_config(subject.config)[0]
    for name, layer, rest, module in _modules(subject):
        width = _of_layer(text, "intermediate_size", layer)
        double = 2 * width if width and text.get("use_double_wide_mlp") is True else None
        if rest in ("mlp.gate_proj", "mlp.up_proj"):
            yield from _output(name, module, (width, double), "intermediate_size")
        if rest == "mlp.down_proj":
            yield from _input(name, module, (width, double), "intermediate_size")


def _of_layer(config: Config, key: str, layer: int) -> int | None:
    """Return a value that is one for all layers or a list with one for each."""
    values = config.get(key)
    if isinstance(values, list):
        return integer({key: values[layer]}, key) if layer < len(values) else None
    return integer(config, key)


def _heads(subject: DashqConfig) -> Iterator[Problem]:
    text = text_config(subject.config)[0]
    heads, width = integer(text, "num_attention_heads"), head_dim(text)
    groups = key_value_heads(text)
    if any(text.get(key) is not None for key in _OTHER_HEADS) or not heads or not width:
        return
    queries, keys = heads * width, groups * width if groups else None
    for name, _, rest, module in _modules(subject):
        if rest == "self_attn.q_proj":
            source = "num_attention_heads · head_dim, or twice that,"
            yield from _output(name, module, (queries, 2 * queries), source)
        if rest in ("self_attn.k_proj", "self_attn.v_proj"):
            yield from _output(name, module, (keys,), "num_key_value_heads · head_dim")
        if rest == "self_attn.o_proj":
            yield from _input(name, module, (queries,), "num_attention_heads · head_dim")


def _modules(subject: DashqConfig) -> Iterator[tuple[str, int, str, Module]]:
    for name, layer, rest in subject.modules:
        yield name, layer, rest, subject.inventory.manifest.quantized_modules[name]


def _input(
    name: str, module: Module, expected: tuple[int | None, ...], source: str
) -> Iterator[Problem]:
    return width_problem(
        file=MANIFEST,
        place=pointer("quantized_modules", name, "in_features"),
        message="the input width of a module is not what config.json gives",
        expected=expected,
        source=source,
        found=module.in_features,
    )


def _output(
    name: str, module: Module, expected: tuple[int | None, ...], source: str
) -> Iterator[Problem]:
    return width_problem(
        file=MANIFEST,
        place=pointer("quantized_modules", name, "out_features"),
        message="the output width of a module is not what config.json gives",
        expected=expected,
        source=source,
        found=module.out_features,
    )


def _experts(subject: DashqConfig) -> Iterator[Problem]:
    text, path = text_config(subject.config)
    key = next((key for key in _EXPERT_COUNTS if integer(text, key)), None)
    if key is None:
        return
    highest: dict[tuple[int, str], int] = {}
    for _, layer, rest in subject.modules:
        for owner, of_list, number in siblings.experts(rest):
            place = (layer, f"{owner}.{of_list}" if of_list else owner)
            highest[place] = max(highest.get(place, 0), number)
    for (in_layer, parent), last in highest.items():
        if last + 1 != integer(text, key):
            yield Problem(
                message="the number of experts is not that of config.json",
                pointer=pointer(*path, key),
                expected=f"{integer(text, key)} experts",
                found=f"{last + 1} in {subject.stack}.layers.{in_layer}.{parent}",
            )


DASHQ_WIDTH_RULES: Mapping[str, Rule[DashqConfig]] = {
    "DQ1-CONFIG-HIDDEN": _hidden,
    "DQ1-CONFIG-INTERMEDIATE": _intermediate,
    "DQ1-CONFIG-HEADS": _heads,
    "DQ1-CONFIG-EXPERTS": _experts,
}
"""What the modules of decoder layers have to satisfy, given config.json."""
