"""Judge the broken and the correct backends: `python -m tests.teeth --help`."""

import argparse
import sys
import time

from tests.teeth import models
from tests.teeth.judge import objections, rejecting_test
from tests.teeth.mutants import MUTANTS
from tests.teeth.table import PAGE, render
from tests.teeth.variants import VARIANTS


def main() -> int:
    """Return 0 if every backend is judged as it should be with every seed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.teeth",
        description="Judge the broken backends, each to be rejected by one test with every seed, "
        "or the correct ones, each to be accepted with every seed; or see which of the broken ones "
        "whole models tell.",
    )
    parser.add_argument(
        "backends", choices=("broken", "correct", "models"), nargs="?", default="broken"
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 … SEEDS - 1 (default: 5)")
    parser.add_argument("--write", action="store_true", help="write the page in docs/")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("--seeds: expected 1 or more")
    if arguments.backends == "models":
        return judge_models(write=arguments.write)
    seeds = range(arguments.seeds)
    return (
        judge_correct(seeds)
        if arguments.backends == "correct"
        else judge_broken(seeds, write=arguments.write)
    )


def judge_broken(seeds: range, *, write: bool) -> int:
    """Look for a test that rejects each broken backend; return 1 where one lacks it."""
    started = time.monotonic()
    tests: dict[str, str] = {}
    for place, mutant in enumerate(MUTANTS, start=1):
        found = rejecting_test(mutant, seeds)
        if found is None:
            print(f"not rejected: {mutant.name} ({mutant.fault}); breaks {mutant.breaks[0]}")
        else:
            tests[mutant.name] = found
        if place % 50 == 0:
            print(f"{place} of {len(MUTANTS)}, {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{len(tests)} of {len(MUTANTS)} broken backends rejected, {len(seeds)} seeds each, "
        f"in {time.monotonic() - started:.0f} s"
    )
    if len(tests) < len(MUTANTS):
        return 1
    if write:
        PAGE.write_text(render(tests), encoding="utf-8")
    return 0


def judge_correct(seeds: range) -> int:
    """Run all tests of each correct backend; return 1 where one is rejected."""
    started = time.monotonic()
    accepted = 0
    for variant in VARIANTS:
        found = [one for seed in seeds for one in objections(variant, seed)]
        accepted += not found
        for one in found:
            print(f"{variant.name} is rejected by {one.test}: {one.message}", flush=True)
    print(
        f"{accepted} of {len(VARIANTS)} correct backends accepted, {len(seeds)} seeds each, "
        f"in {time.monotonic() - started:.0f} s"
    )
    return 0 if accepted == len(VARIANTS) else 1


def judge_models(*, write: bool) -> int:
    """See what whole models make of each broken backend."""
    found: dict[str, tuple[models.Trace, str]] = {}
    for mutant, trace, case in models.traces():
        found[mutant.name] = trace, case
        if trace != "fail":
            print(f"{mutant.name}: {models.TRACES[trace]} {case}", flush=True)
    print({trace: sum(one == trace for one, _ in found.values()) for trace in models.TRACES})
    if write:
        models.PAGE.write_text(models.render(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
