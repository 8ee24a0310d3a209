"""What the rules on dashq manifests say beyond their ids, and where they have to be silent.

That each rule finds what breaks its statement, at the right place, the corpus tests.
"""

import json
import math
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nibblespec.conformance.artifacts import names
from nibblespec.conformance.artifacts.dashq import manifest as dashq_manifest
from nibblespec.conformance.artifacts.dashq import results as dashq_results
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.schemas.corpus import dashq
from nibblespec.schemas.corpus.cases import put
from nibblespec.schemas.corpus.dashq import manifest, module, one
from nibblespec.schemas.corpus.dashq_names import attention, experts, mlp
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest

Json: TypeAlias = Any  # a JSON value, of the type that the test gives it


def problems(requirement: str, value: Json) -> list[Problem]:
    """Return what one rule says of a manifest."""
    return list(dashq_manifest.RULES[requirement](Manifest.model_validate(value)))


def only(requirement: str, value: Json) -> Problem:
    (problem,) = problems(requirement, value)
    return problem


# Sizes


@pytest.mark.parametrize("nbits", range(1, 9))
def test_packing_of_every_width_is_expected_in_decimal(nbits: int) -> None:
    problem = only("DQ1-MODULE-PACKING", one(nbits=nbits, packing="other"))
    assert problem.expected == f'"int{nbits}_packed_u32" for {nbits} bits'


def test_group_count_of_one_row_is_recognised() -> None:
    problem = only("DQ1-MODULE-GROUPS", one(num_groups=2))
    assert problem.expected == "16 (out_features · quant_in_features / group_size)"
    assert problem.hint == "this counts the groups of one row; num_groups is for the whole matrix"


def test_group_count_of_the_logical_weight_is_recognised() -> None:
    problem = only("DQ1-MODULE-GROUPS", one(in_features=32, num_groups=8))
    assert problem.hint == "this leaves out the padding; its groups count too"


def test_any_other_group_count_has_no_hint() -> None:
    assert only("DQ1-MODULE-GROUPS", one(num_groups=15)).hint == ""


def test_group_count_of_a_single_row_is_the_same_for_both() -> None:
    assert problems("DQ1-MODULE-GROUPS", manifest({"a": module(1, 64)})) == []


def test_group_that_does_not_divide_comes_with_one_that_fits() -> None:
    problem = only("DQ1-MODULE-GROUP-SIZE", manifest({"a": module(2, 4304, group=128)}))
    assert problem.expected == "a divisor of 4304"
    assert problem.hint == "groups of 16 fit"


def test_groups_of_one_are_not_suggested() -> None:
    assert only("DQ1-MODULE-GROUP-SIZE", manifest({"a": module(2, 33, group=32)})).hint == ""


def test_straddling_groups_whose_number_is_whole_are_no_wrong_count() -> None:
    straddling = manifest({"a": module(2, 48)})
    assert problems("DQ1-MODULE-GROUPS", straddling) == []
    assert len(problems("DQ1-MODULE-GROUP-SIZE", straddling)) == 1


@pytest.mark.parametrize(("rows", "too_large"), [(2**32 - 1, False), (2**32, True)])
def test_codes_of_2_to_the_63_bytes_are_the_first_that_are_too_large(
    rows: int, too_large: bool
) -> None:
    value = manifest({"a": module(rows, 2**32, group=2**31)})
    found = [problem.found for problem in problems("DQ1-MODULE-SIZE", value)]
    sizes = "9223372036854775808 bytes of codes, 17179869184 of scales"
    assert found == ([sizes] if too_large else [])


def test_the_last_word_counts_whole() -> None:
    # 10 codes to a word: 2^63 - 8 bytes hold one word less than 2^63 - 4.
    codes = 10 * (2**61 - 1)
    fits = {"a": module(1, codes, 3, codes)}
    beyond = {"a": module(1, codes + 1, 3, codes + 1)}
    assert problems("DQ1-MODULE-SIZE", manifest(fits)) == []
    assert len(problems("DQ1-MODULE-SIZE", manifest(beyond))) == 1


