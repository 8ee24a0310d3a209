"""Memory does not grow with the model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MOST_GROWTH = 150_000_000
"""Bytes, on top of what PyTorch and transformers take. Measured: 50 to 140 million, the same for
1 GB models."""


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_memory_grows_by_less_than_half_of_the_model(target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.measure_convert", "--to", target, "--layers", "3"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    figures = json.loads(done.stdout)
    assert figures["model"] > 2 * MOST_GROWTH
    assert figures["after"] - figures["before"] < MOST_GROWTH
