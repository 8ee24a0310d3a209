"""What the suite's comparisons say of arrays that differ."""

import numpy as np
import pytest
from nibblespec.conformance.suite.compare import expect_equal, expect_same
from nibblespec.conformance.suite.outcomes import Violation


def said(found: list[float], expected: list[float]) -> str:
    """Return the last line of the message."""
    with pytest.raises(Violation) as caught:
        expect_equal("x", np.array(found, np.float32), np.array(expected, np.float32))
    return str(caught.value).splitlines()[-1]


def test_sign_of_zero_alone_is_called_so() -> None:
    """The largest difference, 0, would be at an element that is right."""
    text = said([1, 0, -0.0], [1, -0.0, -0.0])
    assert text == "1 of 3 elements; the sign of zero is the only difference"


def test_largest_difference_has_its_place() -> None:
    assert said([1, 0, 5], [1, -0.0, 3]) == "2 of 3 elements; largest difference 2 at [2]"


def test_infinities_that_are_right_are_no_difference() -> None:
    assert said([np.inf, 2], [np.inf, 1]) == "1 of 2 elements; largest difference 1 at [1]"


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_difference_that_is_no_number_is_left_out(wrong: float) -> None:
    assert said([wrong, 2], [np.inf if wrong < 0 else 1, 1]) == "2 of 2 elements"


def test_two_answers_of_a_backend_are_told_apart_in_the_same_way() -> None:
    with pytest.raises(Violation, match="the sign of zero is the only difference"):
        expect_same("x", np.array([-0.0], np.float32), np.array([0], np.float32), "alone")
