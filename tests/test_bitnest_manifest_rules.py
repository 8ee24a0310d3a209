"""What the rules on bitnest manifests say beyond their ids, and where they have to be silent.

That each rule finds what breaks its statement, at the right place, the corpus tests.
"""

import json
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nibblespec.conformance.artifacts.bitnest import manifest as bitnest_manifest
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.schemas.corpus import bitnest
from nibblespec.schemas.corpus.bitnest import DOWN, OUT, PLAIN, decoder, layer, manifest
from nibblespec.schemas.corpus.bitnest_layers import UP, with_groups, with_layer, with_order
from nibblespec.schemas.corpus.cases import put
from nibblespec.spec.bitnest_package.v1.manifest import Manifest

Json: TypeAlias = Any  # a JSON value, of the type that the test gives it


def problems(requirement: str, value: Json) -> list[Problem]:
    """Return what one rule says of a manifest."""
    return list(bitnest_manifest.RULES[requirement](Manifest.model_validate(value)))


def only(requirement: str, value: Json) -> Problem:
    (problem,) = problems(requirement, value)
    return problem


# Sizes


def test_group_count_of_the_whole_matrix_is_recognised() -> None:
    problem = only("BN1-LAYER-GROUPS", put(PLAIN, 256 * 4, "layers", DOWN, "groups"))
    assert problem.expected == "4 (K / group_size)"
    assert problem.hint == "this counts the groups of the whole matrix; groups is for one row"


def test_group_count_along_the_other_axis_is_recognised() -> None:
    problem = only("BN1-LAYER-GROUPS", put(PLAIN, 2, "layers", DOWN, "groups"))
    assert problem.hint == "this counts groups along N; groups run along K"


def test_any_other_group_count_has_no_hint() -> None:
    assert only("BN1-LAYER-GROUPS", put(PLAIN, 3, "layers", DOWN, "groups")).hint == ""


def test_width_that_the_group_does_not_divide_comes_with_a_group_that_fits() -> None:
    wide = with_layer(DOWN, {"shape": [256, 576], "groups": 4, "has_bias": False})
    problem = only("BN1-LAYER-GROUP-SIZE", wide)
    assert (problem.expected, problem.found) == ("a multiple of 128", "576")
    assert problem.hint == "groups of 64 fit"
    assert problems("BN1-LAYER-GROUPS", wide) == []


@pytest.mark.parametrize(("columns", "odd"), [(1, True), (2, False), (3, True), (4, False)])
def test_columns_go_in_pairs(columns: int, odd: bool) -> None:
    value = with_layer(DOWN, {"shape": [1, columns], "groups": 1, "has_bias": False})
    assert bool(problems("BN1-LAYER-EVEN", value)) == odd


@pytest.mark.parametrize(
    ("described", "too_large"),
    [
        ({"shape": [2**32, 2**32 - 2], "groups": 1, "has_bias": False}, False),
        ({"shape": [2**32, 2**32], "groups": 1, "has_bias": False}, True),
        ({"shape": [2**31, 2], "groups": 2**31 - 1, "has_bias": False}, False),
        ({"shape": [2**31, 2], "groups": 2**31, "has_bias": False}, True),
    ],
)
def test_planes_and_scales_of_2_to_the_63_bytes_are_too_large(
    described: Json, too_large: bool
) -> None:
    assert bool(problems("BN1-LAYER-SIZE", with_layer(DOWN, described))) == too_large


@pytest.mark.parametrize(("order", "too_large"), [(1518500249, False), (1518500250, True)])
def test_matrix_of_2_to_the_63_bytes_is_too_large(order: int, too_large: bool) -> None:
    value = put(PLAIN, {DOWN: {"K": order}}, "online_hadamard", "layers")
    found = [problem.found for problem in problems("BN1-LAYER-SIZE", value)]
    assert found == (["9223372037000250000 bytes"] if too_large else [])


# Which layers there are


