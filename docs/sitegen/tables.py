"""Markdown tables, and what has to be escaped in them."""

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; cells are Markdown."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([cell(str(one)) for one in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Keep a text in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def listed(names: list[str], most: int = 3) -> str:
    """Return the first names as code, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
