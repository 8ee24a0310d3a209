"""The capability gate: what a backend does not claim is not called, in any test of the suite."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nibblespec.conformance.suite.backends import BackendNotFoundError
from nibblespec.conformance.suite.backends import claims as claims_of
from nibblespec.conformance.suite.gate import claimed, operation
from nibblespec.conformance.suite.outcomes import NotClaimed
from nibblespec.conformance.suite.run import run
from nibblespec.reference import backend as reference
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import OPERATIONS, Capabilities

from tests.suite_backends import Changed, Recorder

EXAMPLES = 3
"""Beside the cases that are always tried."""


def recorded(**claims: Any) -> Recorder:  # noqa: ANN401  # whatever Capabilities takes
    """Run the whole suite on a backend with these claims; all it claims has to pass."""
    backend = Recorder(replace(reference.capabilities(), **claims))
    outcome = run(backend, max_examples=EXAMPLES)
    assert {found.result for found in outcome.results} <= {"pass", "not-claimed"}, outcome.output
    return backend


def test_backend_that_claims_nothing_is_never_called() -> None:
    backend = Recorder(Capabilities(operations=()))
    outcome = run(backend, max_examples=EXAMPLES)
    assert backend.calls == []
    assert {found.result for found in outcome.results} == {"not-claimed"}
    assert outcome.exit_status == 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_backend_with_one_operation_gets_calls_of_it_alone(name: str) -> None:
    assert {called for called, _ in recorded(operations=(name,)).calls} == {name}


@pytest.mark.parametrize(
    "nothing",
    [{"dtypes": ()}, {"bit_widths": ()}, {"group_sizes": ()}, {"scale_zero_dtypes": ()}],
    ids=lambda nothing: next(iter(nothing)),
)
def test_operation_without_any_value_of_a_kind_is_not_called(nothing: dict[str, Any]) -> None:
    backend = recorded(operations=("dashq_reconstruct", "dashq_linear"), **nothing)
    assert backend.calls == []


@pytest.fixture(scope="module")
def narrow() -> Recorder:
    """Return what a backend was called with that claims little of everything."""
    return recorded(
        operations=OPERATIONS,
        bit_widths=(3, 4),
        group_sizes=(32, 48),
        dtypes=("bfloat16",),
        scale_zero_dtypes=("float16",),
        head_dims=(96,),
        hadamard_orders=(28,),
        padded_inputs=False,
    )


def calls_of(backend: Recorder, *names: str) -> list[tuple[object, ...]]:
    """Return the arguments of every call of these operations; there is one at least of each."""
    assert set(names) <= {called for called, _ in backend.calls}
    return [arguments for called, arguments in backend.calls if called in names]


def test_modules_are_of_claimed_widths_groups_and_dtypes(narrow: Recorder) -> None:
    calls = calls_of(narrow, "dashq_reconstruct", "dashq_linear")
    modules = [one for arguments in calls for one in arguments if isinstance(one, Module)]
    assert {module.nbits for module in modules} == {3, 4}
    assert {module.group_size for module in modules} == {32, 48}
    assert {module.scale_zero_dtype for module in modules} == {"float16"}
    assert {module.linear_dtype for module in modules} == {"bfloat16"}
    assert all(module.in_features == module.quant_in_features for module in modules)


def test_words_are_of_claimed_widths(narrow: Recorder) -> None:
    assert {arguments[1] for arguments in calls_of(narrow, "pack_words", "unpack_words")} == {3, 4}


def test_results_are_asked_for_in_claimed_dtypes(narrow: Recorder) -> None:
    names = {one for _, arguments in narrow.calls for one in arguments if isinstance(one, str)}
    assert names == {"bfloat16", "draft", "target"}


def test_inputs_are_of_claimed_dtypes(narrow: Recorder) -> None:
    operations = "dashq_linear", "quantize_activations", "hadamard", "kv_quantize", "kv_attention"
    inputs = [arguments[0] for arguments in calls_of(narrow, *operations)]
    assert all(isinstance(one, np.ndarray) and one.dtype == ml_dtypes.bfloat16 for one in inputs)


def test_nested_groups_are_claimed_ones(narrow: Recorder) -> None:
    for hi, _, scale, *_ in calls_of(narrow, "nested_reconstruct"):
        assert group_of(hi, scale) in (32, 48)
    for codes, scales, hi, _, scale, *_ in calls_of(narrow, "nested_linear"):
        assert group_of(hi, scale) in (32, 48)
        assert isinstance(codes, np.ndarray)
        assert isinstance(scales, np.ndarray)
        assert scales.shape[1] == 1 or codes.shape[1] // scales.shape[1] in (32, 48)


def group_of(hi: object, scale: object) -> int:
    """Return the columns that share a scale."""
    assert isinstance(hi, np.ndarray)
    assert isinstance(scale, np.ndarray)
    return 2 * int(hi.shape[1]) // int(scale.shape[1])


def test_activation_groups_are_claimed_ones(narrow: Recorder) -> None:
    assert {arguments[1] for arguments in calls_of(narrow, "quantize_activations")} == {-1, 32, 48}


def test_head_dims_are_claimed_ones(narrow: Recorder) -> None:
    written = [x for x, _ in calls_of(narrow, "kv_quantize")]
    read = [hi for hi, *_ in calls_of(narrow, "kv_dequantize")]
    queries = [q for q, *_ in calls_of(narrow, "kv_attention")]
    assert {one.shape[-1] for one in (*written, *queries) if isinstance(one, np.ndarray)} == {96}
    assert {one.shape[-1] for one in read if isinstance(one, np.ndarray)} == {48}


def test_hadamard_orders_are_claimed_ones(narrow: Recorder) -> None:
    matrices = [had_k for _, had_k, _ in calls_of(narrow, "hadamard")]
    assert {one.shape for one in matrices if isinstance(one, np.ndarray)} == {(28, 28)}
    assert any(one is None for one in matrices)


def test_inputs_are_contiguous_read_only_and_finite(narrow: Recorder) -> None:
    arrays = [one for _, call in narrow.calls for one in call if isinstance(one, np.ndarray)]
    assert all(one.flags.c_contiguous and not one.flags.writeable for one in arrays)
    assert all(one.dtype.kind in "iu" or np.isfinite(one).all() for one in arrays)


def test_drafts_are_called_without_a_low_plane_and_with_one(narrow: Recorder) -> None:
    calls = calls_of(narrow, "nested_linear")
    low_planes = [lo is None for _, _, _, lo, _, _, plane, _ in calls if plane == "draft"]
    assert set(low_planes) == {True, False}


def test_operation_that_is_not_claimed_is_not_handed_out() -> None:
    claims = replace(reference.capabilities(), operations=("pack_words",))
    with pytest.raises(NotClaimed, match="operation unpack_words is not claimed"):
        operation(reference, claims, "unpack_words")


def test_claimed_operation_that_is_missing_is_explained_at_the_start() -> None:
    """A misspelt method must not look like one that was never claimed."""
    backend = Changed({"pack_words": None})  # type: ignore[dict-item]  # the fault itself
    with pytest.raises(BackendNotFoundError, match="pack_words is claimed, but is no callable"):
        claims_of(backend)


def test_claims_keep_the_order_of_the_candidates() -> None:
    assert claimed((8, 4, 2), (2, 4, 3), "a width") == (4, 2)
