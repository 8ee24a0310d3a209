"""Tables and figure of the SmolLM2 measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from torch import Tensor

BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"

COLORS = {"original": "#888888", "bitnest": "#0b6e4f", "dashq": "#5b7db1"}
LABEL, WIDTH, BAR = 200, 300, 20


@dataclass(frozen=True, slots=True)
class Quality:
    """How well one form of the model predicts the text."""

    name: str
    size: int
    """Bytes of tensor files."""
    perplexity: float
    ratio: float
    """To the original's perplexity."""
    error: float
    """Standard error of the ratio, from the differences token by token."""

    @staticmethod
    def of(name: str, size: int, losses: Tensor, original: Tensor) -> "Quality":
        """Summarize the losses of tokens, float64 [n], beside those of the original."""
        differences = losses - original
        ratio = math.exp(float(differences.mean()))
        error = ratio * float(differences.std()) / math.sqrt(len(losses))
        return Quality(name, size, math.exp(float(losses.mean())), ratio, error)


@dataclass(frozen=True, slots=True)
class Decoding:
    """Greedy decoding with γ drafts a round, all prompts together; γ = 0 is the target alone."""

    gamma: int
    tokens: int
    rounds: int
    drafted: tuple[int, ...]
    """By position in a round."""
    accepted: tuple[int, ...]
    seconds: float
    cpu_seconds: float
    """Time that the process computed, all threads together: what else runs takes none of it."""

    @property
    def acceptance(self) -> float:
        """Drafted tokens that were accepted, as a share of all."""
        return sum(self.accepted) / max(1, sum(self.drafted))


def quality_table(qualities: Sequence[Quality]) -> str:
    """Return a Markdown table."""
    lines = ["| model | MB | perplexity | to the original |", "|---|---:|---:|---:|"]
    for one in qualities:
        if one.ratio == 1:
            change = ""
        elif one.ratio < 2:
            change = f"{100 * (one.ratio - 1):+.2f} % ± {100 * one.error:.2f}"
        else:
            change = f"× {_short(one.ratio)} ± {_short(one.error)}"
        lines.append(f"| {one.name} | {one.size / 1e6:.1f} | {_short(one.perplexity)} | {change} |")
    return "\n".join(lines) + "\n"


def decoding_table(decodings: Sequence[Decoding]) -> str:
    """Return a Markdown table."""
    lines = [
        "| γ | accepted | by position | tokens a run of the target | tokens/s | tokens/CPU s |",
        "|---:|---:|---|---:|---:|---:|",
    ]
    for one in decodings:
        pairs = zip(one.accepted, one.drafted, strict=True)
        places = ", ".join(f"{100 * hits / max(1, drafts):.0f} %" for hits, drafts in pairs)
        accepted = f"{100 * one.acceptance:.1f} %" if one.gamma else ""
        lines.append(
            f"| {one.gamma or 'target alone'} | {accepted} | {places} | "
            f"{one.tokens / max(1, one.rounds):.2f} | {one.tokens / one.seconds:.1f} | "
            f"{one.tokens / one.cpu_seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"


def figure(qualities: Sequence[Quality], decodings: Sequence[Decoding]) -> str:
    """Return an SVG: how much perplexity grows, and tokens from a run of the target."""
    parts = [_text(12, 22, "perplexity above the original's (log scale), and size", "start")]
    y = 40
    for one in qualities:
        increase = 100 * (one.ratio - 1)
        # From 0.1 % to 10,000 %, five decades.
        length = max(0.0, min(1.0, (math.log10(max(increase, 0.1)) + 1) / 5)) * WIDTH
        color = COLORS[one.name.split()[0].rstrip(",")]
        label = f"{increase:+.2f} %, " if one.ratio < 2 else f"× {_short(one.ratio)}, "
        label = "" if one.ratio == 1 else label
        parts.append(_text(LABEL - 8, y + 14, one.name, "end"))
        parts.append(_bar(LABEL, y, max(2.0, length), color))
        parts.append(_text(LABEL + length + 8, y + 14, f"{label}{one.size / 1e6:.0f} MB", "start"))
        y += BAR + 4
    y += 24
    parts.append(_text(12, y, "tokens from one run of the target, by γ", "start"))
    y += 12
    for each in decodings:
        rate = each.tokens / max(1, each.rounds)
        length = rate / 6 * WIDTH
        name = f"γ = {each.gamma}" if each.gamma else "target alone"
        accepted = f", {100 * each.acceptance:.0f} % accepted" if each.gamma else ""
        parts.append(_text(LABEL - 8, y + 14, name, "end"))
        parts.append(_bar(LABEL, y, length, COLORS["bitnest"]))
        parts.append(_text(LABEL + length + 8, y + 14, f"{rate:.2f}{accepted}", "start"))
        y += BAR + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 170}" height="{y + 12}" '
        f'font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def replace_block(page: Path, text: str) -> None:
    """Put the text between the marks of a page. Raises ValueError where they are missing."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: expected the marks {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