@pytest.mark.parametrize(
    ("dtype", "groups"), [("float32", 2**61), ("half", 2**62), ("fp8", 2**63), ("fp8_e4m3", 2**63)]
)
def test_size_of_scales_follows_their_dtype(dtype: str, groups: int) -> None:
    described = one(scale_zero_dtype=dtype, num_groups=groups)
    below = one(scale_zero_dtype=dtype, num_groups=groups - 1)
    assert len(problems("DQ1-MODULE-SIZE", described)) == 1
    assert problems("DQ1-MODULE-SIZE", below) == []


# dtypes


@pytest.mark.parametrize(
    ("alias", "canonical"),
    [
        ("fp16", "float16"),
        ("half", "float16"),
        ("HALF", "float16"),
        ("bf16", "bfloat16"),
        ("fp32", "float32"),
        ("fp8", "float8_e5m2"),
        ("fp8_e5m2", "float8_e5m2"),
        ("fp8_e4m3", "float8_e4m3fn"),
        ("torch.float16", "float16"),
        ("Torch.BFloat16", "bfloat16"),
        ("torch.fp8_E4M3", "float8_e4m3fn"),
        ("torch.float8_e4m3fn", "float8_e4m3fn"),
    ],
)
def test_alias_is_a_warning_with_the_canonical_name(alias: str, canonical: str) -> None:
    value = one(scale_zero_dtype=alias)
    assert problems("DQ1-MODULE-SCALE-DTYPE", value) == []
    problem = only("DQ1-MODULE-DTYPE-NAME", value)
    assert canonical in problem.message
    assert problem.expected == f'"{canonical}"'


def test_bare_fp8_is_explained() -> None:
    hint = only("DQ1-MODULE-DTYPE-NAME", one(scale_zero_dtype="torch.FP8")).hint
    assert "e5m2" in hint
    assert only("DQ1-MODULE-DTYPE-NAME", one(scale_zero_dtype="fp8_e5m2")).hint == ""


@pytest.mark.parametrize(
    "name", ["", "float", "fp4", "float8", "torch.", "torch.torch.half", " float16", "float16\n"]
)
def test_unknown_dtype_is_an_error_and_no_alias(name: str) -> None:
    value = one(scale_zero_dtype=name, linear_dtype=name)
    assert len(problems("DQ1-MODULE-SCALE-DTYPE", value)) == 1
    assert len(problems("DQ1-MODULE-LINEAR-DTYPE", value)) == 1
    assert problems("DQ1-MODULE-DTYPE-NAME", value) == []


# Names


@given(st.lists(st.text("ab.", max_size=6), unique=True, max_size=12))
def test_nested_names_are_those_with_an_ancestor_in_the_list(given_names: list[str]) -> None:
    found = {problem.pointer for problem in names.nested(given_names, "m")}
    inside = {
        f"/m/{name}"
        for name in given_names
        if any(name.startswith(f"{other}.") for other in given_names)
    }
    assert found == inside


def test_nested_name_is_shown_with_the_one_around_it() -> None:
    (problem,) = names.nested(["a.b", "a.b.c.d"], "m")
    assert (problem.expected, problem.found) == ('no layer inside "a.b"', '"a.b.c.d"')


@pytest.mark.parametrize("code", [0, 0x1F, 0x2F, 0x5C, 0x7F, 0x9F, 0x2028, 0x2029])
def test_forbidden_characters_are_named_by_code_point(code: int) -> None:
    (problem,) = names.characters([f"a{chr(code)}b"], "m")
    assert f"U+{code:04X}" in problem.found


@pytest.mark.parametrize("code", [0x20, 0xA0, 0x1680, 0x2000, 0x200A, 0x202F, 0x205F, 0x3000])
@pytest.mark.parametrize("form", ["{}a", "a{}", "a{}.b", "a.{}b", "{}"])
def test_white_space_at_the_edge_of_a_segment_is_an_error(code: int, form: str) -> None:
    assert len(list(names.characters([form.format(chr(code))], "m"))) == 1


@pytest.mark.parametrize("name", ["a b", "a\u00a0b", "\u200b", "ä", "a:b", "a*b", "~"])
def test_other_unusual_characters_are_a_warning_only(name: str) -> None:
    assert list(names.characters([name], "m")) == []
    assert len(list(names.ascii_only([name], "m"))) == 1


