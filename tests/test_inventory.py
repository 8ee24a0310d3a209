"""Tensors that a manifest implies against those that are there: places, hints, and silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nibblespec.conformance import Finding, validate
from nibblespec.conformance.examples.files import Example, Tensor, json_bytes, render
from nibblespec.conformance.examples.models import (
    BITNEST,
    DASHQ,
    SHARDS,
    bitnest_example,
    dashq_example,
)
from nibblespec.conformance.examples.write import example_files, write_files

MODULE = "model.layers.1.self_attn.q_proj"

Change = Callable[[Example], object]


@pytest.fixture
def findings(tmp_path: Path) -> Callable[[Change], list[Finding]]:
    """Validate the dashq example after a change."""

    def check(change: Change) -> list[Finding]:
        example = dashq_example()
        change(example)
        write_files(tmp_path, render(example))
        return validate(tmp_path)

    return check


@pytest.fixture
def package_findings(tmp_path: Path) -> Callable[[Change], list[Finding]]:
    """Validate the bitnest example after a change."""

    def check(change: Change) -> list[Finding]:
        example = bitnest_example()
        change(example)
        write_files(tmp_path, render(example))
        return validate(tmp_path)

    return check


def modules(example: Example) -> dict[str, Any]:
    found: dict[str, Any] = example.documents["dashq_config.json"]["quantized_modules"]
    return found


def second(example: Example) -> dict[str, Tensor]:
    return example.tensors[SHARDS[1]]


def test_a_missing_tensor_is_located_in_the_manifest(
    findings: Callable[[Change], list[Finding]],
) -> None:
    [found] = findings(lambda example: second(example).pop(f"{MODULE}.scale"))
    assert (found.file, found.tensor) == ("dashq_config.json", f"{MODULE}.scale")
    assert found.pointer == f"/quantized_modules/{MODULE}"
    assert found.expected == "F16 [128, 1]"


def test_a_wrong_shape_is_located_in_the_shard(
    findings: Callable[[Change], list[Finding]],
) -> None:
    """4 bits by 32 and 2 bits by 64 have alike sizes: the manifest decides."""

    def change(example: Example) -> None:
        modules(example)[MODULE].update(
            nbits=2, packing="int2_packed_u32", group_size=64, num_groups=64
        )

    shapes = [found for found in findings(change) if found.requirement.endswith("-SHAPE")]
    assert [(found.tensor, found.expected, found.found) for found in shapes] == [
        (f"{MODULE}.W_q_packed", "[256]", "[512]"),
        (f"{MODULE}.scale", "[64, 1]", "[128, 1]"),
        (f"{MODULE}.zero", "[64, 1]", "[128, 1]"),
    ]
    assert {found.file for found in shapes} == {SHARDS[1]}


def test_another_beginning_of_the_names_is_recognized(
    findings: Callable[[Change], list[Finding]],
) -> None:
    def change(example: Example) -> None:
        name = MODULE.replace("model.", "model.language_model.", 1)
        modules(example)[name] = modules(example).pop(MODULE)

    missing = [found for found in findings(change) if found.requirement == "DQ1-TENSOR-PRESENT"]
    assert len(missing) == 3
    assert f"the files have {MODULE}.W_q_packed" in missing[0].hint


def test_a_tensor_below_a_module_is_an_extra_one(
    findings: Callable[[Change], list[Finding]],
) -> None:
    extra = {f"{MODULE}.lora.a": Tensor("F32", (1,), bytes(4))}
    [found] = findings(lambda example: second(example).update(extra))
    assert found.requirement == "DQ1-TENSOR-EXTRA"


def test_a_module_with_a_longer_name_is_not_below_another(
    findings: Callable[[Change], list[Finding]],
) -> None:
    near = {f"{MODULE}_norm.weight": Tensor("F32", (1,), bytes(4))}
    assert findings(lambda example: second(example).update(near)) == []


def test_a_name_of_many_segments_belongs_to_no_module(
    findings: Callable[[Change], list[Finding]],
) -> None:
    many = {"a." * 1000 + "qweight": Tensor("F32", (1,), bytes(4))}
    [found] = findings(lambda example: second(example).update(many))
    assert found.requirement == "DQ1-TENSOR-FOREIGN"


def test_an_unknown_dtype_is_reported_once_and_by_the_manifest(
    findings: Callable[[Change], list[Finding]],
) -> None:
    found = findings(lambda example: modules(example)[MODULE].update(scale_zero_dtype="float12"))
    assert {each.requirement for each in found if each.severity == "error"} == {
        "DQ1-MODULE-SCALE-DTYPE"
    }


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bfloat16", "BF16"), ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2")],
)
def test_scales_have_the_dtype_that_their_module_says(
    findings: Callable[[Change], list[Finding]], name: str, dtype: str
) -> None:
    def change(example: Example) -> None:
        modules(example)[MODULE].update(scale_zero_dtype=name)

    wrong = [found for found in findings(change) if found.requirement == "DQ1-TENSOR-SCALE-DTYPE"]
    assert [(found.expected, found.found) for found in wrong] == [(dtype, "F16")] * 2


def test_the_index_decides_which_of_two_tensors_counts(
    findings: Callable[[Change], list[Finding]],
) -> None:
    def change(example: Example) -> None:
        example.tensors[SHARDS[0]][f"{MODULE}.scale"] = Tensor("F32", (1,), bytes(4))

    assert {found.requirement for found in findings(change)} == {"ST-TENSOR-UNIQUE"}


def test_one_unreadable_file_without_an_index_hides_what_it_may_hold(tmp_path: Path) -> None:
    files = example_files(DASHQ)
    del files["model.safetensors.index.json"]
    write_files(tmp_path, {**files, SHARDS[1]: b""})
    assert {found.requirement for found in validate(tmp_path)} == {
        "ST-FILE-PREFIX",
        "ST-INDEX-REQUIRED",
    }


def test_no_tensor_file_at_all_is_one_fault(tmp_path: Path) -> None:
    files = example_files(DASHQ)
    for name in (*SHARDS, "model.safetensors.index.json"):
        del files[name]
    write_files(tmp_path, files)
    assert [found.requirement for found in validate(tmp_path)] == ["ST-INDEX-REQUIRED"]


def test_a_broken_manifest_leaves_the_files_to_be_judged(tmp_path: Path) -> None:
    files = example_files(DASHQ, "truncated")
    write_files(tmp_path, {**files, "dashq_config.json": json_bytes({"format": DASHQ})})
    found = {each.requirement for each in validate(tmp_path)}
    assert "ST-DATA-END" in found
    assert not any(each.startswith("DQ1-TENSOR") for each in found)


def test_a_manifest_of_no_known_format_leaves_the_files_to_be_judged(tmp_path: Path) -> None:
    files = example_files(DASHQ, "truncated")
    write_files(tmp_path, {**files, "dashq_config.json": json_bytes({"format": "gguf"})})
    found = {each.requirement for each in validate(tmp_path)}
    assert found == {"JSON-MANIFEST-FORMAT", "ST-DATA-END"}


def test_the_manifest_alone_is_the_level_of_a_file(tmp_path: Path) -> None:
    write_files(tmp_path, example_files(DASHQ, "truncated"))
    assert validate(tmp_path / "dashq_config.json") == []
    assert validate(tmp_path, "manifest") == []
    assert len(validate(tmp_path / "dashq_config.json", "headers")) == 1


def test_a_plane_in_the_other_file_says_so(
    package_findings: Callable[[Change], list[Finding]],
) -> None:
    def change(example: Example) -> None:
        plane = example.tensors["planes.safetensors"].pop(f"{MODULE}.hi")
        example.tensors["aux.safetensors"][f"{MODULE}.hi"] = plane

    missing = package_findings(change)[0]
    assert (missing.requirement, missing.found) == (
        "BN1-PLANES-PRESENT",
        "the tensor in aux.safetensors",
    )


def test_without_config_the_vocabulary_is_any_size(
    package_findings: Callable[[Change], list[Finding]],
) -> None:
    found = package_findings(lambda example: example.documents.pop("config.json"))
    assert [each.requirement for each in found] == ["BN1-CONFIG-PRESENT"]


@pytest.mark.parametrize("file", ["planes.safetensors", "aux.safetensors"])
def test_an_unreadable_file_of_a_package_is_one_fault(tmp_path: Path, file: str) -> None:
    write_files(tmp_path, {**example_files(BITNEST), file: bytes(8)})
    assert [found.requirement for found in validate(tmp_path)] == ["ST-HEADER-START"]


@pytest.mark.parametrize("order", [1, 12])
def test_a_matrix_is_asked_for_beyond_the_order_1(
    package_findings: Callable[[Change], list[Finding]], order: int
) -> None:
    def change(example: Example) -> None:
        del example.tensors["aux.safetensors"]["had_K.12"]
        for layer in example.documents["meta.json"]["online_hadamard"]["layers"].values():
            layer["K"] = order

    missing = [
        found for found in package_findings(change) if found.requirement == "BN1-AUX-HADAMARD"
    ]
    assert len(missing) == (order > 1)
