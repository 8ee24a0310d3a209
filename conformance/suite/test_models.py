"""Numerics, chapter 8: whole models, in both formats, with the operations of the backend.

Models are tiny, random and seeded. They are built by PyTorch and transformers, whatever the
backend: where those are missing, these tests are skipped.
"""

from importlib.util import find_spec

import pytest
from nibblespec.conformance.suite.gate import claimed, require
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.model_cases import (
    BITNEST,
    BITNEST_GROUP,
    DASHQ,
    DASHQ_GROUP,
    HADAMARD_ORDER,
    HEAD_DIM,
    ModelCase,
)
from nibblespec.spec.operations import Backend, Capabilities

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("transformers")),
    reason="models need PyTorch and transformers: pip install 'nibblespec[optimized,models]'",
)


@requirement("NUM-MODEL-OPERATIONS", "NUM-MODEL-STATES", "NUM-MODEL-TOKENS")
@pytest.mark.parametrize("case", BITNEST, ids=str)
def test_nested_models(case: ModelCase, backend: Backend, capabilities: Capabilities) -> None:
    """Nested layers, R4 of order 12, the nested cache and its attention."""
    needed = ("quantize_activations", "nested_linear", "hadamard", "kv_quantize", "kv_attention")
    require_all(case, capabilities, needed, BITNEST_GROUP)
    claimed((HEAD_DIM,), capabilities.head_dims, f"a head_dim of {HEAD_DIM}")
    claimed((HADAMARD_ORDER,), capabilities.hadamard_orders, f"had_K of order {HADAMARD_ORDER}")
    expect_parity(case, backend, capabilities)


@requirement("NUM-MODEL-OPERATIONS", "NUM-MODEL-STATES", "NUM-MODEL-TOKENS")
@pytest.mark.parametrize("case", DASHQ, ids=str)
def test_packed_models(case: ModelCase, backend: Backend, capabilities: Capabilities) -> None:
    """Packed layers of a dense model, one with linear attention, and one with experts."""
    require_all(case, capabilities, ("dashq_linear",), DASHQ_GROUP)
    bits = dict(case.convert)["bits"]
    claimed((bits,), capabilities.bit_widths, f"codes of {bits} bits")
    claimed(("float16",), capabilities.scale_zero_dtypes, "scales in float16")
    expect_parity(case, backend, capabilities)


def require_all(
    case: ModelCase, capabilities: Capabilities, operations: tuple[str, ...], group_size: int
) -> None:
    """End the test as not claimed unless the backend has what such a model is made of."""
    for name in operations:
        require(name in capabilities.operations, f"operation {name}")
    claimed((group_size,), capabilities.group_sizes, f"groups of {group_size}")
    claimed((case.dtype,), capabilities.dtypes, f"activations in {case.dtype}")


def expect_parity(case: ModelCase, backend: Backend, capabilities: Capabilities) -> None:
    """Run the model with the backend's operations and compare it with the reference's run."""
    from nibblespec.conformance.suite import model_runs  # noqa: PLC0415 (it needs PyTorch)

    model_runs.expect_parity(case, backend, capabilities)
