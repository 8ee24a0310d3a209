"""The blocks of code of a page: what they are, what they are called, and which do not run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?"
    r'^```(?P<kind>[\w-]*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)
_SNIPPET = re.compile(r'^--8<-- "(?P<path>[^"]+)"\n', re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code."""

    kind: str
    text: str
    title: str
    """Name of the file that it is, or empty."""
    reason: str
    """Why it does not run, or empty."""


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    found = []
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        text = _SNIPPET.sub(_included, match["text"])
        found.append(Block(match["kind"], text, match["title"] or "", match["reason"] or ""))
    return found


def _included(match: re.Match[str]) -> str:
    return (ROOT / match["path"]).read_text(encoding="utf-8")
