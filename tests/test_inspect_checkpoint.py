"""`nibblespec inspect DIR`: what the files hold beside the manifest, and what is not quantized."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from nibblespec.conformance.artifacts.findings import worst
from nibblespec.conformance.artifacts.inspect import inspect_manifest
from nibblespec.conformance.artifacts.inspect_files import (
    EMBEDDINGS,
    LINEARS,
    NORMS,
    OTHERS,
    Part,
    Stored,
    inspect_files,
    purpose,
)
from nibblespec.conformance.artifacts.output.render_inspect import inspection_text
from nibblespec.conformance.artifacts.output.tables import human_share
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry
from nibblespec.conformance.artifacts.validate import check_path
from nibblespec.conformance.cli import app
from nibblespec.conformance.examples.files import Example, Tensor, render
from nibblespec.conformance.examples.models import (
    BITNEST,
    DASHQ,
    SHARDS,
    bitnest_example,
    dashq_example,
    random_weight,
)
from nibblespec.conformance.examples.write import example_files, write_files
from nibblespec.reference.dashq_encoder import encode_dashq
from typer.testing import CliRunner, Result

Store = Callable[[Example], Stored]


@pytest.fixture
def stored(tmp_path: Path) -> Store:
    """Write a checkpoint and inspect its files."""

    def inspect(example: Example) -> Stored:
        write_files(tmp_path, render(example))
        report = check_path(str(tmp_path))
        assert report.manifest is not None
        return inspect_files(report.manifest, report.headers)

    return inspect


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def parts(found: Stored) -> dict[str, Part]:
    return {part.name: part for part in found.parts}


def bfloat16(*shape: int) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    return Tensor("BF16", shape, bytes(2 * count))


@pytest.mark.parametrize("example", [dashq_example, bitnest_example])
def test_a_valid_checkpoint_holds_what_its_manifest_implies(
    stored: Store, example: Callable[[], Example]
) -> None:
    found = stored(example())
    assert all(part.implied in (None, part.stored) for part in found.parts)


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_parts_and_headers_are_all_of_the_files(tmp_path: Path, family: str) -> None:
    write_files(tmp_path, example_files(family))
    report = check_path(str(tmp_path))
    assert report.manifest is not None
    found = inspect_files(report.manifest, report.headers)
    sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert (found.files, found.bytes) == (len(sizes), sum(sizes))
    assert found.header_bytes + sum(part.stored for part in found.parts) == found.bytes


def test_the_parts_of_the_dashq_example_are_told_apart(stored: Store) -> None:
    found = stored(dashq_example())
    assert parts(found) == {
        "codes": Part(name="codes", implied=30_720, stored=30_720, tensors=14),
        "scales": Part(name="scales", implied=3840, stored=3840, tensors=14),
        "zero points": Part(name="zero points", implied=3840, stored=3840, tensors=14),
        "biases": Part(name="biases", implied=None, stored=512, tensors=6),
        EMBEDDINGS: Part(name=EMBEDDINGS, implied=None, stored=128 * 64 * 2, tensors=1),
        LINEARS: Part(name=LINEARS, implied=None, stored=128 * 64 * 2, tensors=1),
        NORMS: Part(name=NORMS, implied=None, stored=5 * 64 * 2, tensors=5),
    }
    assert found.unquantized_bytes == 2 * 128 * 64 * 2 + 5 * 64 * 2


def test_a_tensor_that_is_missing_is_missing_in_its_part(stored: Store) -> None:
    example = dashq_example()
    del example.tensors[SHARDS[0]]["model.layers.0.mlp.down_proj.zero"]
    part = parts(stored(example))["zero points"]
    assert part.implied == 3840
    assert part.stored == 3840 - 2 * 64 * 3


def test_planes_count_where_they_belong_alone(stored: Store) -> None:
    example = bitnest_example()
    name = "model.layers.0.mlp.up_proj.hi"
    example.tensors["aux.safetensors"][name] = example.tensors["planes.safetensors"].pop(name)
    found = parts(stored(example))
    assert found["hi plane"].tensors == 13
    assert found[OTHERS].tensors == 1


# What is not quantized


@pytest.mark.parametrize("example", [dashq_example, bitnest_example])
def test_the_output_layer_is_the_only_layer_that_is_not_quantized(
    stored: Store, example: Callable[[], Example]
) -> None:
    [kind] = stored(example()).unquantized
    assert (kind.pattern, kind.count) == ("lm_head", 1)


def test_layers_that_are_left_out_are_listed_by_kind(stored: Store) -> None:
    example = dashq_example()
    modules = example.documents["dashq_config.json"]["quantized_modules"]
    for layer, shard in enumerate(SHARDS):
        name = f"model.layers.{layer}.mlp.down_proj"
        del modules[name]
        for kind in ("W_q_packed", "scale", "zero"):
            del example.tensors[shard][f"{name}.{kind}"]
        example.tensors[shard][f"{name}.weight"] = bfloat16(64, 96)
    found = stored(example)
    kinds = {kind.pattern: (kind.count, kind.rows, kind.columns) for kind in found.unquantized}
    assert kinds == {"model.layers.*.mlp.down_proj": (2, 64, 96), "lm_head": (1, 128, 64)}
    assert found.linear_layers == 15
    assert found.linear_weights == 61_440 + 128 * 64
    assert found.coverage == (61_440 - 2 * 64 * 96) / (61_440 + 128 * 64)


def test_stacked_experts_are_as_many_layers_as_they_are(stored: Store) -> None:
    example = dashq_example()
    name = "model.layers.1.mlp.experts.gate_up_proj"
    example.tensors[SHARDS[1]][name] = bfloat16(8, 64, 32)
    kinds = {kind.pattern: kind for kind in stored(example).unquantized}
    experts = kinds["model.layers.*.mlp.experts.gate_up_proj"]
    assert (experts.count, experts.rows, experts.columns) == (8, 64, 32)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("model.embed_tokens.weight", (128, 64), EMBEDDINGS),
        ("embed_tokens", (128, 64), EMBEDDINGS),
        ("transformer.wte.weight", (128, 64), EMBEDDINGS),
        ("model.visual.pos_embed.weight", (128, 64), EMBEDDINGS),
        ("model.norm.weight", (64,), NORMS),
        ("layers.0.input_layernorm", (64,), NORMS),
        ("model.layers.0.self_attn.q_norm.weight", (64,), NORMS),
        ("transformer.ln_f.weight", (64,), NORMS),
        ("lm_head.weight", (128, 64), LINEARS),
        ("lm_head", (128, 64), LINEARS),
        ("model.layers.0.mlp.gate.weight", (8, 64), LINEARS),
        ("model.visual.merger.linear_fc1.weight", (64, 64), LINEARS),
        ("model.layers.0.mlp.experts.down_proj", (8, 64, 64), LINEARS),
        ("packed.weight", (64, 64), OTHERS),
        ("model.layers.0.linear_attn.conv1d.weight", (64, 1, 4), OTHERS),
        ("model.visual.patch_embed.proj.weight", (64, 3, 2, 16, 16), OTHERS),
        ("model.layers.0.linear_attn.A_log", (32,), OTHERS),
        ("model.layers.0.self_attn.q_proj.bias", (64,), OTHERS),
        ("model.layers.0.self_attn.table", (64, 64), OTHERS),
        ("weight", (64, 64), OTHERS),
    ],
)
def test_names_and_axes_tell_what_a_tensor_is_for(
    name: str, shape: tuple[int, ...], expected: str
) -> None:
    entry = TensorEntry(name=name, dtype="BF16", shape=shape, begin=0, end=0)
    assert purpose(entry, {"packed"}) == expected


# Mixed widths


def six_bits() -> Example:
    """Return the dashq example with one of its modules in six bits."""
    example = dashq_example()
    name = "model.layers.1.mlp.up_proj"
    packed = encode_dashq(random_weight(96, 64), nbits=6, group_size=32)
    words = packed.words
    example.tensors[SHARDS[1]][f"{name}.W_q_packed"] = Tensor("I32", words.shape, words.tobytes())
    modules = example.documents["dashq_config.json"]["quantized_modules"]
    modules[name] = packed.module.model_dump(exclude_none=True)
    return example


def test_six_bits_among_four_are_seen(tmp_path: Path) -> None:
    write_files(tmp_path, render(six_bits()))
    assert worst(check_path(str(tmp_path)).findings) != "error"
    shown = run(tmp_path).stdout
    assert "4 bits in groups of 32: 13 modules, 90 % of the weights" in shown
    assert "6 bits in groups of 32: 1 module, 10 % of the weights" in shown
    assert shown.count("\nmlp.up_proj ") == 4  # two kinds, in each of two tables


def test_one_width_needs_no_words(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(DASHQ))
    assert "bits in groups" not in run(tmp_path).stdout


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.00001, "0.1 %"), (0.5, "50 %"), (0.9999, "99.9 %"), (1, "100 %")],
)
def test_shares_are_only_all_or_nothing_where_they_are(share: float, text: str) -> None:
    assert human_share(share) == text


# Text and JSON


def test_the_text_compares_sizes_and_lists_what_is_not_quantized(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(DASHQ))
    lines = run(tmp_path).stdout.splitlines()
    assert "zero points          3.84 kB            0.500  3.84 kB       14" in lines
    assert "Not quantized: 1 of 15 linear layers, 8,192 of 69,632 weights (11.8 %)" in lines
    assert "lm_head      1  128  64   BF16  16.4 kB" in lines


def test_a_difference_is_marked(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(DASHQ, "no-zero"))
    result = run(tmp_path)
    assert result.exit_code == 0
    assert "! 3.58 kB" in result.stdout
    assert "!: not what the manifest implies" in result.stdout
    assert (
        result.stderr == f"nibblespec: {tmp_path}: 1 error in its files: see nibblespec validate\n"
    )


def test_json_holds_what_the_files_do(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(BITNEST))
    document = json.loads(run(tmp_path, "--format", "json").stdout)
    assert document["stored"]["coverage"] == 983_040 / 999_424
    assert document["stored"]["unquantized"][0]["pattern"] == "lm_head"
    assert document["widths"] == [{"bits": 8, "group_size": 128, "layers": 14, "weights": 983_040}]


def test_a_manifest_without_files_is_shown_as_such(tmp_path: Path) -> None:
    files = example_files(DASHQ)
    write_files(tmp_path, {"dashq_config.json": files["dashq_config.json"]})
    result = run(tmp_path)
    assert result.exit_code == 0
    assert "on disk" not in result.stdout
    assert json.loads(run(tmp_path, "--format", "json").stdout)["stored"] is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_keeps_to_the_width(tmp_path: Path, width: int) -> None:
    example = six_bits()
    long = "model.layers.1.a_module_with_a_long_name.and_another_one.proj.weight"
    example.tensors[SHARDS[1]][long] = bfloat16(64, 64)
    write_files(tmp_path, render(example))
    report = check_path(str(tmp_path))
    assert report.manifest is not None
    found, stored = (
        inspect_manifest(report.manifest),
        inspect_files(report.manifest, report.headers),
    )
    shown = inspection_text("x", found, stored, width=width, colour=False)
    assert max(map(len, shown.splitlines())) <= width


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    example = dashq_example()
    example.tensors[SHARDS[1]]["\x1b[31m[red]evil\u202e.weight"] = bfloat16(64, 64)
    write_files(tmp_path, render(example))
    shown = run(tmp_path).stdout
    assert r"\x1b[31m[red]evil\u202e" in shown
    assert "\x1b" not in shown
