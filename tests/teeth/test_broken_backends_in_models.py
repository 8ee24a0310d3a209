"""What whole models make of broken backends is what the table says: a sample of it."""

import pytest

from tests.teeth.models import PAGE, read_page, render, trace_of
from tests.teeth.mutant import Mutant
from tests.teeth.mutants import MUTANTS

TABLE = read_page(PAGE.read_text(encoding="utf-8"))
ADVICE = "run python -m tests.teeth models --write"
SAMPLE = MUTANTS[::40]


@pytest.mark.parametrize("mutant", SAMPLE, ids=[mutant.name for mutant in SAMPLE])
def test_a_model_shows_what_the_table_says(mutant: Mutant) -> None:
    assert trace_of(mutant) == TABLE[mutant.name], ADVICE


def test_the_table_has_every_broken_backend() -> None:
    assert set(TABLE) == {mutant.name for mutant in MUTANTS}, ADVICE
    assert render(TABLE) == PAGE.read_text(encoding="utf-8"), ADVICE
