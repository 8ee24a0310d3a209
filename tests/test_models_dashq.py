"""Loading dashq-packed-linear: the packed model is the dense one with the weights it stands for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.models import LoadError
from nibblespec.optimized.modules import PackedExperts
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    NemotronHConfig,
    Qwen3_5Config,
)

from tests.convert_models import CONFIGS, SIZES, random_model
from tests.packed_models import pack_model

IDS = torch.randint(0, 80, (2, 9), generator=torch.Generator().manual_seed(0))


def logits(model: Any, **inputs: Any) -> torch.Tensor:  # noqa: ANN401
    with torch.no_grad():
        found: torch.Tensor = model(IDS, **inputs).logits
    return found


def expect_same(folder: Path, dense: Any) -> Any:  # noqa: ANN401
    """Load, compare with the dense model in float32, and return what was loaded."""
    model = load_model(folder)
    torch.testing.assert_close(logits(model), logits(dense), rtol=1e-4, atol=1e-4)
    return model


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("nbits", [3, 4])
def test_a_packed_model_is_the_dense_one(tmp_path: Path, name: str, nbits: int) -> None:
    dense = random_model(name, torch.float32)
    expect_same(pack_model(dense, tmp_path / "out", nbits=nbits), dense)


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_names_are_those_of_the_files(tmp_path: Path, name: str) -> None:
    folder = pack_model(random_model(name), tmp_path / "out")
    stored = load_file(folder / "model.safetensors")
    state = load_model(folder).state_dict()
    assert set(state) == set(stored)
    assert all(torch.equal(state[key], tensor) for key, tensor in stored.items())


def nemotron(**other: Any) -> Any:  # noqa: ANN401
    """Return a model with latent experts, which have no gate."""
    sizes = {key: value for key, value in SIZES.items() if key != "num_hidden_layers"}
    config = NemotronHConfig(
        **sizes,
        layers_block_type=["attention", "moe"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=32,
        moe_latent_size=32,
        n_groups=1,
        **other,
    )
    torch.manual_seed(3)
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2)
    return model.eval()


def test_experts_without_a_gate_are_packed_too(tmp_path: Path) -> None:
    dense = nemotron()
    model = expect_same(pack_model(dense, tmp_path / "out"), dense)
    (experts,) = (one for one in model.modules() if isinstance(one, PackedExperts))
    assert {name.split(".")[0] for name, _ in experts.named_buffers()} == {
        "up_proj_list",
        "down_proj_list",
    }


def test_names_of_an_older_class_are_found(tmp_path: Path) -> None:
    """Transformers lists how an architecture's names have changed since."""
    dense = nemotron()
    folder = pack_model(
        dense, tmp_path / "out", rename=lambda name: name.replace("model.", "backbone.", 1)
    )
    assert any(name.startswith("backbone.") for name in load_file(folder / "model.safetensors"))
    expect_same(folder, dense)


def test_a_model_with_images_is_loaded_by_its_own_class(tmp_path: Path) -> None:
    text = CONFIGS["qwen3_5"](vocab_size=90).to_dict()
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
    }
    config = Qwen3_5Config(text_config=text, vision_config=vision, image_token_id=88)
    torch.manual_seed(5)
    auto: Any = AutoModelForImageTextToText
    dense = auto.from_config(config, dtype=torch.float32).eval()
    for parameter in dense.parameters():
        parameter.data.normal_(0, 0.1)
    folder = pack_model(dense, tmp_path / "out", model_class="image_text_to_text")
    manifest = json.loads((folder / "dashq_config.json").read_text())
    assert any("language_model" in name for name in manifest["quantized_modules"])
    expect_same(folder, dense)


def test_shards_are_read(tmp_path: Path) -> None:
    dense = random_model("llama", torch.float32)
    expect_same(pack_model(dense, tmp_path / "out", shards=3), dense)


def tied(tmp_path: Path) -> tuple[Path, Any]:
    """Return a checkpoint without an output layer, and its model."""
    dense = random_model("llama", torch.float32, tie_word_embeddings=True)
    folder = pack_model(dense, tmp_path / "out")
    edit(folder, lambda tensors: tensors.pop("lm_head.weight"))
    return folder, dense


def edit(folder: Path, change: Any) -> None:  # noqa: ANN401
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    folder, dense = tied(tmp_path)
    model = expect_same(folder, dense)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_tied_head_that_is_stored_too_has_to_be_equal(tmp_path: Path) -> None:
    folder, dense = tied(tmp_path)
    head = dense.lm_head.weight.detach().clone()
    edit(folder, lambda tensors: tensors.update({"lm_head.weight": head}))
    expect_same(folder, dense)
    edit(folder, lambda tensors: tensors.update({"lm_head.weight": head + 1}))
    with pytest.raises(LoadError, match=r"lm_head\.weight: config\.json ties it to .*differs"):
        load_model(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_is_not_packed_is_converted_to_the_dtype_of_the_modules(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    folder = pack_model(random_model("llama"), tmp_path / "out")
    file = folder / "model.safetensors"
    kept = {
        name: tensor.to(dtype) if tensor.dtype == torch.bfloat16 else tensor
        for name, tensor in load_file(file).items()
    }
    save_file(kept, file)
    model = load_model(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model(IDS[:1]).logits.isfinite().all()


def test_a_cache_of_transformers_decodes(tmp_path: Path) -> None:
    dense = random_model("qwen3_5", torch.float32)
    model = load_model(pack_model(dense, tmp_path / "out"))
    found, expected = (
        one.generate(IDS[:1], max_new_tokens=6, do_sample=False) for one in (model, dense)
    )
    assert torch.equal(found, expected)


def test_a_generation_configuration_is_read(tmp_path: Path) -> None:
    folder = pack_model(random_model("llama"), tmp_path / "out")
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 5]}')
    assert load_model(folder).generation_config.eos_token_id == [3, 5]
