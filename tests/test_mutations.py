"""A few of the mutants of fuzz_manifests.py; and what that script calls a failure."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import fuzz_manifests as fuzz

ROOT = Path(__file__).parent.parent


def test_mutants_end_in_findings() -> None:
    figures = fuzz.run(count=600, seed=2, seconds=30, mebibytes=256)
    assert figures.failures == []
    assert figures.mutants == 600
    assert figures.structured > 50  # so that the rules ran, and not the reader alone


def test_mutant_is_the_same_at_every_call() -> None:
    assert fuzz.mutant(3, 5) == fuzz.mutant(3, 5)
    assert fuzz.mutant(3, 5) != fuzz.mutant(4, 5)


def test_mutant_that_raises_is_a_failure_with_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, data: bytes) -> None:
        raise KeyError(name, len(data))

    monkeypatch.setattr(fuzz, "examine", broken)
    (first, _) = fuzz.run(count=2, seed=1, seconds=30, mebibytes=256).failures
    assert first.startswith("mutant 0 of ")
    assert "KeyError" in first


def test_mutant_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(name: str, data: bytes) -> None:
        while name and data:
            pass

    monkeypatch.setattr(fuzz, "examine", hanging)
    (failure,) = fuzz.run(count=1, seed=1, seconds=0.1, mebibytes=256).failures
    assert "TimeoutError: more than 0.1 s" in failure


LEAK = """
from tests import fuzz_manifests as fuzz
examine, kept = fuzz.examine, []
fuzz.examine = lambda *mutant: kept.append(b"x" * 2**24) or examine(*mutant)
print(*fuzz.run(count=20, seed=1, seconds=30, mebibytes=64).failures)
"""


def test_memory_that_grows_is_a_failure() -> None:
    """In a process of its own, since a peak of this one may hide the growth."""
    command = [sys.executable, "-c", LEAK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("memory grew by ")
