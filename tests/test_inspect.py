"""`nibblespec inspect`: sizes, kinds of layers, and where layers can be cut."""

import json
from pathlib import Path

import pytest
from nibblespec.conformance.artifacts.inspect import (
    Inspection,
    Linear,
    inspect_manifest,
    linears,
    split,
)
from nibblespec.conformance.artifacts.output.render_inspect import inspection_json, inspection_text
from nibblespec.conformance.artifacts.output.tables import bits_per_weight, human_bytes
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.formats import read_manifest

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> Inspection:
    return inspect_manifest(read_manifest(EXAMPLES / name))


def dashq_layer(name: str = "model.layers.0.mlp.up_proj", **changes: object) -> Linear:
    module: dict[str, object] = {
        "nbits": 4,
        "group_size": 32,
        "in_features": 96,
        "out_features": 8,
        "num_groups": 24,
        "packing": "int4_packed_u32",
        "scale_zero_dtype": "float16",
        "linear_dtype": "bfloat16",
    }
    manifest = DashqManifest.model_validate(
        {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "quantized_modules": {name: module | changes},
        }
    )
    return next(linears(manifest))


def bitnest_layer(per_layer_group: int = -1, hadamard: int | None = None) -> Linear:
    name = "model.layers.0.mlp.down_proj"
    transforms = {} if hadamard is None else {name: {"K": hadamard}}
    manifest = BitnestManifest.model_validate(
        {
            "format": "bitnest-package-v1",
            "arch": "llama",
            "group_size": 32,
            "pack": "unsigned+8",
            "layers": {name: {"shape": [6, 384], "groups": 12, "has_bias": False}},
            "activation": {"per_layer_group": {name: per_layer_group}},
            "online_hadamard": {"layers": transforms},
        }
    )
    return next(linears(manifest))


def test_the_dashq_example_has_the_published_sizes() -> None:
    found = example("dashq_config.json")
    assert (found.layers, found.weights, found.groups) == (248, 6_918_504_448, 216_203_264)
    assert found.parts == {
        "codes": 6_918_504_448 // 2,
        "scales": 216_203_264 * 2,
        "zero points": 216_203_264 * 2,
    }


def test_the_dashq_example_has_twelve_kinds_of_modules() -> None:
    kinds = example("dashq_config.json").kinds
    assert len(kinds) == 12
    assert sum(kind.count for kind in kinds) == 248
    by_name = {kind.pattern: kind for kind in kinds}
    up_proj = by_name["model.language_model.layers.*.mlp.up_proj"]
    assert up_proj.count == 32
    assert (up_proj.example.rows, up_proj.example.columns) == (12288, 4096)


def test_a_draft_of_the_bitnest_example_reads_half_of_the_planes() -> None:
    found = example("meta.json")
    weights, scales = found.weights, found.parts["scales"]
    assert found.parts["hi plane"] == found.parts["lo plane"] == weights // 2
    assert found.draft_bytes == weights // 2 + scales


def test_layers_of_different_shapes_are_different_kinds() -> None:
    manifest = read_manifest(EXAMPLES / "dashq_config.json").model_dump()
    first = "model.language_model.layers.0.mlp.up_proj"
    manifest["quantized_modules"][first] |= {"out_features": 64, "num_groups": 64 * 4096 // 32}
    kinds = inspect_manifest(DashqManifest.model_validate(manifest)).kinds
    counts = [kind.count for kind in kinds if kind.pattern.endswith("mlp.up_proj")]
    assert sorted(counts) == [1, 31]


@pytest.mark.parametrize(
    ("size", "step", "ways"),
    [(12, 1, (2, 3, 4, 6, 12)), (96, 32, (3,)), (64, 64, ()), (100, 32, ())],
)
def test_equal_parts_are_multiples_of_the_step(size: int, step: int, ways: tuple[int, ...]) -> None:
    assert split(size, step).ways == ways


def test_a_number_of_three_hundred_digits_is_split_at_once() -> None:
    assert split(10**300, 32).ways == (2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64)


def test_columns_are_cut_at_whole_groups_and_whole_words() -> None:
    assert dashq_layer().column_split.step == 32
    assert dashq_layer(group_size=4, num_groups=192).column_split.step == 8


def test_columns_cannot_be_cut_where_words_hold_the_ends_of_two_rows() -> None:
    """96 codes of 3 bits, ten to a word, end inside a word."""
    assert dashq_layer(nbits=3, packing="int3_packed_u32").column_split.step is None


def test_rows_are_cut_where_a_word_begins() -> None:
    """Five rows of 96 codes are 480 codes: 48 words of ten."""
    assert dashq_layer(nbits=3, packing="int3_packed_u32").row_split.step == 5


def test_a_nested_layer_is_cut_between_its_activation_groups_too() -> None:
    assert bitnest_layer().column_split.step == 32
    assert bitnest_layer(per_layer_group=48).column_split.step == 96


def test_a_hadamard_transform_of_the_input_is_told() -> None:
    assert bitnest_layer(hadamard=12).input == "Hadamard (K = 12), one scale a token"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (4_324_065_280, "4.32 GB"),
        (3 * 10**20, "300 EB"),
        (10**24, "1,000,000.00 EB"),
    ],
)
def test_bytes_are_written_with_three_digits(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_no_weights_have_no_bits() -> None:
    assert bits_per_weight(0, 0) == 0.0


@pytest.mark.parametrize("name", ["dashq_config.json", "meta.json"])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_text_keeps_to_the_width(name: str, width: int) -> None:
    text = inspection_text(name, example(name), width=width, colour=False)
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("name", ["dashq_config.json", "meta.json"])
@pytest.mark.parametrize("width", [40, 60, 70, 80, 120])
def test_no_terminal_is_so_narrow_that_something_is_cut_off(name: str, width: int) -> None:
    found = example(name)
    text = " ".join(inspection_text(name, found, width=width, colour=False).split())
    for kind in found.kinds:
        layer = kind.example
        assert kind.pattern.rpartition("*.")[2] in text
        for number in (layer.rows, layer.columns):
            assert f"{number:,}" in text
        for word in layer.input.split():
            assert word in text


def test_the_text_tells_bits_and_legal_splits() -> None:
    text = inspection_text("x.json", example("dashq_config.json"), width=100, colour=False)
    assert "6,918,504,448 weights in 216,203,264 groups, 5.0 bits per weight" in text
    assert "mlp.gate_proj            2 3 4 6 8 12 16 …     1  2 4 8 16 …           32" in text


def test_json_has_every_kind() -> None:
    document = json.loads(inspection_json("x.json", example("meta.json")))
    assert document["bits_per_weight"] == 8.125
    assert [kind["count"] for kind in document["kinds"]] == [28] * 7 + [1]
    assert document["kinds"][0]["example"]["row_split"]["step"] == 1


def test_hostile_names_do_not_reach_the_terminal() -> None:
    layer = dashq_layer(name="\x1b[31m[red]evil\u202e")
    manifest = DashqManifest.model_validate(
        {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "base_model": "\x1b]0;title\x07",
            "quantized_modules": {
                layer.name: {
                    "nbits": 4,
                    "group_size": 32,
                    "in_features": 32,
                    "out_features": 1,
                    "num_groups": 1,
                    "packing": "int4_packed_u32",
                    "scale_zero_dtype": "float16",
                    "linear_dtype": "float16",
                }
            },
        }
    )
    text = inspection_text("x.json", inspect_manifest(manifest), width=100, colour=False)
    assert r"\x1b[31m[red]evil\u202e" in text
    assert "\x1b" not in text
    assert "\x07" not in text
