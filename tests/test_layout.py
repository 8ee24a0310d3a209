"""The tensors that a manifest implies: names, dtypes and shapes."""

from pathlib import Path

import pytest
from nibblespec.spec.bitnest_package.v1 import layout as bitnest
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1 import layout as dashq
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.formats import read_manifest
from nibblespec.spec.tensors import TensorSpec, tensor_bytes

EXAMPLES = Path(__file__).parent.parent / "examples"


def module(**changes: object) -> Module:
    fields = {
        "nbits": 4,
        "group_size": 32,
        "in_features": 64,
        "out_features": 3,
        "num_groups": 6,
        "packing": "int4_packed_u32",
        "scale_zero_dtype": "float16",
        "linear_dtype": "bfloat16",
    }
    return Module.model_validate(fields | changes)


def package(**changes: object) -> BitnestManifest:
    fields: dict[str, object] = {
        "format": "bitnest-package-v1",
        "arch": "llama",
        "group_size": 32,
        "pack": "unsigned+8",
        "layers": {
            "model.layers.0.self_attn.q_proj": {"shape": [64, 96], "groups": 3, "has_bias": True},
            "model.layers.0.mlp.down_proj": {"shape": [96, 224], "groups": 7, "has_bias": False},
        },
        "activation": {"per_layer_group": {}},
        "online_hadamard": {"layers": {"model.layers.0.mlp.down_proj": {"K": 28}}},
    }
    return BitnestManifest.model_validate(fields | changes)


def by_name(specs: list[TensorSpec]) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    return {spec.name: (spec.dtype, spec.shape) for spec in specs}


def test_a_dashq_module_has_words_scale_zero_and_may_have_a_bias() -> None:
    specs = list(dashq.module_tensors("m", module()))
    assert by_name(specs) == {
        "m.W_q_packed": ("I32", (24,)),
        "m.scale": ("F16", (6, 1)),
        "m.zero": ("F16", (6, 1)),
        "m.bias": ("BF16", (3,)),
    }
    assert [spec.name for spec in specs if not spec.required] == ["m.bias"]


@pytest.mark.parametrize(
    ("nbits", "words"), [(1, 6), (2, 12), (3, 20), (4, 24), (5, 32), (6, 39), (7, 48), (8, 48)]
)
def test_word_count_rounds_up_whole_codes_per_word(nbits: int, words: int) -> None:
    assert dashq.word_count(module(nbits=nbits)) == words


def test_padding_columns_are_stored() -> None:
    assert dashq.word_count(module(in_features=60, quant_in_features=64)) == 24


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float32", "F32"),
        ("float8_e4m3fn", "F8_E4M3"),
        ("float8_e5m2", "F8_E5M2"),
        ("torch.FP16", "F16"),
        ("fp8", "F8_E5M2"),
    ],
)
def test_dtype_names_become_those_of_safetensors(name: str, dtype: str) -> None:
    specs = by_name(list(dashq.module_tensors("m", module(scale_zero_dtype=name))))
    assert specs["m.scale"][0] == dtype


def test_an_unknown_dtype_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"m: scale_zero_dtype: expected .*, found 'int7'"):
        list(dashq.module_tensors("m", module(scale_zero_dtype="int7")))


def test_a_nested_layer_has_two_planes_a_scale_and_a_bias_if_it_says_so() -> None:
    specs = by_name(list(bitnest.expected_tensors(package())))
    q_proj = "model.layers.0.self_attn.q_proj"
    assert specs[f"{q_proj}.hi"] == ("U8", (64, 48))
    assert specs[f"{q_proj}.lo"] == ("U8", (64, 48))
    assert specs[f"{q_proj}.scale"] == ("F16", (64, 3))
    assert specs[f"{q_proj}.bias"] == ("F16", (64,))
    assert "model.layers.0.mlp.down_proj.bias" not in specs


def test_aux_holds_what_is_not_nested() -> None:
    aux = [
        spec
        for spec in bitnest.expected_tensors(package(), vocab_size=1000)
        if spec.file == "aux.safetensors"
    ]
    assert by_name(aux) == {
        "embed_tokens": ("BF16", (1000, 96)),
        "final_norm": ("BF16", (96,)),
        "lm_head": ("BF16", (1000, 96)),
        "had_K.28": ("F32", (28, 28)),
        "layers.0.input_layernorm": ("BF16", (96,)),
        "layers.0.post_attention_layernorm": ("BF16", (96,)),
    }


def test_a_nested_lm_head_is_not_in_aux() -> None:
    manifest = package()
    head = {"lm_head": {"shape": [1000, 96], "groups": 3, "has_bias": False}}
    layers = {name: layer.model_dump() for name, layer in manifest.layers.items()}
    specs = by_name(list(bitnest.expected_tensors(package(layers=layers | head))))
    assert "lm_head" not in specs
    assert specs["lm_head.hi"] == ("U8", (1000, 48))


def test_layer_norms_are_required_where_they_are_not_identity() -> None:
    def required(identity: bool) -> set[bool]:
        manifest = package(norms={"decoder_norms_identity": identity})
        return {
            spec.required
            for spec in bitnest.expected_tensors(manifest)
            if spec.name.startswith("layers.")
        }

    assert required(identity=False) == {True}
    assert required(identity=True) == {False}


def test_bytes_are_unknown_without_the_vocabulary_size() -> None:
    embedding = next(
        spec for spec in bitnest.expected_tensors(package()) if spec.name == "embed_tokens"
    )
    assert embedding.shape == (None, 96)
    assert tensor_bytes(embedding) is None


def test_the_dashq_example_takes_five_bits_a_weight() -> None:
    manifest = read_manifest(EXAMPLES / "dashq_config.json")
    assert isinstance(manifest, DashqManifest)
    stored = sum(
        tensor_bytes(spec) or 0 for spec in dashq.expected_tensors(manifest) if spec.required
    )
    assert stored == 6_918_504_448 * 4 // 8 + 216_203_264 * 4


def test_the_bitnest_example_nests_seven_layers_of_28_and_the_lm_head() -> None:
    manifest = read_manifest(EXAMPLES / "meta.json")
    assert isinstance(manifest, BitnestManifest)
    specs = list(bitnest.expected_tensors(manifest))
    assert sum(spec.file == "planes.safetensors" for spec in specs) == (28 * 7 + 1) * 3
    assert not [spec for spec in specs if spec.role == "hadamard"]