def test_every_missing_layer_of_a_decoder_layer_is_named() -> None:
    found = problems("BN1-LAYERS-COMPLETE", manifest({DOWN: layer(256, 512)}))
    assert len(found) == 6
    assert found[0].message == "a decoder layer lacks its `self_attn.q_proj`"
    assert found[0].expected == "a layer of that name in model.layers.0"


def test_layers_out_of_order_have_no_gap() -> None:
    value = manifest(decoder(2) | decoder(0) | decoder(10) | decoder(1))
    assert only("BN1-LAYERS-CONTIGUOUS", value).found == "4 of them, not 3"


def test_an_absurd_number_of_a_layer_is_not_enumerated() -> None:
    value = manifest({f"model.layers.{number}.mlp.up_proj": layer(2, 128) for number in (0, 10**8)})
    assert only("BN1-LAYERS-CONTIGUOUS", value).expected == "each of 0 to 100000000"


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.-1.mlp.up_proj",
        "model.layers.01.mlp.up_proj",
        "model.layers.٣.mlp.up_proj",
        "model.layers.1.mlp.up_proj ",
        "model.layers.1.mlp.up_proj\n",
        "model.layers.1.self_attn.up_proj",
        "xmodel.layers.1.mlp.up_proj",
        "modelxlayers.1.mlp.up_proj",
        f"model.layers.{'1' * 100}.mlp.up_proj",
    ],
)
def test_names_that_look_like_layers_are_not_known(name: str) -> None:
    value = with_layer(name, layer(2, 128))
    assert only("BN1-NAME-KNOWN", value).pointer == f"/layers/{name}"
    assert problems("BN1-LAYERS-COMPLETE", value) == []


# Layers that belong together


def test_width_of_the_model_is_the_most_frequent_one() -> None:
    problem = only("BN1-SHAPE-HIDDEN", with_layer(UP, layer(512, 384)))
    assert (problem.expected, problem.found) == ("256, as most layers have", "384")
    assert problem.message == "K is not the width of the model"


def test_of_equally_frequent_values_the_first_counts() -> None:
    groups = {"model.layers.1.self_attn.o_proj": 128}
    value = put(manifest(decoder(1) | decoder(0)), groups, "activation", "per_layer_group")
    problem = only("BN1-ACTIVATION-UNIFORM", value)
    assert problem.pointer == f"/layers/{OUT}"
    assert (problem.expected, problem.found) == ("128, as in most", "none, which means -1")


def test_width_of_rows_is_that_of_o_proj_and_down_proj() -> None:
    problem = only("BN1-SHAPE-HIDDEN", with_layer(OUT, layer(128, 256)))
    assert problem.message == "N is not the width of the model"


def test_heads_wider_than_the_model_are_no_contradiction() -> None:
    value = with_layer(
        "model.layers.0.self_attn.q_proj", layer(512, 256), with_layer(OUT, layer(256, 512))
    )
    for requirement, rule in bitnest_manifest.RULES.items():
        if "-SHAPE-" in requirement:
            assert list(rule(Manifest.model_validate(value))) == []


def test_bias_of_an_output_layer_of_qwen2_is_reported() -> None:
    head = {"lm_head": layer(1000, 256, bias=True)}
    value = manifest(decoder(0, bias=True) | head, arch="qwen2")
    assert only("BN1-BIAS-QWEN2", value).pointer == "/layers/lm_head/has_bias"


def test_lost_biases_of_qwen2_are_reported_in_every_layer() -> None:
    value = manifest(decoder(0), arch="qwen2")
    found = problems("BN1-BIAS-QWEN2", value)
    assert len(found) == 3
    assert {problem.message for problem in found} == {"qwen2 has a bias in this layer"}


# Inputs


@pytest.mark.parametrize("width", [-1, 1, 2, 64, 128, 256, 512])
def test_widths_of_activation_groups(width: int) -> None:
    assert problems("BN1-ACTIVATION-GROUP", with_groups(down=width)) == []


