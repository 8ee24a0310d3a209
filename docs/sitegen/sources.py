"""Which pages are files from elsewhere in the repository, and where links in them lead."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from nibblespec.spec.requirements import DOCUMENTS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SPEC = ROOT / "spec"
SPECIFICATION = "specification"

_STATEMENT = re.compile(
    r"^\*\*([A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+)\*\*(?= \((?:MUST|SHOULD|MAY),)", re.M
)
_LINK = re.compile(r"(?P<label>!?\[[^\]]*\])\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```)", re.M | re.S)


def page_of_chapter(document: str) -> str:
    """Name the page of a chapter, with the version in its address.

    `dashq_packed_linear/v1/specification.md` has `specification/dashq-packed-linear-v1.md`.
    """
    stem = document.removesuffix(".md").removesuffix("/specification")
    return f"{SPECIFICATION}/{stem.replace('/', '-').replace('_', '-')}.md"


def title_of(document: str) -> str:
    """Return the heading of a chapter."""
    first, _, _ = (SPEC / document).read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ")


@cache
def pages() -> Mapping[str, Path]:
    """Return the pages and drawings that lie elsewhere, by their path in the site's sources."""
    chapters = {path.relative_to(SPEC).as_posix(): path for path in sorted(SPEC.rglob("*.md"))}
    drawings = {
        f"{SPECIFICATION}/{path.relative_to(SPEC).as_posix()}": path
        for path in sorted(SPEC.rglob("*.svg"))
    }
    missing = [document for document in DOCUMENTS if document not in chapters]
    if missing:
        raise ValueError(f"spec/: no chapter {', '.join(missing)}")
    return {
        **{page_of_chapter(document): path for document, path in chapters.items()},
        **drawings,
        "vectors.md": ROOT / "conformance" / "vectors" / "README.md",
        "corpus.md": ROOT / "schemas" / "corpus" / "README.md",
        "contributing.md": ROOT / "CONTRIBUTING.md",
        "changelog.md": ROOT / "CHANGELOG.md",
    }


def prepared(page: str, markdown: str) -> str:
    """Return the text of a page of `pages()` as the site needs it: anchors, and links that fit."""
    parts = _FENCE.split(markdown)
    parts[::2] = [
        _LINK.sub(lambda match: _relinked(page, match), _STATEMENT.sub(_anchored, part))
        for part in parts[::2]
    ]
    return "".join(parts)


def _anchored(match: re.Match[str]) -> str:
    """Make a statement a link target: its id in lower case."""
    anchor = match[1].lower()
    return f'<a id="{anchor}" href="#{anchor}">**{match[1]}**</a>'


def _relinked(page: str, match: re.Match[str]) -> str:
    """Turn a link between files of the repository into one between pages.

    What is no page keeps its label alone. A link that leads nowhere stays, for the build to refuse.
    """
    target = (pages()[page].parent / match["target"]).resolve()
    if not target.exists():
        return match[0]
    known = {path: name for name, path in pages().items()}
    if target.is_relative_to(DOCS):
        found = target.relative_to(DOCS).as_posix()
    elif target in known:
        found = known[target]
    else:
        return match["label"].strip("[]") if match["label"][0] != "!" else ""
    relative = os.path.relpath(found, PurePosixPath(page).parent)
    return f"{match['label']}({relative}{match['anchor'] or ''})"
