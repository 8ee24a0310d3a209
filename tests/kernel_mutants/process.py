"""Run one broken kernel's check in this process: exit 3 if it is rejected, 0 if it passes.

python -m tests.kernel_mutants.process NAME FOLDER
"""

import sys
from pathlib import Path

from tests.kernel_mutants.mutant import broken_operations
from tests.kernel_mutants.mutants import CHECKS, MUTANTS


def main(name: str, folder: str) -> int:
    """Return the exit status."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with broken_operations(mutant, Path(folder)) as operations:
        try:
            CHECKS[mutant.at](operations)
        except AssertionError:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
