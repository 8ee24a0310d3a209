"""Correct backends that compute otherwise than the reference, or claim less, are accepted."""

import pytest

from tests.teeth.judge import objections
from tests.teeth.variant import Variant
from tests.teeth.variants import VARIANTS


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
def test_a_correct_backend_is_accepted(variant: Variant) -> None:
    assert [f"{one.test}: {one.message}" for one in objections(variant)] == []
