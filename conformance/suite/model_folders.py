"""Tiny models with random weights, seeded, as folders, and what a producer makes of them."""

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from nibblespec.conformance.suite.model_cases import HEAD_DIM, Format, ModelCase
from nibblespec.optimized.convert import convert
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
)

SEED = 11
"""One with which no expert is chosen by a hair: then small errors stay small."""
SPREAD = 0.15
"""Standard deviation of weights: enough that layers matter beside the residual stream."""

SHARED: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 128,
    "initializer_range": SPREAD,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

CONFIGS: Mapping[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SHARED),
    "qwen2": lambda: Qwen2Config(**SHARED | {"num_key_value_heads": 1}),
    "qwen3_5": lambda: Qwen3_5TextConfig(
        **SHARED,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
    ),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **SHARED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
    ),
}
"""By the names that cases use."""


def package_of(case: ModelCase) -> Path:
    """Return the folder of a case's package. It lasts as long as the process."""
    return _package(case.model, case.target, case.convert)


@cache
def model_folder(name: str) -> Path:
    """Write the model `name` of CONFIGS as a Hugging Face folder in bfloat16 and return it."""
    folder = _folders() / name
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.normal_(0, 0.5)
            elif parameter_name.endswith("norm.weight"):
                parameter.add_(0.3 * torch.rand_like(parameter))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@cache
def _package(model: str, target: Format, options: tuple[tuple[str, Any], ...]) -> Path:
    out = _folders() / "-".join([model, target, *(f"{key}-{value}" for key, value in options)])
    convert(model_folder(model), out, to=target, **dict(options))
    return out


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nibblespec-models-")


def _folders() -> Path:
    return Path(_temporary().name)
