"""Tiny models with random weights as Hugging Face folders, for tests of the converters."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
)

SIZES: Mapping[str, Any] = {
    "vocab_size": 80,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

CONFIGS: Mapping[str, Callable[..., Any]] = {
    "llama": lambda **other: LlamaConfig(**{**SIZES, **other}),
    "qwen2": lambda **other: Qwen2Config(**{**SIZES, **other}),
    "qwen3_5": lambda **other: Qwen3_5TextConfig(
        **{
            **SIZES,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            **other,
        }
    ),
    "qwen3_moe": lambda **other: Qwen3MoeConfig(
        **{
            **SIZES,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            **other,
        }
    ),
    "mixtral": lambda **other: MixtralConfig(**{**SIZES, "num_local_experts": 3, **other}),
}


def random_model(name: str, dtype: torch.dtype = torch.bfloat16, **other: object) -> Any:  # noqa: ANN401
    """Return a model of CONFIGS whose weights, biases and norms are all random, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        factory: Any = AutoModelForCausalLM
        model = factory.from_config(CONFIGS[name](**other), dtype=torch.float32)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if key.endswith("norm.weight"):
                    parameter.uniform_(0.5, 1.5)
                else:
                    parameter.normal_(0, 0.1)
    return model.to(dtype).eval()


def save_model(
    folder: Path, name: str, dtype: torch.dtype = torch.bfloat16, **other: object
) -> Path:
    """Save such a model as a Hugging Face folder and return it."""
    random_model(name, dtype, **other).save_pretrained(folder)
    return folder


def with_tokenizer(folder: Path) -> Path:
    """Add a tokenizer that takes each byte for a token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapper: Any = PreTrainedTokenizerFast
    wrapper(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder
