"""The golden vectors: what they cover, how they are described, that they are right."""

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from nibblespec.conformance.suite.compare import bits
from nibblespec.conformance.vectors import generate
from nibblespec.conformance.vectors.container import decode, dtype_name
from nibblespec.conformance.vectors.streams import raw
from nibblespec.reference.bounds import Bounded, interval
from nibblespec.reference.bounds_attention import kv_attention_bounded
from nibblespec.reference.planes import unpack_nibbles
from nibblespec.schemas import load_schema
from nibblespec.spec.operations import OPERATIONS, Array
from nibblespec.spec.requirements import requirements
from safetensors import deserialize

from tests import independent_vectors
from tests.independent_numbers import FLOATS, Tensor, float_of, read
from tests.vector_program import ORDER, answer, reference_for

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "conformance" / "vectors" / "golden"
INDEX: dict[str, Any] = json.loads((GOLDEN / "index.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in INDEX["cases"]}

NO_CALL_SHOWS = {
    "NUM-INPUT-UNCHANGED",
    "NUM-OUTPUT-FRESH",
    "NUM-EVALUATION-ONE",
    "NUM-INVARIANT-ROWS",
    "NUM-INVARIANT-ROWS-DASHQ",
    "NUM-INVARIANT-PERMUTATION",
    "NUM-INVARIANT-SCALE",
    "NUM-INVARIANT-SCALE-LINEAR",
    "NUM-INVARIANT-DRAFT",
    "NUM-INVARIANT-PADDING",
    "NUM-INVARIANT-REPEAT",
    "NUM-MODEL-OPERATIONS",
    "NUM-MODEL-STATES",
    "NUM-MODEL-TOKENS",
    "BN1-SPECULATE-TOKENS",
    "BN1-SPECULATE-CACHE",
}
"""Requirements on several calls, or on what a call does to its inputs: the suite tests them."""


@cache
def inputs() -> Mapping[str, Array]:
    return decode((GOLDEN / INDEX["inputs"]).read_bytes())


@cache
def expected() -> Mapping[str, Array]:
    return decode((GOLDEN / INDEX["expected"]).read_bytes())


def of(operation: str) -> list[dict[str, Any]]:
    return [case for case in CASES.values() if case["operation"] == operation]


# The files


def test_the_generator_gives_the_committed_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_the_generator_reports_a_byte_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("index.json", "inputs.safetensors", "expected.safetensors"):
        (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    file = tmp_path / "expected.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x55")
    assert generate.main(["--check"], tmp_path) == 1
    assert "expected.safetensors differs" in capsys.readouterr().out
    assert file.read_bytes().endswith(b"\x55")
    assert generate.main([], tmp_path) == 0
    assert file.read_bytes() == (GOLDEN / file.name).read_bytes()


def test_two_cases_with_one_id_are_refused() -> None:
    case = generate.all_cases()[0]
    with pytest.raises(ValueError, match="two cases have this id"):
        generate.files_of([case, case])


def test_streams_are_those_of_the_description() -> None:
    # SplitMix64 from the state 0 is the sequence that its authors publish; this is one at the key
    # of a name, worked out with integers.
    key = int.from_bytes(bytes.fromhex("2cf24dba5fb0a30e"), "little")  # SHA-256 of "hello"
    state = (key + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    assert int(raw("hello", 3)[0]) == state ^ state >> 31


def test_the_set_is_small() -> None:
    assert sum(file.stat().st_size for file in GOLDEN.iterdir()) < 2_100_000


def test_the_safetensors_library_reads_the_files() -> None:
    for name, tensors in (("inputs", inputs()), ("expected", expected())):
        file = (GOLDEN / f"{name}.safetensors").read_bytes()
        found = dict(deserialize(file))
        assert found.keys() == tensors.keys()
        for tensor, array in tensors.items():
            assert found[tensor]["dtype"] == dtype_name(array)
            assert found[tensor]["shape"] == list(array.shape)
            assert found[tensor]["data"] == array.tobytes()


# The index


def test_the_index_is_valid_by_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("vectors-index"))
    jsonschema.validate(INDEX, load_schema("vectors-index"))


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "matmul"},
        {"class": "approximate"},
        {"requirements": []},
        {"parameters": {"nbits": 9}},
        {"parameters": {"bits": 4}},
        {"outputs": {"words": {"tensor": "a", "dtype": "I32", "shape": [1]}}},
        {"outputs": {"words": {"tensor": "a", "dtype": "I32", "shape": [1], "low": "a"}}},
        {"outputs": {"words": {"tensor": "a", "dtype": "int32", "shape": [1], "bits": "a"}}},
        {"outputs": {}},
        {"inputs": {"codes": {"tensor": "a", "dtype": "U8", "shape": [-1]}}},
    ],
)
def test_the_schema_refuses_a_wrong_case(change: dict[str, Any]) -> None:
    case = CASES["pack_words/int3-positions"] | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(INDEX | {"cases": [case]}, load_schema("vectors-index"))


def test_ids_name_the_operation_and_are_in_its_order() -> None:
    assert len(CASES) == len(INDEX["cases"])
    assert all(name.startswith(f"{case['operation']}/") for name, case in CASES.items())
    order = [OPERATIONS.index(case["operation"]) for case in CASES.values()]
    assert order == sorted(order)


def test_the_files_hold_the_tensors_of_the_index_and_no_others() -> None:
    for part, tensors, keys in (
        ("inputs", inputs(), ("tensor",)),
        ("outputs", expected(), ("bits", "low", "high")),
    ):
        named: set[str] = set()
        for case in CASES.values():
            for entry in filter(None, case[part].values()):
                for name in (entry[key] for key in keys if key in entry):
                    named.add(name)
                    array = tensors[name]
                    assert [dtype_name(array), list(array.shape)] == [
                        entry["dtype"],
                        entry["shape"],
                    ]
        assert named == tensors.keys()


def test_arguments_are_those_of_the_operations() -> None:
    for case in CASES.values():
        given = {*case["inputs"], *case["parameters"]}
        assert given - {"evaluation", "weight_rounding", "mode"} == set(ORDER[case["operation"]])


def test_every_requirement_on_one_call_is_that_of_a_case() -> None:
    shown = {name for case in CASES.values() for name in case["requirements"]}
    checked = {
        name
        for name, requirement in requirements().items()
        if requirement.checked_by == "backend" and requirement.level == "MUST"
    }
    # Every output has a form, and every failure of form names it.
    assert shown <= checked
    assert checked - shown == NO_CALL_SHOWS | {"NUM-OUTPUT-FORM"}


# What is covered


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_cases(operation: str) -> None:
    assert len(of(operation)) >= 3


def test_every_bit_width_is_packed_reconstructed_and_multiplied() -> None:
    for operation in ("pack_words", "unpack_words"):
        assert {case["parameters"]["nbits"] for case in of(operation)} == set(range(1, 9))
    for operation in ("dashq_reconstruct", "dashq_linear"):
        widths = {case["parameters"]["module"]["nbits"] for case in of(operation)}
        assert widths == set(range(1, 9))


def test_reconstruction_has_every_evaluation_with_every_pair_of_dtypes() -> None:
    found = {
        (
            case["parameters"]["evaluation"],
            case["parameters"]["dtype"],
            case["parameters"]["module"]["scale_zero_dtype"],
        )
        for case in of("dashq_reconstruct")
    }
    assert len(found) == 3 * 3 * 5


def test_edge_values_are_in_the_expected_weights() -> None:
    weights = np.concatenate(
        [
            expected()[output["bits"]].astype(np.float64).reshape(-1)
            for case in of("dashq_reconstruct")
            for output in case["outputs"].values()
        ]
    )
    assert np.isnan(weights).any()
    assert {np.inf, -np.inf} <= set(weights)
    assert (np.signbit(weights) & (weights == 0)).any()
    assert (np.abs(weights) == 2.0**-24).any()


def test_caches_have_every_width_with_and_without_an_offset() -> None:
    found = {
        (case["inputs"]["x"]["shape"][-1], case["inputs"]["offset"] is None)
        for case in of("kv_quantize")
    }
    assert found >= {
        (width, alone) for width in (64, 80, 96, 128, 192, 256) for alone in (True, False)
    }
    assert {case["inputs"]["q"]["shape"][-1] for case in of("kv_attention")} >= {
        width for width, _ in found if width >= 64
    }


