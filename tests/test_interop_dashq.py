"""The reference against vectors that the public DASH-Q runtime computed: equal, bit for bit."""

import json
from functools import cache
from importlib.resources import as_file, files

import ml_dtypes  # noqa: F401  # registers bfloat16 with NumPy, for load_file
import numpy as np
import pytest
from nibblespec.reference.dashq import dashq_reconstruct
from nibblespec.reference.rounding import FLOAT_DTYPES, Array
from nibblespec.reference.words import pack_words, unpack_words
from nibblespec.spec.operations import DashqRounding, FloatDtype
from safetensors.numpy import load_file

from tests.dashq_modules import describe

UPSTREAM = files("nibblespec.conformance.vectors").joinpath("upstream")
INDEX = json.loads(UPSTREAM.joinpath("index.json").read_text(encoding="utf-8"))
CASES = {case["case"]: case for case in INDEX if case["case"].startswith("dashq.")}


@cache
def tensors() -> dict[str, Array]:
    with as_file(UPSTREAM.joinpath("vectors.safetensors")) as path:
        return load_file(path)


def tensor(case: str, name: str) -> Array:
    return tensors()[f"{case}.{name}"]


def test_every_bit_width_has_five_shapes() -> None:
    widths = [case["nbits"] for case in CASES.values()]
    assert {width: widths.count(width) for width in widths} == dict.fromkeys(range(1, 9), 5)


@pytest.mark.parametrize("case", CASES)
def test_codes_pack_into_the_words_of_upstream(case: str) -> None:
    codes = tensor(case, "codes").reshape(-1)
    words = pack_words(codes, CASES[case]["nbits"])
    assert words.tolist() == tensor(case, "W_q_packed").tolist()


@pytest.mark.parametrize("case", CASES)
def test_the_words_of_upstream_unpack_into_its_codes(case: str) -> None:
    codes = tensor(case, "codes")
    unpacked = unpack_words(tensor(case, "W_q_packed"), CASES[case]["nbits"], codes.size)
    assert unpacked.tolist() == codes.reshape(-1).tolist()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("evaluation", ["fused", "stepwise"])
@pytest.mark.parametrize("case", CASES)
def test_weights_equal_those_of_upstream(
    case: str, evaluation: DashqRounding, dtype: FloatDtype
) -> None:
    entry = CASES[case]
    module = describe(
        entry["out_features"], entry["in_features"], entry["nbits"], entry["group_size"]
    )
    weight = dashq_reconstruct(
        tensor(case, "W_q_packed"),
        tensor(case, "scale"),
        tensor(case, "zero"),
        module,
        dtype,
        evaluation,
    )
    upstream = tensor(case, f"{evaluation}.{dtype}")
    unsigned = f"u{upstream.dtype.itemsize}"
    assert weight.dtype == upstream.dtype
    assert np.array_equal(weight.view(unsigned), upstream.view(unsigned))


def test_the_two_evaluations_of_upstream_differ_in_bfloat16() -> None:
    differ = [
        np.mean(tensor(case, "fused.bfloat16") != tensor(case, "stepwise.bfloat16"))
        for case in CASES
        if CASES[case]["nbits"] == 4
    ]
    assert min(differ) > 0.3
