"""Tensors that are not quantized, biases and scales at the edges of what is finite."""

from pathlib import Path

import numpy as np
import pytest
from nibblespec.conformance.examples.files import Tensor, tensor
from nibblespec.reference.dashq_encoder import PackedModule, encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.spec.operations import Array

from tests.contents import bitnest_findings, dashq_findings
from tests.weights import draw

INFINITE = np.array([1, -np.inf], np.float32)


def module(**changes: Array) -> PackedModule:
    packed = encode_dashq(draw("normal", 8, 32), nbits=4, group_size=16)
    scale, zero = (changes.get(name, getattr(packed, name)) for name in ("scale", "zero"))
    return PackedModule(module=packed.module, words=packed.words, scale=scale, zero=zero)


@pytest.mark.parametrize(
    ("name", "requirement", "severity"),
    [
        ("model.norm.weight", "DQ1-TENSOR-UNQUANTIZED-FINITE", "error"),
        ("visual.patch_embed.proj.bias", "DQ1-TENSOR-UNQUANTIZED-FINITE", "error"),
        ("model.rotary_emb.inv_freq", "DQ1-TENSOR-BUFFER-FINITE", "warning"),
        ("weight", "DQ1-TENSOR-BUFFER-FINITE", "warning"),
        ("model.layers.0.attention_bias", "DQ1-TENSOR-BUFFER-FINITE", "warning"),
    ],
)
def test_parameters_have_to_be_finite_and_buffers_should(
    tmp_path: Path, name: str, requirement: str, severity: str
) -> None:
    (found,) = dashq_findings(tmp_path, {"m": module()}, {name: tensor(INFINITE)})
    assert (found.requirement, found.severity) == (requirement, severity)
    assert (found.tensor, found.found) == (name, "-inf at [1]")


@pytest.mark.parametrize("dtype", ["I32", "U8", "F4", "BOOL"])
def test_other_dtypes_hold_nothing_but_numbers(tmp_path: Path, dtype: str) -> None:
    count = 16 if dtype == "F4" else 2 if dtype == "I32" else 8
    more = {"model.norm.weight": Tensor(dtype, (count,), b"\xff" * 8)}
    assert dashq_findings(tmp_path, {"m": module()}, more) == []


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0"])
def test_eight_bits_can_be_a_nan(tmp_path: Path, dtype: str) -> None:
    more = {"model.norm.weight": Tensor(dtype, (2, 2), b"\x00\x01\x02\xff")}
    (found,) = dashq_findings(tmp_path, {"m": module()}, more)
    assert found.found == "NaN at [1, 1]"


def test_an_empty_tensor_and_a_scalar_are_no_finding(tmp_path: Path) -> None:
    more = {
        "empty.weight": Tensor("F32", (0, 4), b""),
        "scalar.weight": Tensor("F32", (), b"\x00\x00\x80\x3f"),
    }
    assert dashq_findings(tmp_path, {"m": module()}, more) == []


def test_a_scalar_that_is_not_finite_is_told(tmp_path: Path) -> None:
    more = {"scalar.weight": Tensor("F32", (), b"\x00\x00\x80\x7f")}
    (found,) = dashq_findings(tmp_path, {"m": module()}, more)
    assert found.found == "inf at []"


def test_a_complex_element_is_told_by_its_own_index(tmp_path: Path) -> None:
    values = np.array([1, 2, 3, np.nan], np.float32)
    more = {"complex.weight": Tensor("C64", (2,), values.tobytes())}
    (found,) = dashq_findings(tmp_path, {"m": module()}, more)
    assert found.found == "NaN at [1]"


def test_a_tensor_inside_a_module_is_left_to_the_headers(tmp_path: Path) -> None:
    assert dashq_findings(tmp_path, {"m": module()}, {"m.weight": tensor(INFINITE)}) == []


def test_the_largest_finite_numbers_are_finite(tmp_path: Path) -> None:
    scale = np.full((16, 1), 65504, np.float16)
    zero = np.full((16, 1), -65504, np.float16)
    assert dashq_findings(tmp_path, {"m": module(scale=scale, zero=zero)}) == []


def test_zero_points_may_be_negative_or_beyond_the_codes(tmp_path: Path) -> None:
    zero = np.linspace(-40, 40, 16).astype(np.float16).reshape(16, 1)
    assert dashq_findings(tmp_path, {"m": module(zero=zero)}) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_zero_points_have_to_be_finite(tmp_path: Path, value: float) -> None:
    zero = np.zeros((16, 1), np.float16)
    zero[15] = value
    (found,) = dashq_findings(tmp_path, {"m": module(zero=zero)})
    assert found.requirement == "DQ1-TENSOR-ZERO-FINITE"
    assert found.found.endswith(" at [15, 0]")


@pytest.mark.parametrize(
    "scale", [np.full((3, 1), np.nan, np.float16), np.full((16, 1), np.nan, np.float32)]
)
def test_a_tensor_of_another_shape_or_dtype_is_left_to_the_headers(
    tmp_path: Path, scale: Array
) -> None:
    assert dashq_findings(tmp_path, {"m": module(scale=scale)}) == []


@pytest.mark.parametrize("name", ["embed_tokens", "lm_head", "final_norm", "layers.0.unknown"])
def test_everything_in_aux_has_to_be_finite(tmp_path: Path, name: str) -> None:
    layers = {"m": encode_nested(draw("normal", 4, 32), 16)}
    (found,) = bitnest_findings(tmp_path, layers, 16, {name: tensor(INFINITE)})
    assert (found.requirement, found.severity) == ("BN1-AUX-FINITE", "error")
    assert bitnest_findings(tmp_path, layers, 16, {name: tensor(-INFINITE[:1])}) == []
