"""`python -m nibblespec.optimized.benchmarks`: one table of operations and their peers."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nibblespec.optimized.benchmarks.cases import ROWS, all_cases
from nibblespec.optimized.benchmarks.machine import measure_machine
from nibblespec.optimized.benchmarks.measure import time_in_turns
from nibblespec.optimized.benchmarks.plot import svg
from nibblespec.optimized.benchmarks.table import HEADER, Line, lines_of, text_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for, print the table, write files."""
    given = parser().parse_args(arguments)
    machine = measure_machine()
    print(machine.summary)
    print(HEADER, flush=True)
    lines: list[Line] = []
    for make in all_cases(given.rows):
        name = f"{make.func.__name__} {make.args}"
        if given.only not in name:
            continue
        case = make()
        timings = time_in_turns({one.name: one.call for one in case.contestants}, given.seconds)
        for line in lines_of(case, timings, machine):
            print(text_of(line), flush=True)
            lines.append(line)
    if given.json is not None:
        given.json.write_text(json.dumps(machine.as_json(lines), indent=1, ensure_ascii=False))
    if given.plot is not None:
        given.plot.write_text(svg(machine.summary, lines), encoding="utf-8")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m nibblespec.optimized.benchmarks", description=__doc__
    )
    result.add_argument("--cpu", action="store_true", required=True, help="measure on the CPU")
    result.add_argument(
        "--only", default="", metavar="TEXT", help="cases whose name has TEXT in it"
    )
    result.add_argument(
        "--rows", type=_numbers, default=ROWS, metavar="M,M…", help="rows of inputs (default: all)"
    )
    result.add_argument(
        "--seconds", type=float, default=1.0, help="time for each case (default: %(default)s)"
    )
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    result.add_argument("--plot", type=Path, metavar="FILE", help="write a plot, SVG")
    return result


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
