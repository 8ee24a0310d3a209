"""The table: a line for each way to compute a case."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nibblespec.optimized.benchmarks.case import Case
from nibblespec.optimized.benchmarks.machine import Machine
from nibblespec.optimized.benchmarks.measure import Timing


@dataclass(frozen=True, slots=True)
class Line:
    """One measured way to compute a case. Rates are per second, by the median."""

    operation: str
    shape: str
    rows: int | None
    contestant: str
    seconds: float
    """Median of the rounds."""
    best_seconds: float
    rounds: int
    moved: int
    """Bytes that have to be read and written."""
    of_copy: float
    """Their rate, as a fraction of the measured copy rate."""
    of_fill: float | None
    """Rate of bytes written, as a fraction of the measured fill rate, where that is the work."""
    of_matmul: float | None
    """Rate of multiplications and additions, as a fraction of that of a bfloat16 product."""
    times_ours: float
    """Seconds, as a multiple of those of the first line of the case."""


HEADER = (
    f"{'operation':<27}{'shape':<34}{'M':>4}  {'what':<18}{'ms':>9}{'MB':>8}{'GB/s':>7}"
    f"{'of copy':>9}{'of fill':>9}{'of matmul':>11}{'× ours':>8}"
)


def lines_of(case: Case, timings: Mapping[str, Timing], machine: Machine) -> Iterator[Line]:
    """Yield the lines of a case."""
    ours = timings[case.contestants[0].name].median
    for one in case.contestants:
        timing = timings[one.name]
        moved = one.read + one.written
        yield Line(
            operation=case.operation,
            shape=case.shape,
            rows=case.rows,
            contestant=one.name,
            seconds=timing.median,
            best_seconds=timing.best,
            rounds=timing.rounds,
            moved=moved,
            of_copy=moved / timing.median / machine.copy,
            of_fill=one.written / timing.median / machine.fill if one.written else None,
            of_matmul=(
                case.operations / timing.median / machine.matmul if case.operations else None
            ),
            times_ours=timing.median / ours,
        )


def text_of(line: Line) -> str:
    """Return a line as text."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.0f} %"

    rows = "" if line.rows is None else str(line.rows)
    return (
        f"{line.operation:<27}{line.shape:<34}{rows:>4}  {line.contestant:<18}"
        f"{1e3 * line.seconds:>9.3f}{line.moved / 1e6:>8.1f}{line.moved / line.seconds / 1e9:>7.1f}"
        f"{percent(line.of_copy):>9}{percent(line.of_fill):>9}{percent(line.of_matmul):>11}"
        f"{line.times_ours:>8.2f}"
    )
