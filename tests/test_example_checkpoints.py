"""The examples: valid ones are, each fault breaks its requirements alone, and near ones none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nibblespec.conformance import validate
from nibblespec.conformance.cli import app
from nibblespec.conformance.examples.files import (
    INDEX,
    Example,
    Files,
    Tensor,
    index_of,
    json_bytes,
    render,
)
from nibblespec.conformance.examples.models import (
    BITNEST,
    DASHQ,
    SHARDS,
    bitnest_example,
    dashq_example,
    nest,
    random_weight,
)
from nibblespec.conformance.examples.write import (
    FAULTS,
    example_files,
    write_example,
    write_files,
)
from nibblespec.spec.requirements import requirements
from safetensors.numpy import load_file
from typer.testing import CliRunner

CASES = [(family, name) for family, faults in FAULTS.items() for name in faults]

UNWRITTEN = {"ST-FILE-LINK", "ST-TENSOR-COUNT"}
"""Requirements that no example breaks: a link needs a file outside, the limit a million tensors."""


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_a_valid_example_has_no_finding_at_all(tmp_path: Path, family: str) -> None:
    write_example(tmp_path / "example", family)
    assert validate(tmp_path / "example", "tensors") == []


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_fault_breaks_its_requirements_and_no_other(
    tmp_path: Path, family: str, name: str
) -> None:
    write_example(tmp_path / "example", family, name)
    findings = validate(tmp_path / "example", "tensors")
    assert {found.requirement for found in findings} == set(FAULTS[family][name].requirements)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_fault_of_contents_alone_does_not_show_in_headers(
    tmp_path: Path, family: str, name: str
) -> None:
    write_example(tmp_path / "example", family, name)
    shown = {found.requirement for found in validate(tmp_path / "example")}
    broken = FAULTS[family][name].requirements
    assert shown == {id_ for id_ in broken if requirements()[id_].checked_by != "tensors"}


def test_every_requirement_on_files_has_a_fault_that_breaks_it() -> None:
    levels = ("headers", "tensors")
    stated = {found.id for found in requirements().values() if found.checked_by in levels}
    broken = {id_ for family, name in CASES for id_ in FAULTS[family][name].requirements}
    assert stated - broken == UNWRITTEN


# Near each fault, a checkpoint without one


def dashq(change: Callable[[Example], object]) -> Files:
    """Return the files of the dashq example after a change."""
    example = dashq_example()
    change(example)
    return render(example)


def bitnest(change: Callable[[Example], object]) -> Files:
    """Return the files of the bitnest example after a change."""
    example = bitnest_example()
    change(example)
    return render(example)


def config(example: Example) -> dict[str, Any]:
    return example.documents["config.json"]


def second(example: Example) -> dict[str, Tensor]:
    return example.tensors[SHARDS[1]]


def single_file() -> Files:
    """Return the dashq example in one file, without an index."""
    example = dashq_example()
    example.tensors = {"model.safetensors": {**example.tensors[SHARDS[0]], **second(example)}}
    return render(example)


def indexed_single_file() -> Files:
    example = dashq_example()
    example.tensors = {"model.safetensors": {**example.tensors[SHARDS[0]], **second(example)}}
    return {**render(example), INDEX: json_bytes(index_of(example.tensors))}


def one_shard_of_one() -> Files:
    example = dashq_example()
    shard = "model-00001-of-00001.safetensors"
    example.tensors = {shard: {**example.tensors[SHARDS[0]], **second(example)}}
    return render(example)


def with_index(change: Callable[[dict[str, Any]], object]) -> Files:
    files = example_files(DASHQ)
    raw = files[INDEX]
    assert isinstance(raw, bytes)
    index = json.loads(raw)
    change(index)
    return {**files, INDEX: json_bytes(index)}


def nested_text_config(example: Example) -> None:
    outer = config(example)
    text = {key: outer.pop(key) for key in list(outer) if key not in ("dashq", "model_type")}
    outer["text_config"] = {**text, "model_type": "qwen2"}
    outer["tie_word_embeddings"] = False
    example.documents["dashq_config.json"]["model_class"] = "image_text_to_text"
    outer["vision_config"] = {}


def multimodal_names(example: Example) -> None:
    """Name everything as a multimodal model does, with a vision tower of three layers."""

    def renamed(name: str) -> str:
        return name.replace("model.", "model.language_model.", 1)

    manifest = example.documents["dashq_config.json"]
    modules = manifest["quantized_modules"]
    manifest["quantized_modules"] = {renamed(name): module for name, module in modules.items()}
    manifest["model_class"] = "image_text_to_text"
    for file, tensors in example.tensors.items():
        example.tensors[file] = {renamed(name): item for name, item in tensors.items()}
    for layer in range(3):
        tower = f"model.visual.encoder.layers.{layer}.fc.weight"
        second(example)[tower] = Tensor("F32", (2, 2), bytes(16))
    config(example)["vision_config"] = {"hidden_size": 2}


def prediction_layer(example: Example) -> None:
    config(example)["num_nextn_predict_layers"] = 1
    second(example)["model.layers.2.eh_proj.weight"] = Tensor("BF16", (2, 2), bytes(8))


def tied(example: Example) -> None:
    config(example)["tie_word_embeddings"] = True
    del second(example)["lm_head.weight"]


def without_tie(example: Example) -> None:
    del config(example)["tie_word_embeddings"]
    del second(example)["lm_head.weight"]


def without_optional_keys(example: Example) -> None:
    for key in ("head_dim", "rope_theta", "dashq"):
        config(example).pop(key, None)


def biasless(example: Example) -> None:
    for tensors in example.tensors.values():
        for name in [name for name in tensors if name.endswith(".bias")]:
            del tensors[name]


def stored_norms(example: Example) -> None:
    for layer in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            item = Tensor("BF16", (256,), b"\x80\x3f" * 256)
            example.tensors["aux.safetensors"][f"layers.{layer}.{norm}"] = item


def nested_head(example: Example) -> None:
    planes = example.tensors["planes.safetensors"]
    head = nest(planes, "lm_head", random_weight(64, 256), bias=False)
    example.documents["meta.json"]["layers"]["lm_head"] = head
    del example.tensors["aux.safetensors"]["lm_head"]


def rope_parameters(example: Example) -> None:
    config(example)["rope_parameters"] = {"rope_theta": config(example).pop("rope_theta")}


HARMLESS: dict[str, Callable[[], Files]] = {
    "one file and no index": single_file,
    "one file that the index names": indexed_single_file,
    "one shard of one": one_shard_of_one,
    "shards with names of their own": lambda: dashq(
        lambda example: setattr(
            example,
            "tensors",
            {f"part-of-{i}.safetensors": item for i, item in enumerate(example.tensors.values())},
        )
    ),
    "an index without metadata": lambda: with_index(lambda index: index.pop("metadata")),
    "a total_size that is written as a float": lambda: with_index(
        lambda index: index["metadata"].update(total_size=72320.0)
    ),
    "more metadata in the index": lambda: with_index(
        lambda index: index["metadata"].update(total_parameters=1)
    ),
    "no biases in a format where they are optional": lambda: dashq(biasless),
    "an unquantized module more": lambda: dashq(
        lambda example: second(example).update(
            {"model.layers.1.mlp.gate.weight": Tensor("F32", (2, 2), bytes(16))}
        )
    ),
    "an empty tensor": lambda: dashq(
        lambda example: second(example).update({"model.empty": Tensor("F32", (0, 4), b"")})
    ),
    "a scalar": lambda: dashq(
        lambda example: second(example).update({"model.scalar": Tensor("F32", (), bytes(4))})
    ),
    "a nested text configuration": lambda: dashq(nested_text_config),
    "a multimodal model with a vision tower": lambda: dashq(multimodal_names),
    "a layer for multi-token prediction": lambda: dashq(prediction_layer),
    "tied embeddings without an output layer": lambda: dashq(tied),
    "no word on ties": lambda: dashq(without_tie),
    "a config.json without optional keys": lambda: dashq(without_optional_keys),
    "a quantization_config of this format": lambda: dashq(
        lambda example: config(example).update(quantization_config={"quant_method": "dashq"})
    ),
    "a quantization_config that is null": lambda: dashq(
        lambda example: config(example).update(quantization_config=None)
    ),
    "a width for each layer": lambda: dashq(
        lambda example: config(example).update(intermediate_size=[96, 96])
    ),
    "a number of layers that is written as 2.0, and sizes that are null": lambda: dashq(
        lambda example: config(example).update(num_hidden_layers=2.0, head_dim=None)
    ),
    "other heads than the text names": lambda: dashq(
        lambda example: config(example).update(kv_lora_rank=8, num_attention_heads=7)
    ),
    "other JSON and text files": lambda: {
        **example_files(DASHQ),
        "tokenizer.json": b"{}",
        "README.md": b"# model\n",
        "model.safetensors.sha256": b"",
    },
    "decoder norms that are stored, all of them": lambda: bitnest(stored_norms),
    "a nested output layer": lambda: bitnest(nested_head),
    "a RoPE base where newer libraries keep it": lambda: bitnest(rope_parameters),
    "no RoPE base": lambda: bitnest(lambda example: config(example).pop("rope_theta")),
    "no head_dim": lambda: bitnest(lambda example: config(example).pop("head_dim")),
    "no copy of RoPE": lambda: bitnest(
        lambda example: example.documents["meta.json"]["rope"].update(theta=None)
    ),
    "per-token scales for o_proj": lambda: bitnest(
        lambda example: example.documents["meta.json"]["activation"].update(per_layer_group={})
    ),
}


@pytest.mark.parametrize("files", HARMLESS.values(), ids=HARMLESS)
def test_what_is_near_a_fault_is_none(tmp_path: Path, files: Callable[[], Files]) -> None:
    write_files(tmp_path, files())
    assert validate(tmp_path, "tensors") == []


# Links


def as_snapshot(folder: Path, store: Path) -> Path:
    """Lay the dashq example out as links into `store`, under folder/snapshots/REVISION."""
    snapshot = folder / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    store.mkdir()
    for number, (name, data) in enumerate(example_files(DASHQ).items()):
        assert isinstance(data, bytes)
        (store / str(number)).write_bytes(data)
        (snapshot / name).symlink_to(store / str(number))
    return snapshot


def test_the_cache_of_hugging_face_is_valid(tmp_path: Path) -> None:
    snapshot = as_snapshot(tmp_path / "models--a--b", tmp_path / "models--a--b" / "blobs")
    assert validate(snapshot) == []


def test_a_snapshot_that_is_itself_linked_to_is_valid(tmp_path: Path) -> None:
    snapshot = as_snapshot(tmp_path / "models--a--b", tmp_path / "models--a--b" / "blobs")
    (tmp_path / "link").symlink_to(snapshot)
    assert validate(tmp_path / "link") == []


def test_links_to_another_repository_of_the_cache_are_reported(tmp_path: Path) -> None:
    snapshot = as_snapshot(tmp_path / "models--a--b", tmp_path / "blobs")
    findings = validate(snapshot)
    assert {found.requirement for found in findings} == {"ST-FILE-LINK"}
    assert len(findings) == 5  # two shards, index, manifest and config.json


def test_a_link_inside_the_folder_is_none_of_them(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(DASHQ))
    (tmp_path / SHARDS[0]).rename(tmp_path / "weights")
    (tmp_path / SHARDS[0]).symlink_to("weights")
    assert validate(tmp_path) == []


# Writing


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_examples_are_the_same_bytes_every_time(family: str) -> None:
    assert example_files(family) == example_files(family)


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_the_library_reads_an_example(tmp_path: Path, family: str) -> None:
    write_example(tmp_path / "example", family)
    files = sorted((tmp_path / "example").glob("*.safetensors"))
    assert len(files) == 2
    for file in files:
        assert load_file(file)


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="no empty folder"):
        write_example(tmp_path, DASHQ)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "example").mkdir()
    write_example(tmp_path / "example", DASHQ)
    assert validate(tmp_path / "example") == []


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_example(tmp_path / "example", DASHQ)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_fault_names_similar_ones() -> None:
    with pytest.raises(ValueError, match="no-head"):
        example_files(DASHQ, "no-heat")


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="dashq-packed-linear or bitnest-package-v1"):
        example_files("gguf")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["example", *arguments])
    return result.exit_code, result.output


def test_the_command_writes_an_example(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    assert run(str(folder), "--format", BITNEST, "--fault", "no-bias")[0] == 0
    assert {found.requirement for found in validate(folder)} == {"BN1-PLANES-BIAS"}


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_the_command_lists_the_faults_of_a_format(family: str) -> None:
    status, text = run("--format", family, "--list-faults")
    assert status == 0
    assert [line.split()[0] for line in text.splitlines()] == list(FAULTS[family])


@pytest.mark.parametrize(
    "arguments", [(), ("DIR", "--fault", "none such"), ("DIR", "--format", "x")]
)
def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = str(tmp_path / "example")
    given = [folder if argument == "DIR" else argument for argument in arguments]
    assert run(*given)[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_the_command_leaves_a_folder_with_anything_in_it_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert run(str(tmp_path))[0] == 2