def test_a_hadamard_matrix_is_not_symmetric() -> None:
    entries = [case["inputs"]["had_k"] for case in of("hadamard") if case["inputs"]["had_k"]]
    matrices = [inputs()[entry["tensor"]] for entry in entries]
    skew = [matrix for matrix in matrices if not np.array_equal(matrix, matrix.T)]
    assert {len(matrix) for matrix in matrices} >= {12, 20, 28, 36, 40, 52, 148, 156, 172}
    assert {2, 4, 9, 28} & {len(matrix) for matrix in skew} == {2, 4, 9}


def test_a_residual_depends_on_whether_the_remainder_is_fused() -> None:
    name = "kv_quantize/fused-remainder-bf16"
    x = inputs()[f"{name}/x"][0].astype(np.float64)
    hi, lo = (unpack_nibbles(expected()[f"{name}/{plane}"][0]) for plane in ("hi", "lo"))
    scale = expected()[f"{name}/scale"][0][:, np.newaxis]
    # Exact in float64, so that its rounding to float32 is that of a fused multiply-add.
    remainder = (x - hi * scale.astype(np.float64)).astype(np.float32)
    fused = np.clip(np.rint(remainder / (scale / np.float32(16))), -8, 7)
    assert len(x) == 8
    assert (fused != lo).any(axis=1).all()


def test_intervals_are_narrow() -> None:
    """An interval that admits anything would pass anything."""
    for case in CASES.values():
        for output in case["outputs"].values():
            if "low" in output:
                low = expected()[output["low"]].astype(np.float64)
                high = expected()[output["high"]].astype(np.float64)
                size = max(np.abs(low[np.isfinite(low)]).max(initial=0), 2.0**-24)
                infinite = np.isinf(low) & (low == high)
                with np.errstate(invalid="ignore"):
                    assert (infinite | (high - low <= 0.02 * size)).all(), case["id"]


# That they are right


def test_a_second_reader_without_any_library_agrees_with_every_case() -> None:
    """`-S` leaves no package but the standard library to import, `-E` no path to one."""
    run = subprocess.run(
        [sys.executable, "-E", "-S", "-m", "tests.independent_vectors", str(GOLDEN)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout == f"{len(CASES)} cases, 0 wrong\n"
    assert run.returncode == 0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_second_reader_sees_one_wrong_bit(operation: str) -> None:
    case = next(case for case in of(operation) if "empty" not in case["id"])
    given, right = read(GOLDEN / INDEX["inputs"]), read(GOLDEN / INDEX["expected"])
    output = next(iter(case["outputs"].values()))
    for key in {"bits", "low", "high"} & output.keys():
        tensor = right[output[key]]
        pattern = [tensor.bits[0] ^ 1, *tensor.bits[1:]]
        floating = tensor.dtype in FLOATS
        number = float_of(pattern[0], tensor.dtype) if floating else tensor.values[0] ^ 1
        wrong = Tensor(tensor.dtype, tensor.shape, pattern, [number, *tensor.values[1:]])
        assert list(independent_vectors.faults(case, given, right)) == []
        assert list(independent_vectors.faults(case, given, right | {output[key]: wrong}))


def test_ends_of_attention_stay_where_they_are_when_bounds_move_a_little() -> None:
    """Exponentials differ between libraries by far less than this, so that the files do not."""
    for case in of("kv_attention"):
        given = dict(case["parameters"])
        for name, entry in case["inputs"].items():
            given[name] = None if entry is None else inputs()[entry["tensor"]]
        bounded = kv_attention_bounded(*(given[name] for name in ORDER["kv_attention"][:-1]))
        output = case["outputs"]["y"]
        stored = [expected()[output[key]] for key in ("low", "high")]
        for factor in (1 - 2.0**-28, 1 + 2.0**-28):
            moved = Bounded(value=bounded.value, error=factor * bounded.error)
            for end, kept in zip(interval(moved, given["dtype"]), stored, strict=True):
                assert np.array_equal(end, kept), case["id"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_reference_is_inside_every_interval(operation: str) -> None:
    for case in of(operation):
        found = answer(case, inputs(), reference_for(case["parameters"]))
        for output in case["outputs"].values():
            array = found[output["tensor"]]
            if "bits" in output:
                same = bits(array) == bits(expected()[output["bits"]])
                if array.dtype.kind not in "iu":
                    same |= np.isnan(array)
            else:
                same = expected()[output["low"]] <= array
                same &= array <= expected()[output["high"]]
            assert same.all(), case["id"]
