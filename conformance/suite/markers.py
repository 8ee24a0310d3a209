"""How a test says which requirements it speaks of."""

import pytest


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Mark a test with the ids it checks. Collection fails on an id that the text lacks."""
    return pytest.mark.requirement(*ids)
