"""bitnest-package-v1, chapter 13: self-speculative decoding with the operations of the backend."""

from importlib.util import find_spec

import pytest
from nibblespec.conformance.suite.gate import claimed, require
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.model_cases import (
    BITNEST,
    BITNEST_GROUP,
    HADAMARD_ORDER,
    HEAD_DIM,
)
from nibblespec.spec.operations import Backend, Capabilities

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("transformers")),
    reason="models need PyTorch and transformers: pip install 'nibblespec[optimized,models]'",
)

NEEDED = ("quantize_activations", "nested_linear", "hadamard", "kv_quantize", "kv_attention")
GAMMA = 3
TOKENS = 6
PROMPT = tuple(range(3, 23))

(CASE,) = (
    case
    for case in BITNEST
    if case.model == "qwen2" and case.plane == "target" and dict(case.cache)["rotate"]
)
"""With biases, R3 and a fresh prompt: everything that a cache can have."""


@requirement("BN1-SPECULATE-TOKENS", "BN1-SPECULATE-CACHE")
def test_tokens_and_cache_are_those_of_the_target(
    backend: Backend, capabilities: Capabilities
) -> None:
    """In float32, if that is claimed: then one bit that depends on the rows of a call shows."""
    for name in NEEDED:
        require(name in capabilities.operations, f"operation {name}")
    claimed((BITNEST_GROUP,), capabilities.group_sizes, f"groups of {BITNEST_GROUP}")
    claimed((HEAD_DIM,), capabilities.head_dims, f"a head_dim of {HEAD_DIM}")
    claimed((HADAMARD_ORDER,), capabilities.hadamard_orders, f"had_K of order {HADAMARD_ORDER}")
    first = capabilities.prefill_f16_from
    require(first is None or first > GAMMA + 1, f"one mode for 1 and {GAMMA + 1} rows")
    dtypes = claimed(("float32", "bfloat16", "float16"), capabilities.dtypes, "a dtype")

    from nibblespec.conformance.suite import speculation  # noqa: PLC0415 (it needs PyTorch)

    decoding = speculation.Decoding(
        case=CASE, prompt=PROMPT, gamma=GAMMA, tokens=TOKENS, dtype=dtypes[0]
    )
    speculation.expect_the_targets_tokens(decoding, backend, capabilities)
