"""Every requirement id in the text of a page leads to its statement."""

import os
import re
from pathlib import PurePosixPath

from nibblespec.spec.requirements import requirements

from sitegen.sources import page_of_chapter

_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</?([a-zA-Z0-9]+)")
_ID = re.compile(r"(?<![\w-])[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+(?![\w-])")
_LEFT_ALONE = frozenset(("a", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "script", "style", "svg"))


def address(requirement_id: str) -> str:
    """Return where a statement is, relative to the site's root: page and anchor."""
    requirement = requirements()[requirement_id]
    page = page_of_chapter(requirement.document).removesuffix(".md")
    return f"{page}.html#{requirement.anchor}"


def linked(html: str, url: str) -> str:
    """Return the HTML of the page at `url` with links from ids to statements.

    Code in a line is searched too; headings, links and blocks of code are not.
    """
    folder = PurePosixPath(url).parent

    def link(match: re.Match[str]) -> str:
        if match[0] not in requirements():
            return match[0]
        return f'<a href="{os.path.relpath(address(match[0]), folder)}">{match[0]}</a>'

    closed_by: list[str] = []
    parts = _TAG.split(html)
    for number, part in enumerate(parts):
        if number % 2 == 0:
            parts[number] = part if closed_by else _ID.sub(link, part)
        elif name := _NAME.match(part):
            tag = name[1].lower()
            if part.startswith("</") and closed_by and closed_by[-1] == tag:
                closed_by.pop()
            elif tag in _LEFT_ALONE and not part.startswith("</") and not part.endswith("/>"):
                closed_by.append(tag)
    return "".join(parts)
