"""Loading takes the memory of the packed model, and never that of the model it stands for."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.convert_models import CONFIGS

ROOT = Path(__file__).parent.parent
HIDDEN, INNER, LAYERS, VOCABULARY, GROUP = 1024, 4096, 4, 256, 128
SLACK = 40_000_000
"""Bytes for a tensor that is being read, headers, and what Python needs for a model."""


def linears() -> Iterator[tuple[str, int, int]]:
    """Yield names, rows and columns of the linear layers."""
    shapes = {f"self_attn.{one}_proj": (HIDDEN, HIDDEN) for one in "qkvo"}
    shapes |= {f"mlp.{one}_proj": (INNER, HIDDEN) for one in ("gate", "up")}
    shapes["mlp.down_proj"] = (HIDDEN, INNER)
    for number in range(LAYERS):
        for name, (rows, columns) in shapes.items():
            yield f"model.layers.{number}.{name}", rows, columns


def write_config(folder: Path) -> None:
    config = CONFIGS["llama"](
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=HIDDEN // 8,
        vocab_size=VOCABULARY,
    )
    config.dtype = torch.bfloat16
    config.to_json_file(folder / "config.json")


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


def write_bitnest(folder: Path) -> None:
    planes: dict[str, Tensor] = {}
    layers: dict[str, Any] = {}
    for name, rows, columns in linears():
        for plane in ("hi", "lo"):
            planes[f"{name}.{plane}"] = torch.full((rows, columns // 2), 0x99, dtype=torch.uint8)
        planes[f"{name}.scale"] = torch.ones(rows, columns // GROUP, dtype=torch.float16)
        layers[name] = {
            "shape": [rows, columns],
            "groups": columns // GROUP,
            "has_bias": False,
        }
    aux = {
        "embed_tokens": ones(VOCABULARY, HIDDEN),
        "lm_head": ones(VOCABULARY, HIDDEN),
        "final_norm": ones(HIDDEN),
    }
    save_file(planes, folder / "planes.safetensors")
    save_file(aux, folder / "aux.safetensors")
    manifest = {
        "format": "bitnest-package-v1",
        "arch": "llama",
        "group_size": GROUP,
        "pack": "unsigned+8",
        "layers": layers,
        "activation": {"per_layer_group": {}},
        "online_hadamard": {"layers": {}},
    }
    (folder / "meta.json").write_text(json.dumps(manifest))


def write_dashq(folder: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ones(VOCABULARY, HIDDEN),
        "lm_head.weight": ones(VOCABULARY, HIDDEN),
        "model.norm.weight": ones(HIDDEN),
    }
    modules: dict[str, Any] = {}
    for name, rows, columns in linears():
        groups = rows * columns // GROUP
        tensors[f"{name}.W_q_packed"] = torch.ones(rows * columns // 8, dtype=torch.int32)
        for key in ("scale", "zero"):
            tensors[f"{name}.{key}"] = torch.ones(groups, 1, dtype=torch.float16)
        modules[name] = {
            "nbits": 4,
            "group_size": GROUP,
            "in_features": columns,
            "out_features": rows,
            "num_groups": groups,
            "packing": "int4_packed_u32",
            "scale_zero_dtype": "float16",
            "linear_dtype": "bfloat16",
        }
    for number in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{number}.{norm}.weight"] = ones(HIDDEN)
    save_file(tensors, folder / "model.safetensors")
    manifest = {
        "format": "dashq-packed-linear",
        "format_version": 1,
        "quantized_modules": modules,
    }
    (folder / "dashq_config.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("write", [write_dashq, write_bitnest])
def test_the_peak_is_the_packed_model(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write_config(tmp_path)
    write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.load_models", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    dense = sum(2 * rows * columns for _, rows, columns in linears())
    assert figures["held"] + SLACK < dense
    assert figures["grown"] < figures["held"] + SLACK
