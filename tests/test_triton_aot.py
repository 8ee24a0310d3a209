"""Triton kernels, compiled ahead of time for GPUs that are not there: what their PTX says.

The interpreter shows that a kernel computes the right thing; it cannot show a contraction, an
approximate division, a race on a sum, narrow loads or spilled registers. `nibblespec.optimized
.kernels.ptx` says what is looked for.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest
from nibblespec.optimized.kernels.aot import ARCHITECTURES, specializations

NAMES = [specialization.name for specialization in specializations()]
Results: TypeAlias = Mapping[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results() -> Results:
    """Compile everything, in another process: this one interprets kernels."""
    run = subprocess.run(
        [sys.executable, "-m", "nibblespec.optimized.kernels.aot"],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, 1), run.stderr[-4000:]
    found = defaultdict(list)
    for line in run.stdout.splitlines():
        one = json.loads(line)
        found[one["name"]].append(one)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_keeps_its_promises_on_every_architecture(name: str, results: Results) -> None:
    assert results[name], "it was not compiled at all"
    assert {one["arch"]: one["broken"] for one in results[name]} == {
        one["arch"]: [] for one in results[name]
    }


def test_names_of_specializations_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_every_architecture_launches_every_kernel() -> None:
    archs: dict[str, set[int]] = defaultdict(set)
    for specialization in specializations():
        archs[specialization.kernel.__name__] |= set(specialization.archs)
    assert archs
    assert set(map(frozenset, archs.values())) == {frozenset(ARCHITECTURES)}
