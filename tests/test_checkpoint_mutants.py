"""A few of the mutants of fuzz_checkpoints.py."""

from pathlib import Path

import pytest
from nibblespec.conformance.examples.write import write_files

from tests import fuzz_checkpoints as fuzz


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutants")
    for family, files in fuzz.ORIGINALS.items():
        (path / family).mkdir()
        write_files(path / family, dict(files))
    return path


def test_mutants_of_checkpoints_end_in_findings(folder: Path) -> None:
    figures = fuzz.run(folder, count=400, seed=2, seconds=30, mebibytes=256)
    assert figures.failures == []
    assert figures.mutants == 400
    assert len(figures.findings) > 50


def test_mutant_is_the_same_at_every_call() -> None:
    assert fuzz.mutant(3, 5) == fuzz.mutant(3, 5)
    assert fuzz.mutant(3, 5) != fuzz.mutant(4, 5)


def test_every_file_is_drawn() -> None:
    drawn = {fuzz.mutant(1, index)[:2] for index in range(200)}
    assert drawn == set(fuzz.TARGETS)


def test_mutant_that_raises_is_a_failure_with_its_index(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path, seed: int, index: int) -> None:
        raise KeyError(seed, index)

    monkeypatch.setattr(fuzz, "examine", broken)
    (first, _) = fuzz.run(folder, count=2, seed=1, seconds=30, mebibytes=256).failures
    assert first.startswith("mutant 0, seed 1:")