@given(st.text(max_size=8))
def test_every_name_is_plain_or_reported_once(name: str) -> None:
    reported = [*names.characters([name], "m"), *names.ascii_only([name], "m")]
    plain = all(char.isascii() and (char.isalnum() or char in "_-.") for char in name)
    assert len(reported) == (0 if plain else 1)


@pytest.mark.parametrize("text", ["gpt2", "Qwen/Qwen3.5-9B", "a_b/c.d", "0/0", "a" * 96, "_a/b_"])
def test_hub_ids(text: str) -> None:
    assert names.is_hub_id(text)


@pytest.mark.parametrize(
    "text",
    ["", "/", "a/", "/a", "a/b/c", ".", "..", "a b", "-a", "a.", "a" * 97, "C:\\x", "ä/b", "a\n"],
)
def test_no_hub_ids(text: str) -> None:
    assert not names.is_hub_id(text)


# Modules that belong together


def test_gated_queries_are_twice_as_wide_and_right() -> None:
    gated = manifest(attention(query=256))
    assert problems("DQ1-SHAPE-QO", gated) == []
    assert problems("DQ1-SHAPE-HEADS", gated) == []


def test_output_names_both_widths_that_fit() -> None:
    problem = only("DQ1-SHAPE-QO", manifest(attention(output=192)))
    assert problem.expected == "128, the rows of q_proj, or half of them"
    assert problem.found == "192"


@pytest.mark.parametrize("latent", ["kv_b_proj", "kv_a_proj_with_mqa"])
def test_latent_attention_has_query_heads_of_another_width(latent: str) -> None:
    heads = attention(query=192)
    for last in ("k_proj", "v_proj"):
        del heads[f"model.layers.0.self_attn.{last}"]
    assert len(problems("DQ1-SHAPE-QO", manifest(heads))) == 1
    heads[f"model.layers.0.self_attn.{latent}"] = module(256, 32)
    assert problems("DQ1-SHAPE-QO", manifest(heads)) == []


def test_exchanged_inputs_and_outputs_are_seen_against_the_rest_of_the_layer() -> None:
    exchanged = {
        "model.layers.0.mlp.up_proj": module(64, 128),
        "model.layers.0.mlp.down_proj": module(128, 64),
    }
    assert problems("DQ1-SHAPE-HIDDEN", manifest(exchanged)) == []
    found = problems("DQ1-SHAPE-HIDDEN", manifest(attention() | exchanged))
    assert [problem.found for problem in found] == ["128", "128"]
    assert {problem.expected for problem in found} == {'64, as most of "model.layers.0" have'}


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.shared_transformer.self_attn.q_proj",
        "model.layers.0.cross_attn.k_proj",
        "model.layers.0.linear_attn.q_proj",
        "model.layers.0.mixer.up_proj",
        "model.layers.0.mlp.experts.0.up_proj",
        "model.layers.0.mlp.shared_expert.up_proj",
        "model.layers.1.self_attn.q_proj",
        "model.visual.blocks.0.self_attn.q_proj",
    ],
)
def test_modules_elsewhere_may_have_another_input(name: str) -> None:
    value = manifest(attention() | mlp() | {name: module(96, 96)})
    assert problems("DQ1-SHAPE-HIDDEN", value) == []


def test_modules_without_siblings_are_not_compared() -> None:
    alone = manifest({"model.layers.0.mlp.down_proj": module(64, 32), "q_proj": module(8, 32)})
    for requirement, rule in dashq_manifest.RULES.items():
        if "-SHAPE-" in requirement:
            assert list(rule(Manifest.model_validate(alone))) == []


def test_modules_at_the_top_are_siblings_too() -> None:
    value = manifest({"gate_proj": module(64, 32), "up_proj": module(32, 32)})
    assert only("DQ1-SHAPE-GATE-UP", value).pointer == "/quantized_modules/up_proj/out_features"


def test_siblings_of_different_layers_are_not_compared() -> None:
    layers = mlp(parent="model.layers.0.mlp") | mlp(96, 96, 96, parent="model.layers.1.mlp")
    for requirement in ("DQ1-SHAPE-GATE-UP", "DQ1-SHAPE-DOWN"):
        assert problems(requirement, manifest(layers)) == []


