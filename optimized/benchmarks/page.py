"""`python -m nibblespec.optimized.benchmarks.page FIGURES PAGE`: the tables of a page, from a run.

FIGURES is what `--json` writes. In PAGE, what is between the lines `<!-- figures -->` and
`<!-- end of figures -->` is replaced.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"

TABLES = {
    "reconstruct": "Reconstructed weights",
    "dashq linear": "Packed layers",
    "nested linear": "Nested layers",
    "": "Other operations",
}
"""What operations of a table have in their name, and its title."""

CASE = ("operation", "shape", "rows")
"""What lines of a case have in common."""

Line = Mapping[str, Any]
"""A line of the table, as `--json` writes it."""


def main(arguments: Sequence[str]) -> int:
    """Write the figures of a run into a page."""
    figures, page = map(Path, arguments)
    text = page.read_text(encoding="utf-8")
    found = json.loads(figures.read_text(encoding="utf-8"))
    page.write_text(with_figures(text, found), encoding="utf-8")
    return 0


def with_figures(page: str, found: Mapping[str, Any]) -> str:
    """Return a page with the figures of a run in their place."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()!r} and {END!r}")
    return before + begin + "\n" + text_of(found) + "\n" + end + after


def text_of(found: Mapping[str, Any]) -> str:
    """Return the machine and the tables as Markdown."""
    machine, lines = found["machine"], found["lines"]
    parts = [
        f"{machine['name']}, {machine['threads']} threads; {machine['device']}; "
        f"PyTorch {machine['torch']}; {machine['date'][:10]}. "
        f"Fill {machine['fill'] / 1e9:.1f} GB/s, copy {machine['copy'] / 1e9:.1f} GB/s, "
        f"bfloat16 product {machine['matmul'] / 1e9:.0f} GFLOP/s; "
        f"{machine['load']:.1f} other programs ran.",
    ]
    for words, title in TABLES.items():
        chosen = [line for line in lines if table_of(line) == words]
        if chosen:
            parts += [f"### {title}", "\n".join(rows_of(chosen))]
    return "\n\n".join(parts) + "\n"


def table_of(line: Line) -> str:
    """Return what table a line belongs in, a key of TABLES."""
    return next(words for words in TABLES if words in line["operation"])


def rows_of(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the rows of a table: a row for each case, a column for each peer."""
    peers = list(dict.fromkeys(line["contestant"] for line in lines))
    first = peers[0]
    yield f"| operation | shape | M | {first}, ms | of the rate | {' | '.join(peers[1:])} |"
    yield "|---|---|" + "--:|" * (2 + len(peers))
    for case, of_case in groupby(lines, key=lambda line: [line[key] for key in CASE]):
        by_name = {line["contestant"]: line for line in of_case}
        ours = next(iter(by_name.values()))
        written = ours["of_fill"] is not None
        rate = f"{100 * ours['of_fill' if written else 'of_copy']:.0f} %"
        ratios = [
            f"{by_name[peer]['times_ours']:.2f} ×" if peer in by_name else "" for peer in peers[1:]
        ]
        operation, shape, rows = case
        cells = [operation, shape, "" if rows is None else rows, f"{1e3 * ours['seconds']:.3g}"]
        yield f"| {' | '.join(map(str, [*cells, rate, *ratios]))} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
