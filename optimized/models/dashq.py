"""Loading a checkpoint of dashq-packed-linear."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.arrays import FLOAT_DTYPES
from nibblespec.optimized.models.files import (
    LoadError,
    Stored,
    check_specs,
)
from nibblespec.optimized.models.names import Names
from nibblespec.optimized.models.skeleton import (
    build,
    check_layer_count,
    fill,
    initialize_buffers,
    keep_in_float32,
    listed,
    model_dtype,
    read_config,
    read_generation_config,
    replace,
    state_names,
)
from nibblespec.optimized.modules import DashQLinear, PackedExperts
from nibblespec.optimized.modules.experts import LISTS
from nibblespec.optimized.operations import Operations
from nibblespec.spec.dashq_packed_linear.v1.dtypes import canonical_dtype
from nibblespec.spec.dashq_packed_linear.v1.layout import expected_tensors
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest, Module
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

_EXPERT = re.compile(rf"(?P<parent>.+)\.(?P<list>{'|'.join(LISTS)})\.(?P<number>[0-9]+)")


def load_dashq(
    folder: Path,
    manifest: Manifest,
    stored: Mapping[str, Stored],
    operations: Operations,
    device: torch.device,
    dtype: torch.dtype | None,
) -> Any:  # noqa: ANN401  # a model of any architecture
    """Return the model of a checkpoint, its listed modules packed.

    folder: that of config.json; stored: the tensors of all files.

    Raises LoadError, naming file and tensor.
    """
    config = read_config(folder)
    check_layer_count(folder, config, len(stored))
    check_specs(_specs(folder, manifest), stored, folder)
    visual = manifest.model_class == "image_text_to_text"
    auto = AutoModelForImageTextToText if visual else AutoModelForCausalLM
    compute = _compute_dtype(folder, config, manifest, dtype)
    model = build(auto, config, compute)
    names = Names(model)
    experts: dict[str, dict[str, Module]] = {}
    for name, module in manifest.quantized_modules.items():
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(match["parent"], {})[name] = module
        else:
            _replace_linear(model, names, name, module, stored, operations)
    for parent, modules in experts.items():
        _replace_experts(model, names, parent, modules, stored, operations)
    keep_in_float32(model, compute)
    fill(model, _sources(model, names, stored), device, folder)
    initialize_buffers(model, device)
    read_generation_config(model, folder)
    return model


def _compute_dtype(
    folder: Path,
    config: Any,  # noqa: ANN401
    manifest: Manifest,
    dtype: torch.dtype | None,
) -> torch.dtype:
    """Return the dtype of activations, which is the one that all packed modules take.

    Raises LoadError where they differ among themselves, or from the dtype that is asked for.
    """
    firsts: dict[str, str] = {}
    for name, module in manifest.quantized_modules.items():
        firsts.setdefault(canonical_dtype(module.linear_dtype) or module.linear_dtype, name)
    if len(firsts) > 1:
        found = " and ".join(f"{kind} ({name})" for kind, name in list(firsts.items())[:2])
        raise LoadError(f"{folder}: linear_dtype: expected one for all modules, found {found}")
    taken = next((FLOAT_DTYPES.get(name) for name in firsts), None)
    if taken is not None and dtype not in (None, taken):
        raise LoadError(
            f"{folder}: dtype: expected {_plain(taken)} or None, since packed modules take "
            f"their linear_dtype alone, found {_plain(dtype)}"
        )
    return model_dtype(config, taken or dtype)


def _plain(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _specs(folder: Path, manifest: Manifest) -> list[Any]:
    try:
        return list(expected_tensors(manifest))
    except ValueError as error:
        raise LoadError(f"{folder}: {error}") from error


def _packed(
    name: str, module: Module, stored: Mapping[str, Stored], operations: Operations
) -> DashQLinear:
    bias = f"{name}.bias" in stored
    try:
        return DashQLinear(module, operations, bias=bias, device="meta")
    except ValueError as error:
        raise LoadError(f"{name}: {error}") from error


def _replace_linear(
    model: nn.Module,
    names: Names,
    name: str,
    module: Module,
    stored: Mapping[str, Stored],
    operations: Operations,
) -> None:
    here = names.module(name)
    linear = names.modules.get(here)
    if not isinstance(linear, nn.Linear):
        found = "nothing" if linear is None else type(linear).__name__
        raise LoadError(
            f"{name}: expected a linear layer of {type(model).__name__}, found {found} of that name"
        )
    sizes = (module.out_features, module.in_features)
    if (linear.out_features, linear.in_features) != sizes:
        raise LoadError(
            f"{name}: expected out_features and in_features "
            f"{linear.out_features} and {linear.in_features}, as config.json has them, "
            f"found {sizes[0]} and {sizes[1]}"
        )
    replace(model, here, _packed(name, module, stored, operations))


def _replace_experts(
    model: nn.Module,
    names: Names,
    parent: str,
    modules: Mapping[str, Module],
    stored: Mapping[str, Stored],
    operations: Operations,
) -> None:
    """Put packed experts in the place of fused ones, which are parameters [E, N, K]."""
    here = names.module(parent)
    fused: Any = names.modules.get(here)
    gated = hasattr(fused, "gate_up_proj")
    first = "gate_up_proj" if gated else "up_proj"
    if not isinstance(getattr(fused, first, None), nn.Parameter):
        raise LoadError(f"{parent}: expected fused experts of {type(model).__name__}, found none")
    if getattr(fused, "has_post_expert_norm", False):
        raise LoadError(f"{parent}: {type(fused).__name__} norms its experts: not supported")
    transposed = getattr(fused, "is_transposed", False)
    lists: dict[str, list[DashQLinear]] = {}
    for weight in (first, "down_proj"):
        count, *sizes = getattr(fused, weight).shape
        rows, columns = reversed(sizes) if transposed else sizes
        lists[weight] = []
        for number in range(count):
            name = f"{parent}.{weight}_list.{number}"
            module = modules.get(name)
            if module is None:
                raise LoadError(f"{name}: is not in the manifest, which has others of {parent}")
            if (module.out_features, module.in_features) != (rows, columns):
                raise LoadError(
                    f"{name}: expected out_features and in_features {rows} and {columns}, as "
                    f"config.json has them, found {module.out_features} and {module.in_features}"
                )
            lists[weight].append(_packed(name, module, stored, operations))
    known = {
        f"{parent}.{weight}_list.{i}" for weight, all_ in lists.items() for i in range(len(all_))
    }
    if unknown := sorted(modules.keys() - known):
        raise LoadError(f"{listed(unknown)}: no such experts in {type(model).__name__}")
    for name, _ in list(fused.named_parameters(recurse=False)):
        delattr(fused, name)  # its weights; its activation is still needed
    activation = partial(_gate, fused) if gated else fused.act_fn
    replace(model, here, PackedExperts(lists[first], lists["down_proj"], activation, gated=gated))


def _gate(fused: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Return what experts make of gates and ups; transformers' method itself is not pickled."""
    y: Tensor = fused._apply_gate(x)
    return y


def _sources(model: Any, names: Names, stored: Mapping[str, Stored]) -> dict[str, Stored]:  # noqa: ANN401
    """Return the source of each tensor of the model; every tensor of the files is one.

    Raises LoadError for a tensor that nothing in the model claims, unless transformers says of its
    architecture that such tensors are left out.
    """
    state = state_names(model)
    ignored = [re.compile(one) for one in model._keys_to_ignore_on_load_unexpected or ()]
    sources: dict[str, Stored] = {}
    for name, one in stored.items():
        here = name if name in state else names.tensor(name)
        if here in sources:
            raise LoadError(f"{one}: is for {here} of the model, as {sources[here].name} is")
        if here in state:
            sources[here] = one
        elif not any(pattern.search(name) for pattern in ignored):
            raise LoadError(f"{one}: nothing in {type(model).__name__} has a tensor of that name")
    return sources
