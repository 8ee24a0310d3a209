"""Conversion to dashq-packed-linear: valid, bit-equal to the reference, complete."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from nibblespec.conformance.artifacts.validate import check_path
from nibblespec.optimized import load_model
from nibblespec.optimized.arrays import to_array
from nibblespec.optimized.convert import ConversionError, convert
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from tests.convert_models import CONFIGS, save_model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_model(folder / name, name) for name in CONFIGS}


def tensors_of(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: value for file in files for name, value in load_file(file).items()}


def manifest_of(folder: Path) -> Manifest:
    return Manifest.model_validate(json.loads((folder / "dashq_config.json").read_bytes()))


def weights_of(source: Path, manifest: Manifest) -> dict[str, Tensor]:
    """Return the weights of the modules, found in the class's own state, experts one by one."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    state = model.state_dict()
    weights = {}
    for name in manifest.quantized_modules:
        parent, _, number = name.rpartition(".")
        if parent.endswith("_list"):
            weights[name] = state[parent.removesuffix("_list")][int(number)]
        else:
            weights[name] = state[f"{name}.weight"]
    return weights


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_is_found_in_what_a_conversion_writes(
    name: str, bits: int, models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models[name], tmp_path / "out", to="dashq", bits=bits, group_size=16)
    report = check_path(str(tmp_path / "out"), "tensors")
    assert report.findings == ()


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("name", CONFIGS)
def test_modules_have_the_bits_of_the_reference_encoder(
    name: str, bits: int, models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models[name], tmp_path / "out", to="dashq", bits=bits)
    manifest, found = manifest_of(tmp_path / "out"), tensors_of(tmp_path / "out")
    for module, weight in weights_of(models[name], manifest).items():
        entry = manifest.quantized_modules[module]
        expected = encode_dashq(to_array(weight), bits, entry.group_size)
        assert entry == expected.module
        for part, values in (
            ("W_q_packed", expected.words),
            ("scale", expected.scale),
            ("zero", expected.zero),
        ):
            assert to_array(found[f"{module}.{part}"]).tobytes() == values.tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_of_the_class_is_packed_or_kept(
    name: str, models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models[name], tmp_path / "out", to="dashq")
    manifest, found = manifest_of(tmp_path / "out"), tensors_of(tmp_path / "out")
    with torch.device("meta"):
        factory: Any = AutoModelForCausalLM
        model = factory.from_config(AutoConfig.from_pretrained(tmp_path / "out"))
    packed = {f"{module}.weight" for module in manifest.quantized_modules} | {
        module.rpartition(".")[0].removesuffix("_list") for module in manifest.quantized_modules
    }
    for key in model.state_dict():
        assert (key in packed) != (key in found), key
    linear = {key for key, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
    assert linear - manifest.quantized_modules.keys() <= {"lm_head"}


def test_what_is_not_packed_is_copied_bit_for_bit(models: dict[str, Path], tmp_path: Path) -> None:
    convert(models["qwen3_5"], tmp_path / "out", to="dashq")
    before, after = tensors_of(models["qwen3_5"]), tensors_of(tmp_path / "out")
    kept = [name for name in after if name in before]
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"} <= set(kept)
    assert any(name.endswith("conv1d.weight") for name in kept)
    for name in kept:
        assert torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8))


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral"])
def test_experts_are_modules_one_by_one(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    convert(models[name], tmp_path / "out", to="dashq")
    modules = manifest_of(tmp_path / "out").quantized_modules
    experts = "model.layers.1.mlp.experts"
    count = {"qwen3_moe": 4, "mixtral": 3}[name]
    width = {"qwen3_moe": 48, "mixtral": 96}[name]
    for number in range(count):
        up = modules[f"{experts}.gate_up_proj_list.{number}"]
        down = modules[f"{experts}.down_proj_list.{number}"]
        assert (up.out_features, up.in_features) == (2 * width, 64)
        assert (down.out_features, down.in_features) == (64, width)
    assert "model.layers.1.mlp.gate.weight" in tensors_of(tmp_path / "out")


def test_experts_that_are_stored_fused_give_the_same_checkpoint(
    models: dict[str, Path], tmp_path: Path
) -> None:
    fused = tmp_path / "fused"
    fused.mkdir()
    state = AutoModelForCausalLM.from_pretrained(models["qwen3_moe"]).state_dict()
    assert state["model.layers.0.mlp.experts.gate_up_proj"].shape == (4, 96, 64)
    save_file(
        {key: value.contiguous() for key, value in state.items()}, fused / "model.safetensors"
    )
    (fused / "config.json").write_bytes((models["qwen3_moe"] / "config.json").read_bytes())
    convert(fused, tmp_path / "a", to="dashq")
    convert(models["qwen3_moe"], tmp_path / "b", to="dashq")
    a, b = tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_group_that_divides_no_width_is_halved_for_that_layer(
    models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models["llama"], tmp_path / "out", to="dashq", group_size=64)
    modules = manifest_of(tmp_path / "out").quantized_modules
    assert modules["model.layers.0.mlp.up_proj"].group_size == 64
    assert modules["model.layers.0.mlp.down_proj"].group_size == 32  # of a width of 96
    report = check_path(str(tmp_path / "out"), "tensors")
    assert {finding.severity for finding in report.findings} == {"info"}


def test_params_name_a_group_size_that_is_there(models: dict[str, Path], tmp_path: Path) -> None:
    convert(models["llama"], tmp_path / "out", to="dashq", group_size=128)
    params = manifest_of(tmp_path / "out").params
    assert params is not None
    assert params.group_size == 64
    report = check_path(str(tmp_path / "out"), "tensors")
    assert {finding.severity for finding in report.findings} == {"info"}


def test_a_width_that_no_half_of_the_group_divides_is_refused(tmp_path: Path) -> None:
    source = save_model(tmp_path / "odd", "llama", intermediate_size=100)
    with pytest.raises(ConversionError, match=r"down_proj: .* divides its width 100.* 20, 25, 50"):
        convert(source, tmp_path / "out", to="dashq", group_size=32)
    assert not (tmp_path / "out").exists()


def test_many_tensors_are_written_in_shards(models: dict[str, Path], tmp_path: Path) -> None:
    convert(models["llama"], tmp_path / "one", to="dashq")
    convert(models["llama"], tmp_path / "many", to="dashq", shard_bytes=20_000)
    assert len(list((tmp_path / "many").glob("model-*-of-*.safetensors"))) > 2
    assert check_path(str(tmp_path / "many"), "tensors").findings == ()
    one, many = tensors_of(tmp_path / "one"), tensors_of(tmp_path / "many")
    assert one.keys() == many.keys()
    assert all(torch.equal(one[key], many[key]) for key in one)


def test_a_source_in_shards_is_read(models: dict[str, Path], tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(models["llama"])
    model.save_pretrained(tmp_path / "sharded", max_shard_size="30KB")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    convert(models["llama"], tmp_path / "one", to="dashq")
    convert(tmp_path / "sharded", tmp_path / "other", to="dashq")
    one, other = tensors_of(tmp_path / "one"), tensors_of(tmp_path / "other")
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_layers_have_the_dtype_of_the_source(dtype: torch.dtype, tmp_path: Path) -> None:
    source = save_model(tmp_path / "model", "qwen2", dtype)
    convert(source, tmp_path / "out", to="dashq")
    modules = manifest_of(tmp_path / "out").quantized_modules
    assert {f"torch.{one.linear_dtype}" for one in modules.values()} == {str(dtype)}
    assert check_path(str(tmp_path / "out"), "tensors").findings == ()


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    source = save_model(tmp_path / "model", "llama", tie_word_embeddings=True)
    convert(source, tmp_path / "out", to="dashq")
    assert "lm_head.weight" not in tensors_of(tmp_path / "out")
    assert check_path(str(tmp_path / "out"), "tensors").findings == ()


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_tables_of_old_rotary_embeddings_are_left_out(
    target: Literal["dashq", "bitnest"], tmp_path: Path
) -> None:
    source = save_model(tmp_path / "model", "llama")
    tensors = load_file(source / "model.safetensors")
    table = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**tensors, table: torch.ones(8)}, source / "model.safetensors")
    convert(source, tmp_path / "out", to=target, group_size=16)
    assert table not in tensors_of(tmp_path / "out")
    load_model(tmp_path / "out")


def test_the_manifest_and_the_configuration_say_what_it_is(
    models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models["llama"], tmp_path / "out", to="dashq", bits=3, base_model="owner/tiny")
    manifest: dict[str, Any] = json.loads((tmp_path / "out" / "dashq_config.json").read_bytes())
    assert (manifest["base_model"], manifest["model_class"]) == ("owner/tiny", "causal_lm")
    assert manifest["params"]["bits"] == 3
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config["dashq"] == {
        "format": "dashq-packed-linear",
        "format_version": 1,
        "method": "dashq",
        "n_quantized_modules": 14,
    }
