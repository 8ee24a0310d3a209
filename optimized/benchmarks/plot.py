"""The plot: a bar for each line of the table, as an SVG."""

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

from nibblespec.optimized.benchmarks.table import Line

COLORS = {
    "ours": "#0b6e4f",
    "ours, target": "#0b6e4f",
    "ours, draft": "#73b48f",
    "ours, new": "#73b48f",
    "bf16 F.linear": "#c2571a",
    "bf16 SDPA": "#c2571a",
    "formula compiled": "#5b7db1",
    "compiled, new": "#8aa3c9",
    "formula": "#b7c4d9",
    "formula, new": "#b7c4d9",
    "plain PyTorch": "#b7c4d9",
    "gemlite": "#8e5ea2",
    "fill, new": "#aaaaaa",
}
LABEL, WIDTH, BAR, GAP = 430, 520, 13, 10


def svg(title: str, lines: Sequence[Line]) -> str:
    """Return bars of milliseconds on a logarithmic scale, the lines of a case together."""
    shortest = min((line.seconds for line in lines), default=1e-3)
    longest = max((line.seconds for line in lines), default=1.0)
    low, high = math.floor(math.log10(shortest * 1e3)), math.ceil(math.log10(longest * 1e3))
    unit = WIDTH / max(1, high - low)
    parts, y = [], 60
    for case, of_case in groupby(lines, key=lambda line: (line.operation, line.shape, line.rows)):
        operation, shape, rows = case
        label = f"{operation}, {shape}" + ("" if rows is None else f", M = {rows}")
        parts.append(_text(LABEL - 10, y + BAR - 3, label, "end"))
        for line in of_case:
            length = max(1.0, (math.log10(line.seconds * 1e3) - low) * unit)
            color = COLORS.get(line.contestant, "#888888")
            parts.append(
                f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR - 2}" '
                f'fill="{color}"/>'
            )
            caption = f"{line.contestant}: {line.seconds * 1e3:.3g} ms"
            parts.append(_text(LABEL + length + 5, y + BAR - 3, caption, "start"))
            y += BAR
        y += GAP
    for power in range(low, high + 1):
        x = LABEL + (power - low) * unit
        parts.append(f'<path d="M{x:.1f} 46V{y}" stroke="#dddddd"/>')
        parts.append(_text(x, 42, f"{10.0**power:g} ms", "middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 220}" '
        f'height="{y + 20}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        + _text(12, 20, title, "start")
        + "\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
