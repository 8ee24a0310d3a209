"""Every broken backend is rejected, by the test that the table names."""

from collections import Counter

import pytest
from nibblespec.spec.requirements import requirements

from tests.teeth.equivalent import EQUIVALENT
from tests.teeth.judge import judged, nodes_of, rejects
from tests.teeth.mutant import Mutant, broken_backend
from tests.teeth.mutants import MUTANTS
from tests.teeth.table import PAGE, rejecting_tests, render

TABLE = rejecting_tests(PAGE.read_text(encoding="utf-8"))
ADVICE = "run python -m tests.teeth --write"


def names(mutants: tuple[Mutant, ...]) -> list[str]:
    return [mutant.name for mutant in mutants]


@pytest.mark.parametrize("mutant", MUTANTS, ids=names(MUTANTS))
def test_a_broken_backend_is_rejected(mutant: Mutant) -> None:
    assert mutant.name in TABLE, f"{PAGE.name} lacks it: {ADVICE}"
    test = TABLE[mutant.name]
    assert rejects(test, mutant), f"{test} does not reject it: {ADVICE}"


def test_the_table_says_what_the_code_says() -> None:
    assert set(TABLE) == set(names(MUTANTS)), ADVICE
    assert render(TABLE) == PAGE.read_text(encoding="utf-8"), ADVICE


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(names(MUTANTS)).items() if count > 1] == []


def test_every_requirement_of_backends_is_broken_by_one() -> None:
    broken = {requirement for mutant in MUTANTS for requirement in mutant.breaks}
    stated = {one.id for one in requirements().values() if one.checked_by == "backend"}
    assert broken == stated


EQUIVALENTS = tuple(mutant for mutants in EQUIVALENT.values() for mutant in mutants)


@pytest.mark.parametrize("mutant", EQUIVALENTS, ids=names(EQUIVALENTS))
def test_a_change_that_no_input_shows_is_accepted(mutant: Mutant) -> None:
    results = judged(broken_backend(mutant), nodes_of(mutant.operation))
    assert [result for result in results if result.result in ("fail", "error")] == []
    assert any(result.result == "pass" for result in results)


def changed(new: str, breaks: str = "BN1-ACT-CODES") -> Mutant:
    old = "    codes = np.clip("
    return Mutant(
        "changed", "quantize_activations", (breaks,), "", "activations.py", old, new + old
    )


GOLDEN = "test_activations.py::test_golden_codes_of_a_token"


def test_no_change_is_no_rejection() -> None:
    assert not rejects(GOLDEN, changed(""))


def test_a_crash_is_no_rejection() -> None:
    assert not rejects(GOLDEN, changed("    raise ValueError\n"))


def test_a_failure_that_names_another_requirement_is_no_rejection() -> None:
    wrong = "    groups = groups * 2\n"
    assert rejects(GOLDEN, changed(wrong))
    assert not rejects(GOLDEN, changed(wrong, "BN1-ACT-GROUPS"))


def test_a_failure_of_form_is_no_rejection_for_another_requirement() -> None:
    wrong = "    scale = scale.astype(np.float64)\n"
    assert not rejects(GOLDEN, changed(wrong))


def test_a_change_of_text_that_is_not_there_is_an_error() -> None:
    missing = Mutant("missing", "pack_words", ("DQ1-PACKING-ORDER",), "", "words.py", "no such", "")
    with pytest.raises(
        ValueError, match=r"missing: expected this text once in reference/words\.py"
    ):
        broken_backend(missing)
