"""`nibblespec vectors`: what another program goes through, and what it is told."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from nibblespec.conformance.cli import app
from nibblespec.conformance.vectors.container import decode, encode
from nibblespec.conformance.vectors.golden_set import golden_cases
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.schemas import load_schema
from nibblespec.spec.operations import Array, DashqRounding
from typer.testing import CliRunner, Result

from tests.vector_program import write_outputs


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["vectors", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Export the vectors without what is expected."""
    target = tmp_path / "vectors"
    assert run("export", target, "--inputs-only").exit_code == 0
    return target


def edit_outputs(folder: Path, change: Callable[[dict[str, Array]], object]) -> None:
    """Change the tensors that a program wrote."""
    file = folder / "outputs.safetensors"
    tensors = decode(file.read_bytes())
    change(tensors)
    file.write_bytes(encode(tensors))


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the cases of the JSON report, by id, and check it against its schema."""
    report = json.loads(run("check", folder, "--format", "json").stdout)
    jsonschema.validate(report, load_schema("vectors-report"))
    return {case["id"]: case for case in report["cases"]}


# export


def test_export_writes_the_files_and_their_description(tmp_path: Path) -> None:
    result = run("export", tmp_path / "a")
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "README.md",
        "expected.safetensors",
        "index.json",
        "inputs.safetensors",
    ]
    assert "expected.safetensors" in result.stdout


def test_export_leaves_the_expected_outputs_out(folder: Path) -> None:
    assert not (folder / "expected.safetensors").exists()
    assert (folder / "inputs.safetensors").is_file()


def test_export_overwrites_nothing(folder: Path) -> None:
    result = run("export", folder)
    assert result.exit_code == 2
    assert "is there already" in result.stderr


# check: what is right


def test_a_program_that_answers_every_case_passes(folder: Path) -> None:
    write_outputs(folder)
    result = run("check", folder)
    assert result.exit_code == 0, result.stdout
    assert f"all {len(golden_cases())} cases that were written pass" in result.stdout


def test_outputs_may_be_in_a_file_for_each_operation(folder: Path) -> None:
    write_outputs(folder, operations=("hadamard",), name="outputs.hadamard.safetensors")
    write_outputs(folder, operations=("pack_words",), name="outputs.pack_words.safetensors")
    found = results(folder)
    passed = {case["operation"] for case in found.values() if case["result"] == "pass"}
    assert run("check", folder).exit_code == 0
    assert passed == {"hadamard", "pack_words"}


def test_cases_that_were_not_written_are_not_claimed(folder: Path) -> None:
    write_outputs(folder, operations=("kv_quantize",))
    for name, case in results(folder).items():
        claimed = name.startswith("kv_quantize/")
        assert case["result"] == ("pass" if claimed else "not-claimed")


@pytest.mark.parametrize("evaluation", ["fused", "stepwise", "bf16-params"])
def test_a_backend_answers_the_cases_of_its_own_evaluation(
    folder: Path, evaluation: DashqRounding
) -> None:
    write_outputs(folder, ReferenceBackend(dashq_rounding=evaluation), ("dashq_reconstruct",))
    found = {name for name, case in results(folder).items() if case["result"] == "pass"}
    assert found == {
        case.id
        for case in golden_cases()
        if case.operation == "dashq_reconstruct" and case.id.endswith(f"-{evaluation}")
    }


def test_a_nan_of_another_pattern_is_right(folder: Path) -> None:
    name = "dashq_reconstruct/int4-edges-f32-f16-stepwise/weight"
    write_outputs(folder, operations=("dashq_reconstruct",))

    def flip_nans(tensors: dict[str, Array]) -> None:
        flipped = tensors[name].copy()
        assert np.isnan(flipped).any()
        flipped[np.isnan(flipped)] = np.array(0xFE01, np.uint16).view(np.float16)
        tensors[name] = flipped

    edit_outputs(folder, flip_nans)
    assert run("check", folder).exit_code == 0


# check: what is wrong


def test_a_wrong_element_is_shown_with_requirement_place_and_bits(folder: Path) -> None:
    write_outputs(folder, operations=("dashq_reconstruct",))
    name = "dashq_reconstruct/int3-straddle-bf16-fused"

    def change(tensors: dict[str, Array]) -> None:
        changed = tensors[f"{name}/weight"].copy()
        changed[2, 3] = 7
        changed[4, 0] = 7
        tensors[f"{name}/weight"] = changed

    edit_outputs(folder, change)
    result = run("check", folder)
    assert result.exit_code == 1
    assert f"fail {name}" in result.stdout
    assert "requires  DQ1-PACKING-ROWS, " in result.stdout
    assert "weight: wrong values (2 of 105), first at [2, 3]: expected " in result.stdout
    assert "found 7.0 (0x40e0)" in result.stdout
    assert "1 of 261 cases fail" in result.stdout
    fault = results(folder)[name]["faults"][0]
    assert (fault["index"], fault["wrong"], fault["elements"]) == ([2, 3], 2, 105)


def test_minus_zero_is_wrong_where_every_bit_counts(folder: Path) -> None:
    write_outputs(folder, operations=("nested_reconstruct",))
    name = "nested_reconstruct/edges-draft-f32"

    def change(tensors: dict[str, Array]) -> None:
        tensors[f"{name}/weight"] = np.abs(tensors[f"{name}/weight"][:1]).repeat(9, 0)

    edit_outputs(folder, change)
    fault = results(folder)[name]["faults"][0]
    assert (fault["expected"], fault["found"]) == ("-0.0 (0x80000000)", "0.0 (0x00000000)")


def test_the_sign_of_zero_does_not_count_in_a_transform(folder: Path) -> None:
    write_outputs(folder, operations=("hadamard",))

    def negate_zeros(tensors: dict[str, Array]) -> None:
        for name, values in tensors.items():
            tensors[name] = np.where(values == 0, -np.abs(values), values).astype(values.dtype)

    edit_outputs(folder, negate_zeros)
    assert run("check", folder).exit_code == 0


def test_an_element_outside_its_interval_is_shown_with_both_ends(folder: Path) -> None:
    write_outputs(folder, operations=("kv_attention",))
    name = "kv_attention/d192-target-f32"

    def change(tensors: dict[str, Array]) -> None:
        tensors[f"{name}/y"] = tensors[f"{name}/y"] * np.float32(1.01)

    edit_outputs(folder, change)
    fault = results(folder)[name]["faults"][0]
    assert " … " in fault["expected"]
    assert fault["index"] == [0, 0, 0, 0]


def test_a_nan_is_in_no_interval(folder: Path) -> None:
    write_outputs(folder, operations=("kv_attention",))
    name = "kv_attention/d64-target-f16"

    def change(tensors: dict[str, Array]) -> None:
        tensors[f"{name}/y"] = np.full_like(tensors[f"{name}/y"], np.nan)

    edit_outputs(folder, change)
    assert results(folder)[name]["faults"][0]["wrong"] == 512


@pytest.mark.parametrize(
    "change",
    [
        lambda codes: codes.astype(np.int8),
        lambda codes: codes[:-1],
        lambda codes: codes[np.newaxis],
    ],
)
def test_another_dtype_or_shape_breaks_the_form(
    folder: Path, change: Callable[[Array], Array]
) -> None:
    write_outputs(folder, operations=("unpack_words",))
    name = "unpack_words/int3-any"

    def edit(tensors: dict[str, Array]) -> None:
        tensors[f"{name}/codes"] = change(tensors[f"{name}/codes"])

    edit_outputs(folder, edit)
    case = results(folder)[name]
    assert (case["result"], case["requirements"]) == ("fail", ["NUM-OUTPUT-FORM"])
    assert case["faults"][0]["expected"] == "U8 [61]"


def test_a_case_of_which_one_output_is_missing_fails(folder: Path) -> None:
    write_outputs(folder, operations=("kv_quantize",))
    edit_outputs(folder, lambda tensors: tensors.pop("kv_quantize/d64-f16/lo"))
    case = results(folder)["kv_quantize/d64-f16"]
    assert case["result"] == "fail"
    assert case["faults"][0]["message"] == "missing, though another output of the case is there"


def test_a_tensor_that_is_no_output_fails(folder: Path) -> None:
    write_outputs(folder, operations=("pack_words",))
    name = "pack_words/int3-positions"

    def rename(tensors: dict[str, Array]) -> None:
        tensors[f"{name}/word"] = tensors.pop(f"{name}/words")

    edit_outputs(folder, rename)
    result = run("check", folder)
    assert result.exit_code == 1
    assert f"fail {name}/word: expected the name of an output" in result.stdout


def test_many_failures_are_cut(folder: Path) -> None:
    write_outputs(folder, operations=("pack_words",))

    def invert(tensors: dict[str, Array]) -> None:
        for name, words in tensors.items():
            tensors[name] = ~words

    edit_outputs(folder, invert)
    result = run("check", folder)
    assert "… and 12 more failing cases: see --format json" in result.stdout


# check: what cannot be run


def write(folder: Path, data: bytes) -> None:
    (folder / "outputs.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, "found neither"),
        (lambda folder: write(folder, b""), "too short"),
        (lambda folder: write(folder, b"\xff" * 64), "ST-HEADER-LIMIT"),
        (lambda folder: write(folder, b"\x02" + b"\x00" * 7 + b"{}"), "hold no tensor"),
        (lambda folder: write(folder, encode({"a": np.zeros(4, np.uint8)})[:-1]), "cut off"),
        (lambda folder: os.mkfifo(folder / "outputs.safetensors"), "a pipe"),
        (lambda folder: (folder / "outputs.safetensors").mkdir(), "a folder"),
        (
            lambda folder: (folder / "outputs.packing.safetensors").touch(),
            "expected outputs.safetensors or outputs.<operation>.safetensors",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(
    folder: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(folder)
    result = run("check", folder)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_folder_that_is_not_there_cannot_be_checked(tmp_path: Path) -> None:
    result = run("check", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_a_tensor_in_two_files_is_refused(folder: Path) -> None:
    write_outputs(folder, operations=("pack_words",))
    write_outputs(folder, operations=("pack_words",), name="outputs.pack_words.safetensors")
    result = run("check", folder)
    assert result.exit_code == 2
    assert "write it once" in result.stderr


def test_vectors_of_another_version_are_refused(folder: Path) -> None:
    write_outputs(folder, operations=("pack_words",))
    index = folder / "index.json"
    index.write_bytes(index.read_bytes().replace(b"pack_words", b"pack_sword", 1))
    result = run("check", folder)
    assert result.exit_code == 2
    assert "found another: run nibblespec vectors export" in result.stderr


def test_outputs_alone_can_be_checked(folder: Path) -> None:
    write_outputs(folder, operations=("pack_words",))
    for name in ("index.json", "inputs.safetensors", "README.md"):
        (folder / name).unlink()
    assert run("check", folder).exit_code == 0
