"""Hadamard matrices and norms of a package: had_K·had_Kᵀ = K·I up to rounding, and ones."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nibblespec.conformance.artifacts.bitnest import orthogonality
from nibblespec.conformance.artifacts.bitnest.orthogonality import tolerance
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.examples.bitnest_content_faults import orthogonal_matrix
from nibblespec.conformance.examples.files import Tensor, tensor
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix
from nibblespec.spec.operations import Array

from tests.contents import bitnest_findings, ids

ORDERS = (12, 20, 28, 36, 40, 44, 52, 60, 108, 140, 148, 156, 172)


def found_in(folder: Path, matrix: Array) -> list[Finding]:
    """Return what is found in a matrix had_K that a layer uses."""
    order = len(matrix)
    layers = {"m": encode_nested(np.eye(2, 32, dtype=np.float32), 16)}
    transforms = {"layers": {"m": {"K": order}}}
    aux = {f"had_K.{order}": tensor(np.ascontiguousarray(matrix, np.float32))}
    return bitnest_findings(folder, layers, 16, aux, online_hadamard=transforms)


@pytest.mark.parametrize("order", ORDERS)
def test_a_hadamard_matrix_has_no_finding(tmp_path: Path, order: int) -> None:
    assert found_in(tmp_path, hadamard_matrix(order)) == []


@pytest.mark.parametrize("order", [12, 28, 148, 172, 500])
def test_an_orthogonal_matrix_is_worth_an_information(tmp_path: Path, order: int) -> None:
    (found,) = found_in(tmp_path, orthogonal_matrix(order))
    assert (found.requirement, found.severity) == ("BN1-HADK-SIGNS", "info")


@pytest.mark.parametrize("order", [28, 148, 500])
def test_a_matrix_that_was_factorized_in_float32_passes(tmp_path: Path, order: int) -> None:
    random = np.random.default_rng(order).normal(size=(order, order)).astype(np.float32)
    matrix = np.linalg.qr(random)[0] * np.sqrt(np.float32(order))
    assert ids(found_in(tmp_path, matrix)) == ["BN1-HADK-SIGNS"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("order", [28, 148, 172])
def test_a_matrix_that_went_through_16_bits_does_not(
    tmp_path: Path, order: int, dtype: type
) -> None:
    rounded = orthogonal_matrix(order).astype(dtype).astype(np.float32)
    assert ids(found_in(tmp_path, rounded)) == ["BN1-HADK-ORTHOGONAL", "BN1-HADK-SIGNS"]


@pytest.mark.parametrize("order", ORDERS)
def test_one_wrong_sign_is_told_with_its_place(tmp_path: Path, order: int) -> None:
    matrix = hadamard_matrix(order).copy()
    matrix[1, order - 1] *= -1
    (found,) = found_in(tmp_path, matrix)
    assert found.requirement == "BN1-HADK-ORTHOGONAL"
    assert " at [0, 1], and " in found.found
    assert f"and {2 * (order - 1) - 1:,} more" in found.found


def test_a_matrix_without_its_scale_is_told(tmp_path: Path) -> None:
    """Divided by √K, as a rotation: what a reader multiplies by 1/√n is then too small."""
    (first, *_) = found_in(tmp_path, hadamard_matrix(12) / np.float32(np.sqrt(12)))
    assert first.expected.startswith("12 to within")
    assert first.found == "1 at [0, 0], and 11 more"
    assert "rows of norm √K" in first.hint


@pytest.mark.parametrize(("factor", "told"), [(0.9, False), (1.1, True)])
def test_the_tolerance_is_that_of_the_text(tmp_path: Path, factor: float, told: bool) -> None:
    """A diagonal element that is off by a tenth less, or more, than the text allows."""
    matrix = hadamard_matrix(12).astype(np.float64)
    matrix[0] *= np.sqrt(1 + factor * 12 * 20 * 2.0**-24 / 12)
    found = ids(found_in(tmp_path, matrix))
    assert ("BN1-HADK-ORTHOGONAL" in found) == told
    assert tolerance(12) == 12 * 20 * 2.0**-24


def test_a_transposed_matrix_passes(tmp_path: Path) -> None:
    """It is as orthogonal: only the layer that was folded with it can tell."""
    assert ids(found_in(tmp_path, orthogonal_matrix(28).T)) == ["BN1-HADK-SIGNS"]


def test_a_matrix_with_a_nan_is_not_finite_and_no_more(tmp_path: Path) -> None:
    matrix = hadamard_matrix(12).copy()
    matrix[3, 4] = np.nan
    (first, second) = found_in(tmp_path, matrix)
    assert (first.requirement, first.found) == ("BN1-AUX-FINITE", "NaN at [3, 4]")
    assert second.requirement == "BN1-HADK-SIGNS"


def test_what_is_found_does_not_depend_on_the_rows_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = orthogonal_matrix(60)
    matrix[40, 7] += 1
    whole = found_in(tmp_path, matrix)
    monkeypatch.setattr(orthogonality, "ROW_BYTES", 4 * 60 * 7)
    assert found_in(tmp_path, matrix) == whole


def test_of_a_huge_matrix_some_rows_are_multiplied_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orthogonality, "MULTIPLICATIONS", 4 * 60**2)
    matrix = hadamard_matrix(60).copy()
    matrix[59] = matrix[58]  # row 45 is the last one of four that is multiplied with all
    assert found_in(tmp_path, matrix) == []
    matrix[59] = matrix[45]
    assert ids(found_in(tmp_path, matrix)) == ["BN1-HADK-ORTHOGONAL"]


def test_a_matrix_that_no_layer_uses_is_not_judged(tmp_path: Path) -> None:
    aux = {"had_K.12": tensor(np.ones((12, 12), np.float32))}
    layers = {"m": encode_nested(np.eye(2, 32, dtype=np.float32), 16)}
    assert bitnest_findings(tmp_path, layers, 16, aux) == []


# Norms


def norm(value: float) -> Tensor:
    weight = np.ones(32, ml_dtypes.bfloat16)
    weight[7] = value
    return tensor(weight)


@pytest.mark.parametrize(
    ("norms", "name", "told"),
    [
        ({"fused": True}, "final_norm", True),
        ({"fused": False}, "final_norm", False),
        ({}, "final_norm", False),
        (None, "final_norm", False),
        ({"decoder_norms_identity": True}, "layers.0.input_layernorm", True),
        ({"decoder_norms_identity": False}, "layers.0.post_attention_layernorm", False),
        ({"fused": True}, "layers.0.input_layernorm", False),
    ],
)
def test_norms_are_ones_where_the_manifest_says_so(
    tmp_path: Path, norms: dict[str, Any] | None, name: str, told: bool
) -> None:
    layers = {"model.layers.0.self_attn.q_proj": encode_nested(np.eye(2, 32, dtype=np.float32), 16)}
    keys = {} if norms is None else {"norms": norms}
    assert bitnest_findings(tmp_path, layers, 16, {name: norm(1)}, **keys) == []
    found = bitnest_findings(tmp_path, layers, 16, {name: norm(1.0078125)}, **keys)
    assert ids(found) == ["BN1-NORM-ONES"] * told
    assert all(each.found == "1.00781 at [7]" for each in found)
