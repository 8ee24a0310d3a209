"""Any causal language model into a checkpoint of `dashq-packed-linear`."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.calibrate import input_energies
from nibblespec.optimized.convert.copies import copied_documents
from nibblespec.optimized.convert.encode_dashq import encode_groups
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.files import (
    Planned,
    TensorFiles,
    index_of,
    shards,
    tensor_files,
    write_file,
    write_json,
)
from nibblespec.optimized.convert.linears import Linear, find_linears
from nibblespec.optimized.convert.loadable import check_loadable
from nibblespec.optimized.convert.source import (
    FLOATS,
    INDEX,
    SINGLE,
    Source,
    Stored,
    read_bytes,
    require_finite,
)
from nibblespec.optimized.layout import codes_per_word, word_count
from nibblespec.optimized.portable.words import pack_words
from nibblespec.spec.dashq_packed_linear.v1.dtypes import LINEAR_DTYPES
from nibblespec.spec.dashq_packed_linear.v1.layout import module_tensors
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from torch import Tensor

FORMAT = "dashq-packed-linear"
MANIFEST = "dashq_config.json"

SMALLEST_GROUP = 16
"""A smaller group is not chosen by itself: scale and zero point would outweigh the codes."""

BLOCK = 1 << 17
"""Weights that are encoded at once, in some 100 bytes of memory each: these fit a cache."""

COPIED = 1 << 24
"""Bytes that are copied at once."""

Advance = Callable[[int], None]
"""Told how many bytes of the source are done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be written: packed modules, and tensors that are copied as they are."""

    linears: Mapping[str, Linear]
    modules: Mapping[str, Module]
    copied: Mapping[str, Stored]
    energies: Mapping[str, Tensor]
    """Mean squares of inputs, by module: those that are missing are rounded to nearest."""
    n_samples: int
    """Windows of text behind them."""

    def tensors(self) -> list[Planned]:
        """Return all tensors, a module's one after the other."""
        packed = [
            Planned(spec.name, spec.dtype, tuple(int(extent or 0) for extent in spec.shape))
            for name, module in self.modules.items()
            for spec in module_tensors(name, module)
            if spec.required
        ]
        return [*packed, *(Planned(name, t.dtype, t.shape) for name, t in self.copied.items())]


def plan_dashq(source: Source, bits: int, group_size: int, text: Path | None = None) -> Plan:
    """Find the linear layers, choose their groups, run the text. Raises ConversionError."""
    tensors = _named_as_the_class_does(source)
    linears, copied = find_linears(tensors)
    if not linears:
        raise ConversionError(
            f"{source.folder}: expected linear layers with names such as "
            f"model.layers.0.self_attn.q_proj.weight, found none (model_type "
            f"{source.config.get('model_type')!r}); this architecture is not supported"
        )
    _check_layers(source, linears)
    _check_biases(linears, copied)
    if _is_tied(source.config):
        copied = {
            name: t for name, t in copied.items() if not f".{name}".endswith(".lm_head.weight")
        }
    modules = {
        name: _module(name, linear, bits, group_size) for name, linear in sorted(linears.items())
    }
    plan = Plan(linears, modules, copied, {}, 0)
    check_loadable(source, _manifest(plan, bits, group_size, None), {SINGLE: plan.tensors()})
    if text is None:
        return plan
    energies, windows = input_energies(source.folder, text)
    if not energies.keys() & modules.keys():
        raise ConversionError(
            f"{source.folder}: calibration expects modules such as {next(iter(modules))} in the "
            "class that transformers loads, found none of them"
        )
    return replace(plan, energies=energies, n_samples=windows)


def write_dashq(
    source: Source,
    plan: Plan,
    folder: Path,
    *,
    bits: int,
    group_size: int,
    base_model: str | None,
    shard_bytes: int,
    advance: Advance,
) -> None:
    """Write the checkpoint, its manifest last."""
    files = shards(plan.tensors(), shard_bytes)
    metadata = {name: {"format": "pt"} for name in files}
    with tensor_files(folder, files, metadata) as out:
        for name, module in plan.modules.items():
            energies = plan.energies.get(name)
            _encode(out, name, plan.linears[name], module, energies, advance)
        for name, stored in plan.copied.items():
            _copy(out, name, stored, advance)
    if len(files) > 1:
        write_json(folder, INDEX, index_of(files))
    manifest = _manifest(plan, bits, group_size, base_model)
    identity = {key: manifest[key] for key in ("format", "format_version", "method")}
    identity["n_quantized_modules"] = len(plan.modules)
    for name, data in copied_documents(source.folder).items():
        write_file(folder / name, data)
    write_json(folder, "config.json", {**source.config, "dashq": identity})
    write_json(folder, MANIFEST, manifest)


def _manifest(plan: Plan, bits: int, group_size: int, base_model: str | None) -> dict[str, Any]:
    used = Counter(module.group_size for module in plan.modules.values())
    inside = any("language_model" in name.split(".") for name in plan.modules)
    return {
        "format": FORMAT,
        "format_version": 1,
        "method": "dashq",
        **({"base_model": base_model} if base_model else {}),
        "model_class": "image_text_to_text" if inside else "causal_lm",
        "params": {
            "bits": bits,
            # What no module has describes none (DQ1-PARAMS-UNUSED).
            "group_size": group_size if group_size in used else used.most_common(1)[0][0],
            "scale_zero_dtype": "float16",
            "n_samples": plan.n_samples,
            "symmetric": False,
            "use_error_compensation": False,
            "use_optimal_shrinkage": False,
            "use_weighted_quantization": bool(plan.energies),
        },
        "quantized_modules": {
            name: module.model_dump(exclude_none=True) for name, module in plan.modules.items()
        },
    }


