"""What a built page holds: anchors, links, what it loads, headings, labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

LOADING = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "object": ("data",),
    "form": ("action",),
}
"""Attributes that make a browser ask for something."""


@dataclass(slots=True)
class Page:
    """What the checks look at."""

    anchors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    images_without_text: list[str] = field(default_factory=list)
    language: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Note what a tag adds."""
        given = {name: value or "" for name, value in attrs}
        page = self.page
        page.anchors += [given[name] for name in ("id", "name") if given.get(name)]
        if tag == "a" and "href" in given:
            page.links.append(given["href"])
        if tag == "html":
            page.language = given.get("lang", "")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            page.headings.append(tag)
        if tag == "img" and "alt" not in given:
            page.images_without_text.append(given.get("src", ""))
        if tag != "link" or given.get("rel") not in ("canonical", "next", "prev"):
            page.loads += [given[name] for name in LOADING.get(tag, ()) if given.get(name)]


def read(file: Path) -> Page:
    """Read one built page."""
    reader = _Reader()
    reader.feed(file.read_text(encoding="utf-8"))
    return reader.page
