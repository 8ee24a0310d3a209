"""config.json against manifest and tensors: reading it, its borders, and whatever it may hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nibblespec.conformance import Finding, validate
from nibblespec.conformance.artifacts.bitnest.config import BITNEST_CONFIG_RULES, BitnestConfig
from nibblespec.conformance.artifacts.dashq import config as dashq_config
from nibblespec.conformance.artifacts.dashq import inventory as dashq_inventory
from nibblespec.conformance.artifacts.dashq.widths import DASHQ_WIDTH_RULES
from nibblespec.conformance.artifacts.findings import apply_rules
from nibblespec.conformance.artifacts.reading import shards
from nibblespec.conformance.artifacts.reading.model_config import (
    head_dim,
    integer,
    key_value_heads,
    text_config,
)
from nibblespec.conformance.examples.files import Example, Tensor, json_bytes, render
from nibblespec.conformance.examples.models import (
    BITNEST,
    DASHQ,
    SHARDS,
    bitnest_example,
    dashq_example,
)
from nibblespec.conformance.examples.write import example_files, write_files
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.formats import read_manifest

Config = dict[str, Any]

RULES = {**dashq_config.DASHQ_CONFIG_RULES, **DASHQ_WIDTH_RULES}
NO_SHARDS = shards.join((), {}, None, has_index=False)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", None, [4], {}, 0.0])
def test_what_is_no_size_is_none(value: object) -> None:
    assert integer({"hidden_size": value}, "hidden_size") is None


@pytest.mark.parametrize(("value", "size"), [(4, 4), (4.0, 4), (1, 1), (10**300, 10**300)])
def test_a_size_is_an_integer_of_at_least_1(value: object, size: int) -> None:
    assert integer({"hidden_size": value}, "hidden_size") == size


@pytest.mark.parametrize(
    ("config", "width"),
    [
        ({"head_dim": 16, "hidden_size": 64, "num_attention_heads": 8}, 16),
        ({"hidden_size": 64, "num_attention_heads": 8}, 8),
        ({"head_dim": None, "hidden_size": 64, "num_attention_heads": 8}, 8),
        ({"hidden_size": 65, "num_attention_heads": 8}, None),
        ({"hidden_size": 64}, None),
        ({"head_dim": "16", "hidden_size": 64, "num_attention_heads": 8}, None),
    ],
)
def test_the_width_of_a_head_is_given_or_follows(config: Config, width: int | None) -> None:
    assert head_dim(config) == width


def test_without_key_value_heads_there_are_as_many_as_queries() -> None:
    assert key_value_heads({"num_attention_heads": 8}) == 8
    assert key_value_heads({"num_attention_heads": 8, "num_key_value_heads": 2}) == 2


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_the_text_configuration_is_the_nested_one(key: str) -> None:
    nested = {"hidden_size": 4}
    assert text_config({"hidden_size": 8, key: nested}) == (nested, (key,))


def test_a_text_configuration_that_is_no_object_is_none() -> None:
    config = {"text_config": None}
    assert text_config(config) == (config, ())


# dashq


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., list[Finding]]:
    """Validate the dashq example after a change of its config.json and perhaps of the rest."""

    def check(
        change: Callable[[Config], object], more: Callable[[Example], object] = id
    ) -> list[Finding]:
        example = dashq_example()
        change(example.documents["config.json"])
        more(example)
        write_files(tmp_path, render(example))
        return validate(tmp_path)

    return check


def test_a_wrong_width_names_module_and_key(findings: Callable[..., list[Finding]]) -> None:
    found = findings(lambda config: config.update(num_key_value_heads=4))
    assert {each.requirement for each in found} == {"DQ1-CONFIG-HEADS"}
    assert found[0].pointer == ("/quantized_modules/model.layers.0.self_attn.k_proj/out_features")
    assert found[0].expected == "64 (num_key_value_heads · head_dim of config.json)"
    assert found[0].found == "32"


def test_a_gated_query_is_twice_as_wide(findings: Callable[..., list[Finding]]) -> None:
    """With half the heads, q_proj fits as a gated one, and o_proj does not fit."""
    found = findings(lambda config: config.update(num_attention_heads=2, num_key_value_heads=2))
    assert {each.pointer.rsplit("/", 2)[1].rsplit(".", 1)[1] for each in found} == {"o_proj"}


def test_a_layer_without_tensors_is_named(findings: Callable[..., list[Finding]]) -> None:
    [found] = findings(lambda config: config.update(num_hidden_layers=4))
    assert found.expected == "4 layers, model.layers.0 to 3"
    assert found.found == "layers without tensors: 2, 3"


def test_layers_beyond_the_last_are_named(findings: Callable[..., list[Finding]]) -> None:
    [found] = findings(lambda config: config.update(num_hidden_layers=1))
    assert (found.pointer, found.found) == ("/num_hidden_layers", "layers beyond them: 1")


def test_a_number_of_layers_beyond_all_measure_ends(
    findings: Callable[..., list[Finding]],
) -> None:
    [found, _] = findings(lambda config: config.update(num_hidden_layers=10**300))
    assert found.requirement in ("JSON-INTEGER-EXACT", "DQ1-CONFIG-LAYERS")


def test_a_model_without_known_layers_is_not_compared(
    findings: Callable[..., list[Finding]],
) -> None:
    def rename(example: Example) -> None:
        manifest = example.documents["dashq_config.json"]
        named = manifest["quantized_modules"].items()
        manifest["quantized_modules"] = {
            name.replace("model.layers", "transformer.h"): module for name, module in named
        }
        for file, tensors in example.tensors.items():
            example.tensors[file] = {
                name.replace("model.", "transformer.").replace("layers", "h"): item
                for name, item in tensors.items()
            }

    wrong = {"hidden_size": 7, "num_hidden_layers": 7, "num_attention_heads": 7}
    found = findings(lambda config: config.update(wrong), rename)
    assert {each.requirement for each in found} == {"DQ1-CONFIG-VOCABULARY"}  # of lm_head


def test_the_layers_of_a_text_configuration_are_located_there(
    findings: Callable[..., list[Finding]],
) -> None:
    found = findings(lambda config: config.update(text_config={"num_hidden_layers": 3}))
    assert [each.pointer for each in found] == ["/text_config/num_hidden_layers"]


@pytest.mark.parametrize(
    "identity",
    [
        None,
        [],
        "dashq",
        {"format": "dashq"},
        {"format_version": 2},
        {"format_version": True},
        {"format_version": "1"},
        {"method": None},
        {"n_quantized_modules": 15},
    ],
)
def test_an_identity_that_differs_is_reported(
    findings: Callable[..., list[Finding]], identity: object
) -> None:
    found = findings(lambda config: config.update(dashq=identity))
    assert [each.requirement for each in found] == ["DQ1-CONFIG-IDENTITY"]


@pytest.mark.parametrize(
    "identity",
    [{}, {"n_quantized_modules": 14}, {"format_version": 1.0}, {"note": "anything"}],
)
def test_an_identity_in_part_is_fine(
    findings: Callable[..., list[Finding]], identity: object
) -> None:
    assert findings(lambda config: config.update(dashq=identity)) == []


def test_a_packed_output_layer_has_the_shape_of_the_vocabulary(
    findings: Callable[..., list[Finding]],
) -> None:
    def pack(example: Example) -> None:
        modules = example.documents["dashq_config.json"]["quantized_modules"]
        module = {**modules["model.layers.1.self_attn.q_proj"]}
        modules["lm_head"] = module
        shard = example.tensors[SHARDS[1]]
        del shard["lm_head.weight"]
        for part in ("W_q_packed", "scale", "zero"):
            shard[f"lm_head.{part}"] = shard[f"model.layers.1.self_attn.q_proj.{part}"]

    found = findings(lambda config: config.pop("dashq"), pack)
    errors = [each for each in found if each.severity == "error"]
    assert [(each.requirement, each.found) for each in errors] == [
        ("DQ1-CONFIG-VOCABULARY", "[64, 64]")
    ]


def test_multi_token_prediction_layers_are_no_decoder_layers(
    findings: Callable[..., list[Finding]],
) -> None:
    def add(example: Example) -> None:
        example.tensors[SHARDS[1]]["mtp.layers.7.weight"] = Tensor("F32", (1,), bytes(4))

    assert findings(id, add) == []


@pytest.mark.parametrize(
    ("outer", "inner", "requirements"),
    [
        (True, True, ["DQ1-CONFIG-TIED"]),
        (False, False, []),
        (True, False, ["DQ1-CONFIG-TIE-LEVELS"]),
        (None, True, ["DQ1-CONFIG-TIED"]),
        ("yes", False, ["DQ1-CONFIG-TYPES"]),
    ],
)
def test_both_levels_are_asked_about_ties(
    findings: Callable[..., list[Finding]], outer: object, inner: object, requirements: list[str]
) -> None:
    nested = {"tie_word_embeddings": inner}
    found = findings(lambda config: config.update(tie_word_embeddings=outer, text_config=nested))
    assert [each.requirement for each in found] == requirements


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"a": 1, "a": 2}'])
@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_a_config_that_is_no_object_is_an_error(tmp_path: Path, family: str, data: bytes) -> None:
    write_files(tmp_path, {**example_files(family), "config.json": data})
    assert "error" in {found.severity for found in validate(tmp_path)}


def test_what_is_not_finite_is_an_error_where_the_architecture_is_known(tmp_path: Path) -> None:
    example = bitnest_example()
    example.documents["config.json"]["note"] = float("inf")
    write_files(tmp_path, render(example))
    assert [found.requirement for found in validate(tmp_path)] == ["JSON-NONFINITE"]


# The two published manifests, beside the sizes that their base models' configurations give

QWEN = {
    "model_type": "qwen3_5",
    "vision_config": {},
    "tie_word_embeddings": False,
    "text_config": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
    },
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
}


def published(name: str) -> object:
    return read_manifest(Path(__file__).parent.parent / "examples" / name)


def test_the_published_dashq_manifest_agrees_with_its_model() -> None:
    manifest = published("dashq_config.json")
    assert isinstance(manifest, DashqManifest)
    inventory = dashq_inventory.take_inventory(manifest, NO_SHARDS)
    subject = dashq_config.join(QWEN, inventory)
    assert len(subject.modules) == 248
    assert list(apply_rules(RULES, subject, "config.json")) == []


def test_the_published_bitnest_manifest_agrees_with_its_model() -> None:
    manifest = published("meta.json")
    assert isinstance(manifest, BitnestManifest)
    subject = BitnestConfig(config=LLAMA, manifest=manifest)
    assert list(apply_rules(BITNEST_CONFIG_RULES, subject, "config.json")) == []


# Any configuration

KEYS = [
    *json.loads(json_bytes(dashq_example().documents["config.json"])),
    *("text_config", "vision_config", "quantization_config", "rope_parameters"),
    *("num_experts", "num_nextn_predict_layers", "kv_lora_rank", "use_double_wide_mlp"),
]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 200)
    | st.sampled_from([2**53, 10**300, -(10**300), 1e300, 0.0, -0.0])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=10,
)

CONFIGS = st.dictionaries(st.sampled_from(KEYS), VALUES)

DASHQ_MANIFEST = DashqManifest.model_validate(dashq_example().documents["dashq_config.json"])
BITNEST_MANIFEST = BitnestManifest.model_validate(bitnest_example().documents["meta.json"])


@settings(max_examples=300, deadline=None)
@given(CONFIGS)
def test_any_configuration_ends_in_findings(config: Config) -> None:
    inventory = dashq_inventory.take_inventory(DASHQ_MANIFEST, NO_SHARDS)
    for each in apply_rules(RULES, dashq_config.join(config, inventory), "config.json"):
        assert len(each.found) < 1000


@settings(max_examples=300, deadline=None)
@given(CONFIGS)
def test_any_configuration_of_a_package_ends_in_findings(config: Config) -> None:
    subject = BitnestConfig(config=config, manifest=BITNEST_MANIFEST)
    for each in apply_rules(BITNEST_CONFIG_RULES, subject, "config.json"):
        assert len(each.found) < 1000
