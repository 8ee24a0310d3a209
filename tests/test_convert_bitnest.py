"""Conversion to bitnest-package-v1: valid, bit-equal to the reference, and still the same model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.conformance.artifacts.validate import check_path
from nibblespec.optimized.arrays import to_array
from nibblespec.optimized.convert import ConversionError, convert
from nibblespec.optimized.convert.architecture import read_architecture
from nibblespec.optimized.convert.fold import blocks, folded_bias, folded_rows, vector
from nibblespec.optimized.convert.rotations import Rotations, rotations
from nibblespec.optimized.convert.source import open_source
from nibblespec.optimized.portable.hadamard import hadamard
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.reference.planes import pack_planes
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.convert_models import save_model

GROUP = 16
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "llama-tied": {"tie_word_embeddings": True},
}
PROMPT = torch.tensor([[3, 14, 15, 9, 26, 5, 35, 8, 9, 79]])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: save_model(folder / name, name.split("-")[0], torch.float32, **other)
        for name, other in MODELS.items()
    }


def manifest_of(folder: Path) -> Manifest:
    return Manifest.model_validate(json.loads((folder / "meta.json").read_bytes()))


def rotations_of(source: Path, *, rotate: bool = True, online: bool = True) -> Rotations:
    model = read_architecture(open_source(source))
    return rotations(
        model.hidden, model.head_width, model.inner, seed=0, rotate=rotate, online=online
    )


def whole(source: Path, name: str, turned: Rotations) -> Tensor:
    layer = read_architecture(open_source(source)).layers[name]
    return torch.cat([rows for _, rows in folded_rows(layer, turned)])


@pytest.mark.parametrize("nest_head", [False, True])
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_but_the_small_group_is_found_in_what_a_conversion_writes(
    name: str, rotate: bool, online: bool, nest_head: bool, models: dict[str, Path], tmp_path: Path
) -> None:
    convert(
        models[name],
        tmp_path / "out",
        to="bitnest",
        group_size=GROUP,
        rotate=rotate,
        online_hadamard=online,
        nest_head=nest_head,
    )
    report = check_path(str(tmp_path / "out"), "tensors")
    allowed = {"BN1-GROUP-SIZE-KERNELS", "BN1-BIAS-LLAMA"}
    assert {finding.requirement for finding in report.findings} <= allowed
    assert {finding.severity for finding in report.findings} == {"info"}


def test_nothing_at_all_is_found_with_groups_of_128(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "model", "llama", hidden_size=128, intermediate_size=384, head_dim=32
    )
    convert(source, tmp_path / "out", to="bitnest")
    assert check_path(str(tmp_path / "out"), "tensors").findings == ()


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_layers_have_the_bits_of_the_reference_encoder(
    name: str, rotate: bool, models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models[name], tmp_path / "out", to="bitnest", group_size=GROUP, rotate=rotate)
    planes = load_file(tmp_path / "out" / "planes.safetensors")
    turned = rotations_of(models[name], rotate=rotate)
    for layer in manifest_of(tmp_path / "out").layers:
        q4, qr, scale = encode_nested(to_array(whole(models[name], layer, turned)), GROUP)
        hi, lo = pack_planes(q4, qr)
        for part, expected in (("hi", hi), ("lo", lo), ("scale", scale)):
            assert to_array(planes[f"{layer}.{part}"]).tobytes() == expected.tobytes()


def test_without_rotations_a_weight_is_multiplied_by_its_norm_and_no_more(
    models: dict[str, Path],
) -> None:
    source = load_file(models["llama"] / "model.safetensors")
    identity = rotations_of(models["llama"], rotate=False, online=False)
    for path, norm in (
        ("self_attn.q_proj", "input_layernorm"),
        ("mlp.up_proj", "post_attention_layernorm"),
        ("self_attn.o_proj", None),
        ("mlp.down_proj", None),
    ):
        weight = source[f"model.layers.1.{path}.weight"]
        if norm is not None:
            weight = weight * source[f"model.layers.1.{norm}.weight"]
        assert torch.equal(whole(models["llama"], f"model.layers.1.{path}", identity), weight)


@pytest.mark.parametrize("name", MODELS)
def test_folded_weights_make_the_same_model(name: str, models: dict[str, Path]) -> None:
    """Norms of ones, turned weights, the online transform: logits as before, but for rounding."""
    original: Any = AutoModelForCausalLM.from_pretrained(models[name])
    model: Any = AutoModelForCausalLM.from_pretrained(models[name], tie_word_embeddings=False)
    turned = rotations_of(models[name])
    architecture = read_architecture(open_source(models[name]))
    embedding = torch.cat([turned.residual(rows) for _, rows in blocks(architecture.embedding)])
    norm = vector(architecture.final_norm)
    head = torch.cat([turned.residual(rows * norm) for _, rows in blocks(architecture.head)])
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("norm.weight"):
                parameter.fill_(1)
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight = torch.nn.Parameter(head)
        for layer_name, layer in architecture.layers.items():
            module = model.get_submodule(layer_name)
            module.weight.copy_(whole(models[name], layer_name, turned))
            if layer.bias is not None:
                module.bias.copy_(folded_bias(layer, turned))
            if layer.kind == "down_proj":
                module.register_forward_pre_hook(lambda _, given: (online(given[0]),))
        expected, found = original(PROMPT).logits, model(PROMPT).logits
    # Biases are stored in float16.
    tolerance = 2e-3 if name in ("qwen2", "llama-biases") else 2e-5
    assert float((found - expected).abs().max()) < tolerance * float(expected.abs().max())


def online(x: Tensor) -> Tensor:
    """Return R4·x, of order 12 for a width of 96."""
    return hadamard(x, torch.from_numpy(hadamard_matrix(12).copy()), torch.float32)


def test_the_online_transform_is_declared_with_its_matrix(
    models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models["llama"], tmp_path / "out", to="bitnest", group_size=GROUP)
    layers = manifest_of(tmp_path / "out").online_hadamard.layers
    assert {name: entry.K for name, entry in layers.items()} == {
        f"model.layers.{number}.mlp.down_proj": 12 for number in range(2)
    }
    aux = load_file(tmp_path / "out" / "aux.safetensors")
    assert np.array_equal(aux["had_K.12"].numpy(), hadamard_matrix(12))


def test_inputs_of_o_proj_are_quantized_by_head(models: dict[str, Path], tmp_path: Path) -> None:
    convert(models["llama"], tmp_path / "out", to="bitnest", group_size=GROUP)
    widths = manifest_of(tmp_path / "out").activation.per_layer_group
    assert {name.rpartition(".")[2]: width for name, width in widths.items()} == {
        "q_proj": -1,
        "k_proj": -1,
        "v_proj": -1,
        "o_proj": 16,
        "gate_proj": -1,
        "up_proj": -1,
        "down_proj": -1,
    }


def test_a_seed_gives_the_same_bytes_and_another_seed_others(
    models: dict[str, Path], tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        convert(models["qwen2"], tmp_path / name, to="bitnest", group_size=GROUP, seed=seed)
    a, b, c = ((tmp_path / name / "planes.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_heads_of_different_layers_are_turned_differently(models: dict[str, Path]) -> None:
    turned = rotations_of(models["llama"])
    x = torch.ones(16)
    assert not torch.equal(turned.value(0)(x), turned.value(1)(x))


def test_the_word_embedding_and_the_head_are_kept_apart(
    models: dict[str, Path], tmp_path: Path
) -> None:
    convert(models["llama-tied"], tmp_path / "out", to="bitnest", group_size=GROUP)
    aux = load_file(tmp_path / "out" / "aux.safetensors")
    assert aux["embed_tokens"].shape == aux["lm_head"].shape == (80, 64)
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config["tie_word_embeddings"] is False


def test_a_nested_head_is_a_layer_and_leaves_aux(models: dict[str, Path], tmp_path: Path) -> None:
    convert(models["llama"], tmp_path / "out", to="bitnest", group_size=GROUP, nest_head=True)
    assert manifest_of(tmp_path / "out").layers["lm_head"].shape == [80, 64]
    assert "lm_head" not in load_file(tmp_path / "out" / "aux.safetensors")


def test_a_group_size_that_does_not_divide_all_widths_is_refused(
    models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(
        ConversionError, match=r"divisor of all widths, 64, 96, found 64; .* 16, 32"
    ):
        convert(models["llama"], tmp_path / "out", to="bitnest", group_size=64)


def test_a_width_without_a_hadamard_matrix_is_refused_and_goes_without(tmp_path: Path) -> None:
    source = save_model(tmp_path / "model", "llama", intermediate_size=272)
    with pytest.raises(ConversionError, match=r"intermediate_size: expected .* found 272"):
        convert(source, tmp_path / "out", to="bitnest", group_size=GROUP)
    convert(source, tmp_path / "out", to="bitnest", group_size=GROUP, online_hadamard=False)
    assert manifest_of(tmp_path / "out").online_hadamard.layers == {}


@pytest.mark.parametrize(
    ("name", "found"), [("qwen3_5", "'qwen3_5_text'"), ("mixtral", "'mixtral'")]
)
def test_other_architectures_are_refused(name: str, found: str, tmp_path: Path) -> None:
    source = save_model(tmp_path / "model", name)
    with pytest.raises(ConversionError, match=f"expected llama or qwen2.*found {found}"):
        convert(source, tmp_path / "out", to="bitnest", group_size=GROUP)