@pytest.mark.parametrize("width", [-512, -2, 0, 3, 96, 513, 1024, 10**300])
def test_no_widths_of_activation_groups(width: int) -> None:
    problem = only("BN1-ACTIVATION-GROUP", with_groups(down=width))
    assert problem.expected == "-1 or a divisor of K, 512"


def test_a_width_of_no_columns_is_no_width_of_heads() -> None:
    assert problems("BN1-ACTIVATION-HEAD", with_groups(out=0)) == []


def test_width_of_an_unknown_layer_is_judged_as_far_as_it_can_be() -> None:
    assert problems("BN1-ACTIVATION-GROUP", with_groups(gone=96)) == []
    assert only("BN1-ACTIVATION-GROUP", with_groups(gone=0)).expected == "-1 or a divisor of K"


@pytest.mark.parametrize(
    ("order", "width"),
    [
        (1, 1),
        (1, 8192),
        (28, 14336),
        (172, 11008),
        (148, 18944),
        (12, 12),
        (20, 40),
        (2, 8),
        (7, 14336),
        (1, 2**60),
    ],
)
def test_orders_that_give_the_width(order: int, width: int) -> None:
    value = put(
        manifest({DOWN: layer(2, width, group=1)}),
        {DOWN: {"K": order}},
        "online_hadamard",
        "layers",
    )
    assert problems("BN1-HADAMARD-WIDTH", value) == []


@pytest.mark.parametrize(
    ("order", "width"), [(1, 3), (1, 14336), (28, 11008), (172, 86), (3, 8), (6, 9), (10**300, 10)]
)
def test_orders_that_do_not_give_the_width(order: int, width: int) -> None:
    value = put(
        manifest({DOWN: layer(2, width, group=1)}),
        {DOWN: {"K": order}},
        "online_hadamard",
        "layers",
    )
    assert len(problems("BN1-HADAMARD-WIDTH", value)) == 1


def test_a_wrong_order_comes_with_the_odd_part_of_the_width() -> None:
    problem = only("BN1-HADAMARD-WIDTH", with_order(1, 14336))
    assert problem.hint == "14336 is 7 times a power of two"


def test_a_width_that_is_a_power_of_two_is_no_multiple_of_one() -> None:
    assert only("BN1-HADAMARD-WIDTH", with_order(28, 4096)).hint == "4096 is a power of two"


@given(st.integers(1, 400), st.integers(0, 12))
def test_every_multiple_by_a_power_of_two_is_a_width(order: int, power: int) -> None:
    width = order << power
    value = put(
        manifest({DOWN: layer(2, width, group=1)}),
        {DOWN: {"K": order}},
        "online_hadamard",
        "layers",
    )
    assert problems("BN1-HADAMARD-WIDTH", value) == []


def test_a_transform_in_one_of_three_decoder_layers_is_missed_in_the_others() -> None:
    value = put(
        manifest(decoder(0) | decoder(1) | decoder(2)),
        {"model.layers.1.mlp.down_proj": {"K": 1}},
        "online_hadamard",
        "layers",
    )
    found = problems("BN1-HADAMARD-SIBLINGS", value)
    assert [problem.pointer for problem in found] == [
        "/layers/model.layers.0.mlp.down_proj",
        "/layers/model.layers.2.mlp.down_proj",
    ]


# Rotation, norms, rope


@pytest.mark.parametrize(
    "name", ["R.bin", "rotation/R.bin", "a/b/c", "...", "..a", "R..bin", "~", " ", "旋转.bin"]
)
def test_names_that_stay_inside(name: str) -> None:
    assert problems("BN1-ROTATION-PATH", put(PLAIN, name, "rotation")) == []


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "/R", "//h/R", "a//b", "a/", "./a", "a/./b", "a/..", "..\\a", "\\\\h\\a"],
)
def test_names_that_do_not_stay_inside(name: str) -> None:
    assert len(problems("BN1-ROTATION-PATH", put(PLAIN, name, "rotation"))) == 1


