"""The page README.md of this folder: which check rejects which broken kernel.

    python -m tests.kernel_mutants.table

writes it; a test compares it with the code.
"""

from pathlib import Path

from tests.kernel_mutants.mutant import KernelMutant
from tests.kernel_mutants.mutants import MUTANTS

PAGE = Path(__file__).parent / "README.md"

INTRODUCTION = """\
# Broken kernels, and what rejects them

<!-- Written by `python -m tests.kernel_mutants.table`; a test compares it with the code. -->

Each of these {count} is a copy of `optimized/kernels` with one small change. `pytest
tests/kernel_mutants` requires that each is rejected by the check that stands beside it:

- a test of the conformance suite, under Triton's interpreter, by a failed assertion that names the
  requirement;
- a check that reaches into the interpreter and into memory (`tests/triton_checks.py` and
  `tests/triton_bitnest_checks.py`). Offsets in 32 bits may end in a segmentation fault, which
  counts too, in a process of its own;
- what a kernel promises of its PTX (`optimized/kernels/ptx.py`), compiled for compute capability
  9.0. The interpreter cannot show these: it contracts nothing, rounds by other instructions than
  a GPU and runs one program after the other.

| broken kernel | fault | in | rejected by |
|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    rows = (
        f"| `{mutant.name}` | {mutant.fault} | `{mutant.file}` | {_rejection(mutant)} |\n"
        for mutant in MUTANTS
    )
    return INTRODUCTION.format(count=len(MUTANTS)) + "".join(rows)


def _rejection(mutant: KernelMutant) -> str:
    if mutant.by == "suite":
        return f"suite: `{mutant.at}` ({mutant.says})"
    if mutant.by == "ptx":
        return f"PTX of `{mutant.at}`: {mutant.says}"
    return f"check: {mutant.at.replace('_', ' ')}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
