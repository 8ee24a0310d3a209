"""Numbers, names and tables as people read them."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

_NAME = 24
"""Columns that a name gets before it is folded, or a third of the terminal."""

_PADDING = 2

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def new_table() -> Table:
    """Return an empty table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, _PADDING, 0, 0), header_style="dim")


def add_names(table: Table, heading: str, names: Sequence[str], width: int) -> None:
    """Add the column of names for a terminal of so many columns; the longest names are folded."""
    longest = max(map(cell_len, (heading, *names)))
    table.add_column(heading, overflow="fold", width=min(longest, max(_NAME, width // 3)))


def fitted(table: Table, width: int) -> RenderableType:
    """Return the table or, where something would be cut off, a block for each row."""
    if sum(map(_least, table.columns)) - _PADDING <= width:
        return table
    headings = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return Group(*(_block(headings, list(map(str, row))) for row in rows))


def _least(column: Column) -> int:
    """Return the least columns that a column needs, with its padding."""
    if column.width is not None:
        return column.width + _PADDING
    cells = [str(column.header), *map(str, column.cells)]
    pieces = cells if column.no_wrap else [word for cell in cells for word in cell.split()]
    return max(map(cell_len, pieces), default=0) + _PADDING


def _block(headings: Sequence[str], row: Sequence[str]) -> RenderableType:
    """Lay out a row: its first cell, and below it the others behind their headings."""
    cells = ", ".join(
        f"{heading} {cell}" for heading, cell in zip(headings[1:], row[1:], strict=True) if cell
    )
    return Group(Text(row[0], "bold"), Padding(Text(cells), (0, 0, 0, 2), expand=False))


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