def _named_as_the_class_does(source: Source) -> dict[str, Stored]:
    """Return the tensors under the names of today's classes in transformers."""
    text_only = "vision_config" not in source.config
    names = {}
    for name, stored in source.tensors.items():
        plain = name.replace(".block_sparse_moe.", ".mlp.")
        # The text part of a larger model keeps that model's names in its file, not in its class.
        if text_only:
            plain = re.sub(r"^(?:model\.language_model|language_model\.model)\.", "model.", plain)
        names[plain] = stored
    return names


def _check_layers(source: Source, linears: Mapping[str, Linear]) -> None:
    text = next(
        (
            source.config[key]
            for key in ("text_config", "llm_config", "language_config")
            if isinstance(source.config.get(key), dict)
        ),
        source.config,
    )
    count = text.get("num_hidden_layers")
    if not isinstance(count, int) or isinstance(count, bool):
        return
    layers = {int(match[1]) for name in linears if (match := re.search(r"layers\.(\d+)\.", name))}
    missing = [layer for layer in range(count) if layer not in layers]
    if missing:
        raise ConversionError(
            f"{source.folder}: config.json has num_hidden_layers {count}, but no linear layer of "
            f"decoder layer {missing[0]} is there; is a shard missing?"
        )


def _check_biases(linears: Mapping[str, Linear], others: Mapping[str, Stored]) -> None:
    """Require what a bias can be: one of a listed module, in the dtype of its weight."""
    for name, stored in others.items():
        module = name.removesuffix(".bias")
        if name != module and module in linears and stored.dtype != linears[module].dtype:
            raise ConversionError(
                f"{stored}: expected {linears[module].dtype}, as its weight has, "
                f"found {stored.dtype}"
            )
        if "experts" in name.split(".") and name.endswith(("_proj.bias", "_proj_bias")):
            raise ConversionError(f"{stored}: experts with biases are not supported")


def _is_tied(config: Mapping[str, Any]) -> bool:
    parts = [config, *(config.get(key) for key in ("text_config", "llm_config", "language_config"))]
    said = [
        part["tie_word_embeddings"]
        for part in parts
        if isinstance(part, dict) and "tie_word_embeddings" in part
    ]
    return bool(said) and all(value is True for value in said)


def _module(name: str, linear: Linear, bits: int, group_size: int) -> Module:
    group = group_size
    while linear.columns % group and group % 2 == 0 and group // 2 >= SMALLEST_GROUP:
        group //= 2
    if linear.columns % group:
        fitting = [str(n) for n in range(1, 257) if linear.columns % n == 0]
        raise ConversionError(
            f"{name}: expected a group size that divides its width {linear.columns}, found "
            f"{group_size}, and no half of it down to {SMALLEST_GROUP} does either; "
            f"choose among {', '.join(fitting)}"
        )
    if not linear.rows:
        raise ConversionError(f"{name}: expected a weight with rows, found none")
    dtype = next(key for key, header in LINEAR_DTYPES.items() if header == linear.dtype)
    return Module(
        nbits=bits,
        group_size=group,
        in_features=linear.columns,
        out_features=linear.rows,
        quant_in_features=linear.columns,
        num_groups=linear.rows * (linear.columns // group),
        packing=f"int{bits}_packed_u32",
        scale_zero_dtype="float16",
        linear_dtype=dtype,
    )


def _encode(
    out: TensorFiles,
    name: str,
    linear: Linear,
    module: Module,
    energies: Tensor | None,
    advance: Advance,
) -> None:
    """Encode a weight block by block of rows; each begins with a new word and a new group."""
    per_word = codes_per_word(module.nbits)
    step = max(1, BLOCK // (linear.columns * per_word)) * per_word
    per_row = linear.columns // module.group_size
    for first in range(0, linear.rows, step):
        last = min(first + step, linear.rows)
        weight = linear.read(first, last)
        try:
            groups = encode_groups(weight, module.nbits, module.group_size, energies)
        except ValueError as error:
            raise ConversionError(f"{name}, rows {first} to {last - 1}: {error}") from None
        words = pack_words(groups.codes.view(-1), module.nbits)
        out.write(f"{name}.W_q_packed", word_count(first * linear.columns, module.nbits), words)
        out.write(f"{name}.scale", first * per_row, groups.scale)
        out.write(f"{name}.zero", first * per_row, groups.zero)
        advance(weight.numel() * FLOATS[linear.dtype].itemsize)


def _copy(out: TensorFiles, name: str, stored: Stored, advance: Advance) -> None:
    for begin in range(0, stored.size, COPIED):
        data = read_bytes(stored, begin, min(COPIED, stored.size - begin))
        if stored.dtype in FLOATS:
            require_finite(stored, torch.frombuffer(data, dtype=FLOATS[stored.dtype]))
        out.write_bytes(name, begin, data)
        advance(len(data))