def test_expert_of_another_width_is_named() -> None:
    lists = experts(0, 1, 2)
    lists["model.layers.0.mlp.experts.down_proj_list.1"] = module(64, 128)
    problem = only("DQ1-SHAPE-EXPERTS", manifest(lists))
    assert problem.pointer.endswith("down_proj_list.1/in_features")
    assert (problem.expected, problem.found) == ("half of 128", "128")


def test_missing_experts_are_counted_and_the_first_is_named() -> None:
    lists = experts(0, 1, 2, 3)
    del lists["model.layers.0.mlp.experts.down_proj_list.1"]
    problem = only("DQ1-EXPERTS-COMPLETE", manifest(lists))
    assert "down_proj_list" in problem.expected
    assert problem.found == "3 of them, not 1"


def test_absurd_numbers_of_experts_and_layers_are_not_enumerated() -> None:
    value = manifest(
        {"layers.999999999.experts.999999999.a": module(8, 64), "layers.0.b": module(8, 64)}
    )
    assert only("DQ1-LAYERS-CONTIGUOUS", value).found == "2 of them, not 1"
    assert only("DQ1-EXPERTS-COMPLETE", value).found == "1 of them, not 0"


def test_numbers_of_many_digits_are_no_numbers_of_layers() -> None:
    value = manifest({f"layers.{'9' * 400}.a": module(8, 64)})
    assert problems("DQ1-LAYERS-CONTIGUOUS", value) == []


def test_uneven_coverage_is_said_once_for_each_layer() -> None:
    layers = {f"model.layers.{number}.mlp.up_proj": module(8, 64) for number in range(3)}
    layers["model.layers.0.mlp.down_proj"] = module(8, 64)
    found = problems("DQ1-LAYERS-COVERAGE", manifest(layers))
    assert len(found) == 2
    assert {problem.message for problem in found} == {
        'a layer lacks "down_proj", which is packed in other layers'
    }


# params and results


def test_params_that_describe_no_module_are_one_warning_and_no_information() -> None:
    value = put(dashq.PLAIN, {"bits": 3}, "params")
    assert len(problems("DQ1-PARAMS-UNUSED", value)) == 1
    assert problems("DQ1-PARAMS-DIFFER", value) == []


def test_params_that_describe_some_modules_inform_of_the_others() -> None:
    value = manifest({"a": module(8, 64), "b": module(8, 64, 3)}, params={"bits": 4})
    assert problems("DQ1-PARAMS-UNUSED", value) == []
    assert only("DQ1-PARAMS-DIFFER", value).pointer == "/quantized_modules/b/nbits"


def results(**changed: Json) -> Json:
    return put(dashq.PLAIN, dashq.SCORES | {"zeroshot_avg": 605.5 / 9} | changed, "results")


@pytest.mark.parametrize("share", [0.0, 1e-7, -1e-7])
def test_mean_in_single_precision_is_no_contradiction(share: float) -> None:
    assert problems("DQ1-RESULTS-MEAN", results(zeroshot_avg=605.5 / 9 * (1 + share))) == []


def test_wrong_mean_is_shown_beside_the_right_one() -> None:
    problem = only("DQ1-RESULTS-MEAN", results(zeroshot_avg=67.0))
    assert problem.expected.startswith("67.2777777777777")
    assert problem.found == "67.0"


@pytest.mark.parametrize("rounded", [67.3, 67.28, 67.278, 67.2778])
def test_mean_that_was_rounded_is_no_contradiction(rounded: float) -> None:
    assert problems("DQ1-RESULTS-MEAN", results(zeroshot_avg=rounded)) == []


def test_mean_that_ends_in_a_half_may_be_rounded_either_way() -> None:
    scores = dict.fromkeys(dashq_results.TASKS, 67.275)
    for rounded in (67.27, 67.28):
        assert problems("DQ1-RESULTS-MEAN", results(**scores, zeroshot_avg=rounded)) == []


@pytest.mark.parametrize("wrong", [67.2, 67.4, 67.27, 67.29, 67.0, 67, 70])
def test_mean_that_no_rounding_gives_is_a_contradiction(wrong: float) -> None:
    assert len(problems("DQ1-RESULTS-MEAN", results(zeroshot_avg=wrong))) == 1


