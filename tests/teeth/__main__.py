"""Judge all broken backends: `python -m tests.teeth [--seeds 5] [--write]`."""

import argparse
import sys
import time

from tests.teeth.judge import rejecting_test
from tests.teeth.mutants import MUTANTS
from tests.teeth.table import PAGE, render


def main() -> int:
    """Return 0 if each broken backend is rejected by one test with every seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.teeth", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 … SEEDS - 1 (default: 5)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("--seeds: expected 1 or more")

    started = time.monotonic()
    tests: dict[str, str] = {}
    for place, mutant in enumerate(MUTANTS, start=1):
        found = rejecting_test(mutant, range(arguments.seeds))
        if found is None:
            print(f"not rejected: {mutant.name} ({mutant.fault}); breaks {mutant.breaks[0]}")
        else:
            tests[mutant.name] = found
        if place % 50 == 0:
            print(f"{place} of {len(MUTANTS)}, {time.monotonic() - started:.0f} s")
    missed = len(MUTANTS) - len(tests)
    print(
        f"{len(tests)} of {len(MUTANTS)} broken backends rejected, {arguments.seeds} seeds each, "
        f"in {time.monotonic() - started:.0f} s"
    )
    if arguments.write and not missed:
        PAGE.write_text(render(tests), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
