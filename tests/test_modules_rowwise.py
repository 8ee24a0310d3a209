"""Norms, output layer, activation and rotary embedding: a row has the bits of a call of its own."""

import pytest
import torch
from nibblespec.optimized.modules.rowwise import (
    ROWS,
    DenseLinear,
    RMSNorm,
    RotaryEmbedding,
    SiLU,
    by_rows,
)
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

WIDTH = 77
"""No multiple of any vector."""


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (3 * drawn).to(dtype)


def modules(dtype: torch.dtype) -> dict[str, nn.Module]:
    return {
        "norm": RMSNorm(normal(WIDTH, dtype=dtype), 1e-6),
        "norm without a weight": RMSNorm(None, 1e-6),
        "output layer": DenseLinear(normal(501, WIDTH, dtype=dtype)),
        "activation": SiLU(),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", modules(torch.float32))
@pytest.mark.parametrize("rows", [2, 5, 33, ROWS])
def test_a_row_is_that_of_a_call_of_its_own(name: str, dtype: torch.dtype, rows: int) -> None:
    module, x = modules(dtype)[name], normal(rows, WIDTH, seed=1, dtype=dtype)
    alone = torch.cat([module(x[row : row + 1]) for row in range(rows)])
    assert torch.equal(module(x), alone)


def test_calls_of_few_rows_are_made_row_by_row_and_others_at_once() -> None:
    shapes: list[tuple[int, ...]] = []

    def record(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x

    by_rows(record, torch.zeros(1, ROWS, 3))
    assert shapes == [(1, 3)] * ROWS
    shapes.clear()
    by_rows(record, torch.zeros(1, ROWS + 1, 3))
    assert shapes == [(ROWS + 1, 3)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_norm_is_that_of_transformers(dtype: torch.dtype) -> None:
    x, weight = normal(3, WIDTH, seed=2, dtype=dtype), normal(WIDTH, dtype=dtype)
    expected = LlamaRMSNorm(WIDTH, eps=1e-5)
    expected.weight.data = weight
    torch.testing.assert_close(RMSNorm(weight, 1e-5)(x), expected(x))


def test_the_others_are_those_of_pytorch() -> None:
    x, weight = normal(2, 4, WIDTH), normal(9, WIDTH, seed=1)
    torch.testing.assert_close(DenseLinear(weight)(x), nn.functional.linear(x, weight))
    torch.testing.assert_close(SiLU()(x), nn.functional.silu(x))


@pytest.mark.parametrize("count", [1, 7, ROWS + 3])
def test_the_rotary_embedding_is_that_of_transformers(count: int) -> None:
    inner = LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=4))
    place, x = torch.arange(5, 5 + count)[None], normal(1, count, 64, dtype=torch.float32)
    for found, expected in zip(RotaryEmbedding(inner)(x, place), inner(x, place), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_position_turns_alike_in_every_call() -> None:
    inner = LlamaRotaryEmbedding(LlamaConfig(hidden_size=52, num_attention_heads=2))
    module, x = RotaryEmbedding(inner), torch.zeros(1, 1)
    together = module(x, torch.arange(31)[None])
    for place in range(31):
        alone = module(x, torch.tensor([[place]]))
        for found, expected in zip(together, alone, strict=True):
            assert torch.equal(found[:, place], expected[:, 0])
