"""Which tensors are linear layers, by their names."""

from pathlib import Path

import pytest
from nibblespec.optimized.convert.linears import find_linears
from nibblespec.optimized.convert.source import Stored


def stored(name: str, *shape: int) -> Stored:
    return Stored(name, "BF16", shape, Path("model.safetensors"), 0, 0)


def is_linear(name: str, *shape: int) -> bool:
    linears, others = find_linears({name: stored(name, *shape)})
    assert len(linears) + len(others) == 1
    return bool(linears)


@pytest.mark.parametrize(
    "module",
    [
        "model.layers.0.self_attn.q_proj",
        "model.layers.11.mlp.down_proj",
        "model.language_model.layers.3.linear_attn.in_proj_qkv",
        "language_model.model.layers.3.self_attn.kv_a_proj_with_mqa",
        "backbone.layers.3.mixer.in_proj",
        "model.layers.3.mlp.shared_expert.up_proj",
        "model.decoder.layers.0.fc1",
        "gpt_neox.layers.0.attention.query_key_value",
        "gpt_neox.layers.0.mlp.dense_4h_to_h",
    ],
)
def test_these_are(module: str) -> None:
    assert is_linear(f"{module}.weight", 8, 16)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.mlp.gate.weight",  # a router
        "model.layers.0.mlp.shared_expert_gate.weight",
        "model.layers.0.input_layernorm.weight",
        "model.visual.blocks.0.attn.qkv.weight",
        "vision_tower.encoder.layers.0.self_attn.q_proj.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "transformer.h.0.attn.c_proj.weight",  # stored transposed
        "model.layers.0.self_attn.q_proj.bias",
    ],
)
def test_these_are_not(name: str) -> None:
    assert not is_linear(name, 8, 16)


def test_a_convolution_is_none_whatever_its_name() -> None:
    assert not is_linear("model.layers.0.mixer.in_proj.weight", 8, 1, 4)


def test_rows_of_the_gate_come_before_those_of_up() -> None:
    parent = "model.layers.0.mlp.experts"
    parts = [
        stored(f"{parent}.0.up_proj.weight", 4, 16),
        stored(f"{parent}.0.gate_proj.weight", 4, 16),
        stored(f"{parent}.0.down_proj.weight", 16, 4),
    ]
    linears, _ = find_linears({part.name: part for part in parts})
    up = linears[f"{parent}.gate_up_proj_list.0"]
    assert [piece.stored.name for piece in up.pieces] == [parts[1].name, parts[0].name]
    assert (up.rows, up.columns) == (8, 16)


def test_experts_without_a_gate_have_a_name_of_their_own() -> None:
    parent = "backbone.layers.0.mixer.experts"
    parts = [stored(f"{parent}.up_proj", 3, 4, 16), stored(f"{parent}.down_proj", 3, 16, 4)]
    linears, others = find_linears({part.name: part for part in parts})
    assert others == {}
    assert sorted(linears) == sorted(
        f"{parent}.{part}_proj_list.{number}" for part in ("up", "down") for number in range(3)
    )
    assert linears[f"{parent}.up_proj_list.2"].pieces[0].first == 8
