"""Numbers, names and tables as people read them."""

from collections import Counter
from collections.abc import Iterable

from rich.table import Table

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def new_table() -> Table:
    """Return an empty table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def bits_per_weight(size: int, weights: int) -> float:
    """Return 8 * size / weights, rounded to a thousandth; 0 where there are no weights."""
    return round(8 * size / weights, 3) if weights else 0.0


def human_bytes(count: int) -> str:
    """Write bytes with a decimal unit and three digits: 4324 million is `4.32 GB`."""
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    number = count / 1000**power
    return f"{number:,.{max(0, 2 - (len(str(count)) - 1) % 3)}f} {_UNITS[power - 1]}"


def human_share(share: float) -> str:
    """Write a share in percent; one that is not quite all, or nothing, is never 100 or 0 %."""
    percent = round(100 * share, 1)
    if percent in (0, 100) and share not in (0, 1):
        percent = 0.1 if percent == 0 else 99.9
    return f"{percent:g} %"


def common_path(patterns: Iterable[str]) -> str:
    """Return how most names begin, up to their first number and the dot behind it."""
    halves = (pattern.partition("*.") for pattern in patterns)
    beginnings = Counter(before + "*." for before, star, _ in halves if star)
    return beginnings.most_common(1)[0][0] if beginnings else ""
