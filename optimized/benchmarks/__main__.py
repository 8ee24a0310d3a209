"""`python -m nibblespec.optimized.benchmarks`: one table of operations and their peers."""

import argparse
import functools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from nibblespec.optimized.benchmarks.case import Case
from nibblespec.optimized.benchmarks.lost_device import is_lost
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
    is_lost: Callable[[], bool]
    """Whether the device fails whatever is asked of it, in this process."""


MEASURED = "measured"
BEGUN = "begun, and did not end"
"""What becomes of a case; where neither is true, it is the error that it ended with."""

LOST = 3
"""Status where the device is lost: another process can go on with --resume."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for, print the table, write files.

    Returns 0, 1 where a case could not be measured, or LOST, before the end, with the device.
    """
    given = parser().parse_args(arguments)
    if given.resume and given.json is None:
        parser().error("--resume: expected also --json FILE, the file of the run to go on with")
    if given.cuda and not torch.cuda.is_available():
        parser().error("--cuda: expected a CUDA device, PyTorch sees none; use --cpu")
    # Inductor says so of every formula with float16 parameters; it is right, and no fault.
    warnings.filterwarnings("ignore", "bf16 and fp16 are mixed", UserWarning)
    stop = time.monotonic() + given.limit
    bench = on_cuda() if given.cuda else on_cpu()
    machine = bench.measure_machine()
    lines, cases = measured_before(given.json, machine) if given.resume else ([], {})
    print(machine.summary)
    print(HEADER, flush=True)
    for make in bench.all_cases(given.rows):
        name = name_of(make)
        if given.only not in name or name in cases:
            continue
        if time.monotonic() > stop:
            print(f"the limit of {given.limit:g} s is reached before {name}", file=sys.stderr)
            break
        cases[name] = BEGUN
        write(given, machine, lines, cases)  # now: what comes may not end
        try:
            of_case = measured(make, bench.time, given.seconds, machine)
        except Exception as error:  # the other cases are worth having
            cases[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {cases[name]}", file=sys.stderr, flush=True)
        else:
            cases[name] = MEASURED
            print(*map(text_of, of_case), sep="\n", flush=True)
            lines += of_case
        write(given, machine, lines, cases)
        if cases[name] != MEASURED and bench.is_lost():
            print(f"the device is lost since {name}: go on with --resume", file=sys.stderr)
            return LOST
    return int(any(ended != MEASURED for ended in cases.values()))


def name_of(make: functools.partial[Case]) -> str:
    """Return the name of a case, before it is made."""
    return f"{make.func.__name__} {make.args}"


def measured_before(figures: Path, machine: Machine) -> tuple[list[Line], dict[str, str]]:
    """Return the lines of a run that ended early, and what became of its cases.

    Where there is no file, nothing was begun. It is an error if it is of another machine.
    """
    try:
        found = json.loads(figures.read_text(encoding="utf-8"))
        before = found["machine"]["name"], found["machine"]["device"]
        if before != (machine.name, machine.device):
            raise ValueError(f"those of {' with '.join(before)}")
        return [Line(**line) for line in found["lines"]], dict(found["cases"])
    except FileNotFoundError:
        return [], {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser().error(
            f"--resume: expected figures of this machine in {figures}, found "
            f"{type(error).__name__}: {error}; measure anew, without --resume"
        )


def write(
    given: argparse.Namespace, machine: Machine, lines: Sequence[Line], cases: Mapping[str, str]
) -> None:
    """Write the files that were asked for."""
    if given.json is not None:
        found = {**machine.as_json(lines), "cases": cases}
        write_whole(given.json, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if given.plot is not None:
        write_whole(given.plot, svg(machine.summary, plotted(lines)))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no regular file, such as a pipe, as it comes."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    draft = path.resolve().with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path.resolve())


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

    return Bench(measure_cpu, all_cases, time_in_turns, lambda: False)


def on_cuda() -> Bench:
    """Return what is measured on the current CUDA device."""
    from nibblespec.optimized.benchmarks import cuda, cuda_cases  # noqa: PLC0415  # imports Triton

    return Bench(cuda.measure_cuda, cuda_cases.all_cases, cuda.time_on_cuda, is_lost)


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
        "--resume",
        action="store_true",
        help="go on with the run that wrote the file of --json: no case of it is begun again",
    )
    result.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a plot of the layer of both formats, SVG"
    )
    return result


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
