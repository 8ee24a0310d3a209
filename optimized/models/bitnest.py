"""Loading a package of bitnest-package-v1."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.models.files import LoadError, Stored, check_specs, read_tensor
from nibblespec.optimized.models.skeleton import (
    build,
    check_layer_count,
    fill,
    initialize_buffers,
    listed,
    model_dtype,
    read_config,
    read_generation_config,
    replace,
    state_names,
)
from nibblespec.optimized.modules import DenseLinear, NestedLinear, RMSNorm
from nibblespec.optimized.modules.attention import NAME, before_call
from nibblespec.optimized.modules.rowwise import RotaryEmbedding, SiLU
from nibblespec.optimized.operations import Operations
from nibblespec.spec.bitnest_package.v1.layout import AUX, expected_tensors
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

STATIC_ROPE = ("default", "linear", "yarn", "llama3")
"""Rotary embeddings whose angles at a position are the same in a sequence of any length."""

_AUX = {
    "embed_tokens": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}
"""Tensors of aux.safetensors, and what they are in the model."""


def load_bitnest(
    folder: Path,
    manifest: Manifest,
    stored: Mapping[str, Stored],
    operations: Operations,
    device: torch.device,
    dtype: torch.dtype | None,
) -> Any:  # noqa: ANN401  # transformers' models have no common type
    """Return the Llama or Qwen2 of a package, its listed layers nested.

    folder: that of config.json; stored: the tensors of both files.

    Raises LoadError, naming file and tensor.
    """
    config = read_config(folder)
    _check_config(folder, config, manifest)
    config.tie_word_embeddings = False
    check_specs(expected_tensors(manifest, config.vocab_size), stored, folder)
    check_layer_count(folder, config, len(stored))
    model = build(
        AutoModelForCausalLM, config, model_dtype(config, dtype), attn_implementation=NAME
    )
    matrices = {
        name: read_tensor(one, device)
        for name, one in stored.items()
        if name in {f"had_K.{layer.K}" for layer in manifest.online_hadamard.layers.values()}
    }
    _replace_linears(folder, model, manifest, operations, matrices)
    _replace_norms(model, stored)
    fill(model, _sources(model, stored, matrices.keys()), device, folder)
    initialize_buffers(model, device)
    for layer in model.model.layers:
        layer.mlp.act_fn = SiLU()
    model.model.rotary_emb = RotaryEmbedding(model.model.rotary_emb)
    model.model.register_forward_pre_hook(before_call, with_kwargs=True)
    read_generation_config(model, folder)
    return model


def _check_config(folder: Path, config: Any, manifest: Manifest) -> None:  # noqa: ANN401
    """Require an architecture that the format has, and nothing in it that the modules lack."""
    rope = getattr(config, "rope_parameters", None) or {}
    for key, expected, found in (
        ("model_type", (manifest.arch,), config.model_type),
        ("hidden_act", ("silu",), getattr(config, "hidden_act", "silu")),
        ("use_sliding_window", (False,), bool(getattr(config, "use_sliding_window", False))),
        ("sliding_window", (None,), getattr(config, "sliding_window", None)),
        ("rope_type", STATIC_ROPE, rope.get("rope_type", "default")),
    ):
        if found not in expected:
            wanted = " or ".join(str(one) for one in expected)
            raise LoadError(f"{folder / 'config.json'}: {key}: expected {wanted}, found {found}")


def _replace_linears(
    folder: Path,
    model: Any,  # noqa: ANN401
    manifest: Manifest,
    operations: Operations,
    matrices: Mapping[str, Tensor],
) -> None:
    linears = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear)}
    if unknown := [name for name in manifest.layers if name not in linears]:
        kind = type(model).__name__
        raise LoadError(f"{folder}: {listed(unknown)}: expected linear layers of {kind}")
    for name, linear in linears.items():
        layer = manifest.layers.get(name)
        if layer is None and name == "lm_head":
            replace(model, name, DenseLinear(linear.weight.detach()))
            continue
        if layer is None:
            raise LoadError(f"{folder}: {name}: is in config.json's model, and not in the manifest")
        if layer.shape != [linear.out_features, linear.in_features]:
            expected = [linear.out_features, linear.in_features]
            raise LoadError(
                f"{folder}: {name}: expected shape {expected}, as config.json has it, "
                f"found {layer.shape}"
            )
        transform = manifest.online_hadamard.layers.get(name)
        nested = NestedLinear(
            layer,
            operations,
            activation_group=manifest.activation.per_layer_group.get(name, -1),
            hadamard_order=None if transform is None else transform.K,
            had_k=None if transform is None else matrices.get(f"had_K.{transform.K}"),
            device="meta",
        )
        replace(model, name, nested)


def _replace_norms(model: Any, stored: Mapping[str, Stored]) -> None:  # noqa: ANN401
    """Put norms in place: those of decoder layers have a weight where there is a tensor of it."""
    eps = model.config.rms_norm_eps
    for number, layer in enumerate(model.model.layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            there = f"layers.{number}.{name}" in stored
            weight = getattr(layer, name).weight.detach() if there else None
            setattr(layer, name, RMSNorm(weight, eps))
    model.model.norm = RMSNorm(model.model.norm.weight.detach(), eps)


def _sources(
    model: Any,  # noqa: ANN401
    stored: Mapping[str, Stored],
    matrices: Collection[str],
) -> dict[str, Stored]:
    """Return the source of each tensor of the model; every tensor of the files is one."""
    state = state_names(model)
    sources = {}
    for name, one in stored.items():
        here = name
        if one.file.name == AUX:
            here = f"model.{name}.weight" if name.startswith("layers.") else _AUX.get(name, "")
        if here in state:
            sources[here] = one
        elif name not in matrices:
            raise LoadError(f"{one}: nothing in {type(model).__name__} has a tensor of that name")
    return sources