@pytest.mark.parametrize("name", ["C:", "C:/a", "a:b", "a\0", "a\n", "a\x7f", "a\x85b"])
def test_names_that_some_systems_read_otherwise(name: str) -> None:
    assert len(problems("BN1-ROTATION-PATH", put(PLAIN, name, "rotation"))) == 1


@pytest.mark.parametrize("fused", [True, False, ...])
@pytest.mark.parametrize("identity", [True, False, ...])
def test_only_unfused_norms_that_are_not_stored_are_lost(fused: Json, identity: Json) -> None:
    norms = {"fused": fused, "decoder_norms_identity": identity}
    value = put(PLAIN, {key: said for key, said in norms.items() if said is not ...}, "norms")
    lost = fused is False and identity is True
    assert bool(problems("BN1-NORMS-FUSED", value)) == lost


ROPE = [requirement for requirement in bitnest_manifest.RULES if "-ROPE-" in requirement]


@pytest.mark.parametrize(
    "rope",
    [
        {},
        {"theta": None, "scaling": None},
        {"theta": 10000, "scaling": {}},
        {"theta": 1e-300},
        {"scaling": {"type": "linear", "factor": 8.0}},
        {"scaling": {"rope_type": "default"}},
        {"scaling": {"rope_type": None, "factor": None, "low_freq_factor": None}},
        {"scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}},
        {"scaling": {"factor": 1, "original_max_position_embeddings": 1.0}},
        {"scaling": {"low_freq_factor": 1.0}},
    ],
)
def test_sound_rope_settings(rope: Json) -> None:
    for requirement in ROPE:
        assert problems(requirement, put(PLAIN, rope, "rope")) == []


@pytest.mark.parametrize(("low", "found"), [(1.0, 0), (4, 1), (4.0, 1), (5.0, 1), ("1", 1)])
def test_low_band_ends_before_the_high_one(low: Json, found: int) -> None:
    rope = {"scaling": {"low_freq_factor": low, "high_freq_factor": 4.0}}
    assert len(problems("BN1-ROPE-BANDS", put(PLAIN, rope, "rope"))) == found


@pytest.mark.parametrize("value", [None, [], {}, True, "", "1", 0, -1, 1.5, 10**300, -1e308])
@pytest.mark.parametrize("key", ["factor", "low_freq_factor", "high_freq_factor", "rope_type"])
def test_any_value_in_the_scaling_ends_in_short_problems(key: str, value: Json) -> None:
    scaling = bitnest.FULL["rope"]["scaling"] | {key: value}
    for requirement in ROPE:
        for problem in problems(requirement, put(PLAIN, {"scaling": scaling}, "rope")):
            assert len(problem.expected) + len(problem.found) < 200


# Human text, and any input


def test_human_text_is_not_interpreted() -> None:
    texts = put(bitnest.FULL, "every weight is wrong", "weight_planes", "target")
    texts = put(texts, "K 偏移", "kv", "per_channel_offset")
    for rule in bitnest_manifest.RULES.values():
        assert list(rule(Manifest.model_validate(texts))) == []


@given(st.integers(1, 10**300), st.integers(1, 10**300), st.integers(1, 10**300))
def test_rules_bear_integers_of_hundreds_of_digits(rows: int, columns: int, group: int) -> None:
    shape = {"shape": [rows, columns], "groups": group, "has_bias": True}
    value = manifest(
        dict.fromkeys(decoder(0), shape),
        group_size=group,
        activation={"per_layer_group": {DOWN: group}},
        online_hadamard={"layers": {DOWN: {"K": group}}},
    )
    parsed = Manifest.model_validate(json.loads(json.dumps(value)))
    for rule in bitnest_manifest.RULES.values():
        for problem in rule(parsed):
            assert len(problem.expected) + len(problem.found) + len(problem.hint) < 300
