"""Correct backends that compute otherwise than the reference, or claim less, are accepted."""

import pytest
from nibblespec.spec.requirements import requirements

from tests.teeth.judge import judged, nodes_of
from tests.teeth.variant import Variant
from tests.teeth.variants import VARIANTS


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
def test_a_correct_backend_is_accepted(variant: Variant) -> None:
    """Every test of its operations passes; advice (SHOULD) alone may fail."""
    nodes = dict.fromkeys(node for name in variant.operations for node in nodes_of(name))
    results = judged(variant.backend, list(nodes))
    rejections = [
        f"{one.test}: {one.message}"
        for one in results
        if one.result == "error" or (one.result == "fail" and _is_binding(one.requirements))
    ]
    assert rejections == []
    assert any(one.result == "pass" for one in results)


def _is_binding(ids: tuple[str, ...]) -> bool:
    return any(requirements()[name].level == "MUST" for name in ids)
