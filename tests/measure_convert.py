"""Measure the memory and the time of a conversion.

    python -m tests.measure_convert --to dashq|bitnest [--layers N] [--hidden H] [--inner F]

Writes a Llama of random bfloat16 weights to a temporary folder, converts it in this process, and
prints a line of JSON: bytes of the model and of its largest layer, peak memory before and after,
seconds.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from nibblespec.optimized.convert import convert
from nibblespec.optimized.convert.files import Planned, tensor_files, write_json
from transformers.models.llama import modeling_llama  # not while it is measured

from tests.peak_memory import peak_memory

VOCABULARY = 8192
BLOCK = 1 << 20


def tensors(layers: int, hidden: int, inner: int) -> Iterator[Planned]:
    """Yield the tensors of a Llama with as many heads of keys as of queries."""
    yield Planned("model.embed_tokens.weight", "BF16", (VOCABULARY, hidden))
    yield Planned("lm_head.weight", "BF16", (VOCABULARY, hidden))
    yield Planned("model.norm.weight", "BF16", (hidden,))
    for number in range(layers):
        prefix = f"model.layers.{number}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield Planned(f"{prefix}.{norm}.weight", "BF16", (hidden,))
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield Planned(f"{prefix}.self_attn.{name}.weight", "BF16", (hidden, hidden))
        for name in ("gate_proj", "up_proj"):
            yield Planned(f"{prefix}.mlp.{name}.weight", "BF16", (inner, hidden))
        yield Planned(f"{prefix}.mlp.down_proj.weight", "BF16", (hidden, inner))


def write_model(folder: Path, layers: int, hidden: int, inner: int) -> int:
    """Write a model of random weights, block by block; return its bytes."""
    plan = list(tensors(layers, hidden, inner))
    block = torch.randn(BLOCK).mul_(0.02).to(torch.bfloat16)
    metadata = {"model.safetensors": {"format": "pt"}}
    with tensor_files(folder, {"model.safetensors": plan}, metadata) as out:
        for planned in plan:
            count = planned.size // 2
            for first in range(0, count, BLOCK):
                out.write(planned.name, first, block[: count - first])
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    }
    write_json(folder, "config.json", config)
    return sum(planned.size for planned in plan)


def main() -> int:
    """Measure one conversion."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", choices=("dashq", "bitnest"), required=True)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=4096)
    given = parser.parse_args()
    assert modeling_llama.LlamaForCausalLM.__module__ in sys.modules
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "model"
        source.mkdir()
        size = write_model(source, given.layers, given.hidden, given.inner)
        before, start = peak_memory(), time.monotonic()
        convert(source, Path(temporary) / "out", to=given.to)
        figures = {
            "model": size,
            "largest_layer": 2 * given.hidden * given.inner,
            "before": before,
            "after": peak_memory(),
            "seconds": round(time.monotonic() - start, 1),
        }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
