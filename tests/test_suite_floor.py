"""The smallest scale is the float32 number 1e-8: a language of float64 numbers has another."""

from typing import Any

import numpy as np
import pytest
from nibblespec.conformance.suite.nested_data import to_plane
from nibblespec.conformance.suite.run import run
from nibblespec.spec.operations import Array

from tests.suite_backends import Changed

CLAIMS = [{}, {"dtypes": ("float32",)}, {"dtypes": ("float32",), "group_sizes": (128,)}]


def narrow(values: Any) -> Array:  # noqa: ANN401
    """Round to float32, as float64 numbers."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def smallest(rounded: bool) -> float:
    return float(np.float32(1e-8)) if rounded else 1e-8


def a8(rounded: bool) -> Any:  # noqa: ANN401
    """Quantize activations in float64, rounding each operation, with one of the two scales."""

    def quantize_activations(x: Array, group: int) -> Any:  # noqa: ANN401
        parts = x.astype(np.float64).reshape(len(x), -1, x.shape[1] if group == -1 else group)
        scale = np.maximum(narrow(np.abs(parts).max(-1) / 127), smallest(rounded))
        codes = np.clip(np.rint(narrow(parts / scale[..., np.newaxis])), -128, 127)
        return codes.astype(np.int8).reshape(x.shape), scale.astype(np.float32)

    return quantize_activations


def kv(rounded: bool) -> Any:  # noqa: ANN401
    """Do the same for the cache."""

    def kv_quantize(x: Array, offset: Array | None) -> Any:  # noqa: ANN401
        d = x.astype(np.float64)
        if offset is not None:
            d = narrow(d - offset.astype(np.float64)[:, np.newaxis])
        scale = np.maximum(narrow(np.abs(d).max(-1) / 7), smallest(rounded))
        each = scale[..., np.newaxis]
        q4 = np.clip(np.rint(narrow(d / each)), -8, 7)
        rest = narrow(d - narrow(q4 * each))
        qr = np.clip(np.rint(narrow(rest / (each / 16))), np.where(q4 == -8, 0, -8), 7)
        hi, lo = (
            to_plane(codes.astype(np.int8).reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
            for codes in (q4, qr)
        )
        return hi, lo, scale.astype(np.float32)

    return kv_quantize


@pytest.mark.parametrize("claims", CLAIMS, ids=str)
@pytest.mark.parametrize(
    ("operation", "make", "file"),
    [("quantize_activations", a8, "test_activations.py"), ("kv_quantize", kv, "test_kv_cache.py")],
)
@pytest.mark.parametrize("rounded", [True, False])
def test_division_by_the_float64_number_is_noticed_whatever_is_drawn(
    claims: dict[str, Any],
    operation: str,
    make: Any,  # noqa: ANN401
    file: str,
    rounded: bool,
) -> None:
    wrong = Changed({operation: make(rounded)}, claims)
    outcome = run(wrong, files=[file], max_examples=1, shrink=False)
    assert outcome.exit_status == (0 if rounded else 1), outcome.output
