"""The reference against vectors from the formulas of BitNest's own loader and exporter."""

import json
from functools import cache
from importlib.resources import as_file, files

import ml_dtypes  # noqa: F401  # registers bfloat16 with NumPy, for load_file
import numpy as np
import pytest
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.bounds import outside
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.hadamard import hadamard
from nibblespec.reference.kv import kv_dequantize, kv_quantize
from nibblespec.reference.nested import nested_reconstruct
from nibblespec.reference.nested_encoder import encode_nested, encode_residual
from nibblespec.reference.rounding import Array
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix
from safetensors.numpy import load_file

UPSTREAM = files("nibblespec.conformance.vectors").joinpath("upstream")
INDEX = json.loads(UPSTREAM.joinpath("index.json").read_text(encoding="utf-8"))
LAYERS = {case["case"]: case for case in INDEX if case["case"].startswith("bitnest.")}
TRANSFORMS = {case["case"]: case for case in INDEX if case["case"].startswith("hadamard.")}
CACHES = [case["case"] for case in INDEX if case["case"].startswith("kv.")]
POWERS_OF_FOUR = [name for name, case in TRANSFORMS.items() if case["K"] == 1]


@cache
def tensors() -> dict[str, Array]:
    with as_file(UPSTREAM.joinpath("vectors.safetensors")) as path:
        return load_file(path)


def tensor(case: str, name: str) -> Array:
    return tensors()[f"{case}.{name}"]


def equal(found: Array, upstream: Array) -> bool:
    """Return whether two arrays agree in dtype, shape and every bit."""
    same_form = found.dtype == upstream.dtype and found.shape == upstream.shape
    return same_form and found.tobytes() == upstream.tobytes()


def matrix(case: str) -> Array | None:
    return tensors().get(f"{case}.had_K")


def test_there_are_cases_of_every_kind() -> None:
    assert (len(LAYERS), len(TRANSFORMS), len(CACHES), len(POWERS_OF_FOUR)) == (4, 5, 2, 2)


@pytest.mark.parametrize("case", LAYERS)
def test_draft_weights_equal_those_of_upstream(case: str) -> None:
    weight = nested_reconstruct(
        tensor(case, "hi"), None, tensor(case, "scale"), "draft", "bfloat16"
    )
    assert equal(weight, tensor(case, "draft.bfloat16"))


@pytest.mark.parametrize("case", LAYERS)
def test_target_weights_equal_those_of_upstream(case: str) -> None:
    planes = tensor(case, "hi"), tensor(case, "lo"), tensor(case, "scale")
    weight = nested_reconstruct(*planes, "target", "bfloat16")
    assert equal(weight, tensor(case, "target.bfloat16"))


@pytest.mark.parametrize("per_token", [True, False])
@pytest.mark.parametrize("case", LAYERS)
def test_activations_equal_those_of_upstream(case: str, per_token: bool) -> None:
    group = -1 if per_token else LAYERS[case]["group_size"]
    codes, scale = quantize_activations(tensor(case, "x"), group)
    assert equal(codes, tensor(case, f"a8.group{group}.codes"))
    assert equal(scale, tensor(case, f"a8.group{group}.scale"))


@pytest.mark.parametrize("case", LAYERS)
def test_nested_codes_equal_those_of_upstream(case: str) -> None:
    q4, qr, scale = encode_nested(tensor(case, "nest.w0"), LAYERS[case]["group_size"])
    assert equal(scale, tensor(case, "nest.scale"))
    assert equal(q4, tensor(case, "nest.q4"))
    assert equal(qr, tensor(case, "nest.qr"))


@pytest.mark.parametrize("case", LAYERS)
def test_residuals_for_the_codes_of_upstream_equal_its_own(case: str) -> None:
    given = tensor(case, "nest.w0"), tensor(case, "nest.q4"), tensor(case, "nest.scale")
    assert equal(encode_residual(*given), tensor(case, "nest.qr"))


@pytest.mark.parametrize("case", CACHES)
def test_cache_entries_equal_those_of_upstream(case: str) -> None:
    hi, lo, scale = kv_quantize(tensor(case, "x"), None)
    assert equal(hi, tensor(case, "hi"))
    assert equal(lo, tensor(case, "lo"))
    assert equal(scale, tensor(case, "scale"))


@pytest.mark.parametrize("case", CACHES)
def test_readers_of_the_cache_see_what_upstream_sees(case: str) -> None:
    hi, lo, scale = tensor(case, "hi"), tensor(case, "lo"), tensor(case, "scale")
    assert equal(kv_dequantize(hi, None, scale, "draft"), tensor(case, "kv4"))
    assert equal(kv_dequantize(hi, lo, scale, "target"), tensor(case, "kv8"))


@pytest.mark.parametrize("case", POWERS_OF_FOUR)
def test_transforms_of_integers_equal_those_of_upstream_at_powers_of_four(case: str) -> None:
    y = hadamard(tensor(case, "x_int"), None, "float32")
    assert equal(y + np.float32(0), tensor(case, "y_int") + np.float32(0))  # −0 + 0 is +0


@pytest.mark.parametrize("data", ["", "_int"])
@pytest.mark.parametrize("case", TRANSFORMS)
def test_transforms_of_upstream_are_inside_the_bound(case: str, data: str) -> None:
    bounded = hadamard_bounded(tensor(case, f"x{data}"), matrix(case))
    assert not outside(tensor(case, f"y{data}"), bounded).any()


@pytest.mark.parametrize("data", ["", "_int"])
@pytest.mark.parametrize("case", TRANSFORMS)
def test_transforms_differ_from_upstream_in_the_last_place_at_most(case: str, data: str) -> None:
    # Upstream divides by √n where the canonical evaluation multiplies by 1/√n.
    y = hadamard(tensor(case, f"x{data}"), matrix(case), "float32")
    upstream = tensor(case, f"y{data}")
    assert (np.abs(y - upstream) <= np.spacing(np.abs(upstream))).all()


@pytest.mark.parametrize("case", [case for case in TRANSFORMS if case not in POWERS_OF_FOUR])
def test_matrices_equal_those_of_upstream(case: str) -> None:
    upstream = matrix(case)
    assert upstream is not None
    assert equal(hadamard_matrix(TRANSFORMS[case]["K"]), upstream)
