"""`python -m nibblespec.optimized.benchmarks`: one table of operations and their peers."""

import argparse
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from nibblespec.optimized.benchmarks.case import Case
from nibblespec.optimized.benchmarks.machine import Machine, Timer, measure_cpu
from nibblespec.optimized.benchmarks.measure import time_in_turns
from nibblespec.optimized.benchmarks.plot import svg
from nibblespec.optimized.benchmarks.shapes import COMMON_SHAPE, ROWS
from nibblespec.optimized.benchmarks.table import HEADER, Line, lines_of, text_of


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured where, and how."""

    measure_machine: Callable[[], Machine]
    all_cases: Callable[[Sequence[int]], Iterator[functools.partial[Case]]]
    time: Timer


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for, print the table, write files.

    Returns 0, or 1 where a case could not be measured.
    """
    given = parser().parse_args(arguments)
    if given.cuda and not torch.cuda.is_available():
        parser().error("--cuda: expected a CUDA device, PyTorch sees none; use --cpu")
    # Inductor says so of every formula with float16 parameters; it is right, and no fault.
    warnings.filterwarnings("ignore", "bf16 and fp16 are mixed", UserWarning)
    stop = time.monotonic() + given.limit
    bench = on_cuda() if given.cuda else on_cpu()
    machine = bench.measure_machine()
    print(machine.summary)
    print(HEADER, flush=True)
    lines: list[Line] = []
    failed = False
    for make in bench.all_cases(given.rows):
        name = f"{make.func.__name__} {make.args}"
        if given.only not in name:
            continue
        if time.monotonic() > stop:
            print(f"the limit of {given.limit:g} s is reached before {name}", file=sys.stderr)
            break
        try:
            of_case = measured(make, bench.time, given.seconds, machine)
        except Exception as error:  # the other cases are worth having
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = True
            continue
        print(*map(text_of, of_case), sep="\n", flush=True)
        lines += of_case
        write(given, machine, lines)  # now: what comes may not end
    return int(failed)


def write(given: argparse.Namespace, machine: Machine, lines: Sequence[Line]) -> None:
    """Write the files that were asked for."""
    if given.json is not None:
        text = json.dumps(machine.as_json(lines), indent=1, ensure_ascii=False)
        given.json.write_text(text + "\n", encoding="utf-8")
    if given.plot is not None:
        given.plot.write_text(svg(machine.summary, plotted(lines)), encoding="utf-8")


def measured(
    make: Callable[[], Case], timer: Timer, seconds: float, machine: Machine
) -> list[Line]:
    """Make a case, time its contestants, and return its lines. Its operands go with it."""
    case = make()
    timings = timer({one.name: one.call for one in case.contestants}, seconds)
    return list(lines_of(case, timings, machine))


def plotted(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines of the layer that both formats have, or all where there are none."""
    rows, columns = COMMON_SHAPE
    return [line for line in lines if line.shape.startswith(f"{rows}×{columns} ")] or lines


def on_cpu() -> Bench:
    """Return what is measured on this CPU."""
    from nibblespec.optimized.benchmarks.cases import all_cases  # noqa: PLC0415  # compiles kernels

    return Bench(measure_cpu, all_cases, time_in_turns)


def on_cuda() -> Bench:
    """Return what is measured on the current CUDA device."""
    from nibblespec.optimized.benchmarks import cuda, cuda_cases  # noqa: PLC0415  # imports Triton

    return Bench(cuda.measure_cuda, cuda_cases.all_cases, cuda.time_on_cuda)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m nibblespec.optimized.benchmarks", description=__doc__
    )
    place = result.add_mutually_exclusive_group(required=True)
    place.add_argument("--cpu", action="store_true", help="measure on the CPU")
    place.add_argument("--cuda", action="store_true", help="measure on the CUDA device")
    result.add_argument(
        "--only", default="", metavar="TEXT", help="cases whose name has TEXT in it"
    )
    result.add_argument(
        "--rows", type=_numbers, default=ROWS, metavar="M,M…", help="rows of inputs (default: all)"
    )
    result.add_argument(
        "--seconds", type=float, default=1.0, help="time for each case (default: %(default)s)"
    )
    result.add_argument(
        "--limit",
        type=float,
        default=float("inf"),
        metavar="S",
        help="begin no case after S seconds",
    )
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    result.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a plot of the layer of both formats, SVG"
    )
    return result


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
