"""Packed weights have no gradients: a backward pass says so, and a forward pass does not mind."""

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.convert import convert
from nibblespec.optimized.modules.attention import attention
from nibblespec.optimized.modules.nested_cache import NestedCache, Offsets
from nibblespec.optimized.pytorch import operations
from torch import nn

from tests.convert_models import save_model

IDS = torch.arange(6)[None]


def load(folder: Path, to: Literal["dashq", "bitnest"], name: str = "llama") -> Any:  # noqa: ANN401
    convert(save_model(folder / "model", name), folder / "out", to=to, group_size=16)
    return load_model(folder / "out")


def embedded(model: Any) -> torch.Tensor:  # noqa: ANN401
    """Return inputs that want a gradient."""
    found: torch.Tensor = model.get_input_embeddings()(IDS).detach().requires_grad_()
    return found


@pytest.mark.parametrize(
    ("to", "name"), [("dashq", "llama"), ("dashq", "qwen3_moe"), ("bitnest", "llama")]
)
def test_a_backward_pass_is_refused_and_no_forward_pass(
    to: Literal["dashq", "bitnest"], name: str, tmp_path: Path
) -> None:
    model = load(tmp_path, to, name)
    inputs = embedded(model)
    logits = model(inputs_embeds=inputs).logits
    with torch.no_grad():
        assert torch.equal(logits, model(inputs_embeds=inputs).logits)
    with pytest.raises(RuntimeError, match="packed weights are for inference"):
        logits.sum().backward()
    assert inputs.grad is None


@pytest.mark.parametrize("layer", ["self_attn.q_proj", "mlp.down_proj"])
@pytest.mark.parametrize("to", ["dashq", "bitnest"])
def test_a_packed_layer_gives_no_gradient(
    to: Literal["dashq", "bitnest"], layer: str, tmp_path: Path
) -> None:
    linear = load(tmp_path, to).model.layers[0].get_submodule(layer)
    x = torch.ones(2, linear.in_features, dtype=torch.bfloat16, requires_grad=True)
    y = linear(x)
    with pytest.raises(RuntimeError, match="packed weights are for inference"):
        y.sum().backward()


def test_a_nested_cache_gives_no_gradient_and_holds_no_graph() -> None:
    cache = NestedCache(operations, [Offsets()])
    x = torch.ones(1, 2, 3, 8, requires_grad=True)
    y, _ = attention(nn.Identity(), x, *cache.update(x, x, 0), None, 0.3)
    assert not any(buffer.requires_grad for buffer in cache.layers[0].buffers)
    with pytest.raises(RuntimeError, match="packed weights are for inference"):
        y.sum().backward()  # type: ignore[no-untyped-call]