@pytest.mark.parametrize("value", [None, "67", True, [], {}, 10**400])
@pytest.mark.parametrize("key", ["piqa", "zeroshot_avg"])
def test_results_that_are_no_numbers_are_not_averaged(key: str, value: Json) -> None:
    assert problems("DQ1-RESULTS-MEAN", results(**{key: value})) == []


@given(st.lists(st.floats(-1e308, 1e308), min_size=9, max_size=9))
def test_mean_of_any_numbers_is_accepted_and_its_double_is_not(scores: list[float]) -> None:
    mean = math.fsum(score / 9 for score in scores)
    tasks = dict(zip(dashq_results.TASKS, scores, strict=True))
    value = put(dashq.PLAIN, tasks | {"zeroshot_avg": mean}, "results")
    assert problems("DQ1-RESULTS-MEAN", value) == []
    if abs(mean) > 1e-5 * max(map(abs, scores)):
        wrong = put(value, 0, "results", "zeroshot_avg")
        assert len(problems("DQ1-RESULTS-MEAN", wrong)) == 1


scalars = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\\")),
)


@given(st.dictionaries(st.text("abc_'\"", max_size=4), scalars, max_size=5))
def test_repr_of_a_flat_dictionary_reads_as_that_dictionary(value: dict[str, Json]) -> None:
    text = repr(value)
    read = dashq_results.read_repr(text)
    if "\\" in text:  # repr escapes what cannot be printed, and one kind of quotes beside another
        return
    assert read == value
    assert read is not None
    assert [type(one) for one in read.values()] == [type(one) for one in value.values()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}",
        "{}}",
        "{'a'}",
        "{'a': 1",
        "{'a': 1,}",
        "{'a': 1 'b': 2}",
        "{'a': [1]}",
        "{'a': {'b': 1}}",
        "{'a': 1 + 1}",
        "{'a': print()}",
        "{'a': nan}",
        "{'a': '\\n'}",
        "{a: 1}",
        "{1: 1}",
        "{'a': 1}; import os",
        "{'a': " + "9" * 20_000 + "}",
        "(" * 5_000,
        "{'a':" * 1_500,
    ],
)
def test_anything_else_is_not_read(text: str) -> None:
    assert dashq_results.read_repr(text) is None


@pytest.mark.parametrize(("length", "readable"), [(10_000, True), (10_001, False)])
def test_copies_of_more_than_ten_thousand_characters_are_not_read(
    length: int, readable: bool
) -> None:
    text = "{'a': '" + "x" * (length - 9) + "'}"
    assert len(text) == length
    assert (dashq_results.read_repr(text) is not None) == readable


def test_empty_dictionary_is_read() -> None:
    assert dashq_results.read_repr(" { } ") == {}


def test_number_of_thousands_of_digits_in_the_copy_is_compared_and_not_computed() -> None:
    value = put(
        put(dashq.PLAIN, {"bits": 4}, "params"), {"Params": f"{{'bits': {'9' * 5000}}}"}, "results"
    )
    assert only("DQ1-RESULTS-PARAMS", value).expected == "bits: 4"


def test_difference_of_the_copy_names_key_and_both_values() -> None:
    copy = repr(dashq.PARAMS | {"bits": 8, "symmetric": True})
    problem = only("DQ1-RESULTS-PARAMS", put(dashq.FULL, copy, "results", "Params"))
    assert (problem.expected, problem.found) == ("bits: 4", "bits: 8")
    assert problem.hint == "2 keys differ"


def test_extra_key_of_the_copy_is_named() -> None:
    copy = repr(dashq.PARAMS | {"seed": 1})
    problem = only("DQ1-RESULTS-PARAMS", put(dashq.FULL, copy, "results", "Params"))
    assert (problem.expected, problem.found) == ('no "seed"', "seed: 1")


# Any input


@given(st.integers(1, 10**300), st.integers(1, 10**300), st.integers(1, 10**300), st.integers(1, 8))
def test_rules_bear_integers_of_hundreds_of_digits(
    rows: int, columns: int, group: int, nbits: int
) -> None:
    described = module(rows, columns, nbits, group, num_groups=max(1, rows * columns // group))
    parsed = Manifest.model_validate(json.loads(json.dumps(manifest({"a": described}))))
    for rule in dashq_manifest.RULES.values():
        for problem in rule(parsed):
            assert len(problem.expected) + len(problem.found) + len(problem.hint) < 300
