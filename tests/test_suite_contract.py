"""What the gate checks of every call: its form, fresh results, inputs that stay, no exceptions."""

from typing import Any

import numpy as np
import pytest
from nibblespec.conformance.suite.gate import Operation, checked
from nibblespec.conformance.suite.outcomes import BackendError, Violation
from nibblespec.reference import backend as reference

CODES = np.arange(20, dtype=np.uint8) % 16
Q4 = np.array([[1, -2, 3, 4]], np.int8)


def violation(name: str, function: Operation, *arguments: object) -> Violation:
    """Return what the gate says of a call."""
    with pytest.raises(Violation) as caught:
        checked(name, function)(*arguments)
    return caught.value


def test_right_call_returns_the_answer() -> None:
    found = checked("pack_words", reference.pack_words)(CODES, 4)
    assert found.tolist() == reference.pack_words(CODES, 4).tolist()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda words: words.astype(np.int64), "expected a NumPy array int32 [3], found int64 [3]"),
        (lambda words: words[:2], "expected a NumPy array int32 [3], found int32 [2]"),
        (lambda words: words[None], "expected a NumPy array int32 [3], found int32 [1, 3]"),
        (lambda words: words.tolist(), "expected a NumPy array int32 [3], found list"),
        (lambda words: words.astype(">i4"), "found >i4 [3]"),
        (lambda words: (words,), "found tuple"),
    ],
)
def test_result_of_another_form_is_a_violation(answer: Any, said: str) -> None:  # noqa: ANN401
    found = violation("pack_words", lambda *given: answer(reference.pack_words(*given)), CODES, 4)
    assert said in str(found)
    assert found.requirements == ("NUM-OUTPUT-FORM",)


def test_one_array_where_two_are_due_is_a_violation() -> None:
    found = violation("pack_planes", lambda q4, qr: reference.pack_planes(q4, qr)[0], Q4, Q4)
    assert "expected a tuple of 2 arrays, found ndarray" in str(found)


def test_result_that_is_a_view_of_an_input_is_a_violation() -> None:
    def hadamard(x: Any, _had_k: Any, _dtype: str) -> Any:  # noqa: ANN401
        return x.view()

    found = violation("hadamard", hadamard, np.ones((1, 1), np.float32), None, "float32")
    assert found.requirements == ("NUM-OUTPUT-FRESH",)


def test_two_results_in_one_memory_are_a_violation() -> None:
    def pack_planes(q4: Any, qr: Any) -> Any:  # noqa: ANN401
        hi, _ = reference.pack_planes(q4, qr)
        return hi, hi

    assert violation("pack_planes", pack_planes, Q4, Q4).requirements == ("NUM-OUTPUT-FRESH",)


def test_changed_input_is_a_violation() -> None:
    def pack_words(codes: Any, nbits: int) -> Any:  # noqa: ANN401
        packed = reference.pack_words(codes, nbits)
        codes.setflags(write=True)
        codes[0] ^= 1
        return packed

    given = CODES.copy()
    found = violation("pack_words", pack_words, given, 4)
    assert found.requirements == ("NUM-INPUT-UNCHANGED",)
    assert given.tolist() == CODES.tolist()


def test_exception_of_the_backend_is_an_error_with_its_cause() -> None:
    def pack_words(_codes: Any, _nbits: int) -> Any:  # noqa: ANN401
        raise RuntimeError("no kernel")

    with pytest.raises(BackendError, match="pack_words raised RuntimeError: no kernel") as caught:
        checked("pack_words", pack_words)(CODES, 4)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_backend_cannot_skip_a_test() -> None:
    def pack_words(_codes: Any, _nbits: int) -> Any:  # noqa: ANN401
        pytest.skip("not today")

    with pytest.raises(BackendError, match="raised Skipped: not today"):
        checked("pack_words", pack_words)(CODES, 4)


def test_warning_of_the_backend_is_its_own_affair() -> None:
    def pack_words(codes: Any, nbits: int) -> Any:  # noqa: ANN401
        np.float32(3e38) * np.float32(10)
        return reference.pack_words(codes, nbits)

    assert checked("pack_words", pack_words)(CODES, 4).size == 3


def test_unwritten_result_does_not_hold_the_last_one() -> None:
    def unpack_words(words: Any, nbits: int, count: int) -> Any:  # noqa: ANN401
        found = np.empty(count, np.uint8)
        found[: count // 2] = reference.unpack_words(words, nbits, count)[: count // 2]
        return found

    words = reference.pack_words(CODES, 4)
    found = checked("unpack_words", unpack_words)(words, 4, CODES.size)
    assert (found[CODES.size // 2 :] != CODES[CODES.size // 2 :]).any()


def test_gate_refuses_an_invalid_call_of_the_suite_itself() -> None:
    x = np.array([[np.nan]], np.float32)
    with pytest.raises(ValueError, match="the suite was about to make an invalid call"):
        checked("hadamard", reference.hadamard)(x, None, "float32")
