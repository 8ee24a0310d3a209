"""The registry of requirements, read from the normative text.

A statement in the text looks like this, one paragraph under its heading:

    **DQ1-MODULE-PACKING** (MUST, manifest) `packing` is `int{nbits}_packed_u32`.

The first word is the id, then the level and what checks it: the validator at level `manifest`,
`headers` or `tensors`, the suite (`backend`), or `nibblespec exec-check` (`exec`). The paragraph is
the statement.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, cast

Level = Literal["MUST", "SHOULD", "MAY"]
CheckedBy = Literal["manifest", "headers", "tensors", "backend", "exec"]
Severity = Literal["error", "warning", "info"]

SEVERITY: Mapping[Level, Severity] = {"MUST": "error", "SHOULD": "warning", "MAY": "info"}

DOCUMENTS = (
    "files.md",
    "numerics.md",
    "dashq_packed_linear/v1/specification.md",
    "bitnest_package/v1/specification.md",
    "exec_protocol.md",
)
"""The normative text, relative to this package."""

_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)(?: *\{[^}]*\})?$")
_STATEMENT = re.compile(
    r"^\*\*(?P<id>[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+)\*\* "
    r"\((?P<level>MUST|SHOULD|MAY), (?P<checked_by>manifest|headers|tensors|backend|exec)\) "
    r"(?P<text>.+)$"
)
_LOOKS_LIKE_STATEMENT = re.compile(r"^\s*\*\*[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+\*\*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One normative statement: MUST fails, SHOULD warns, MAY informs."""

    id: str
    level: Level
    checked_by: CheckedBy
    text: str
    document: str
    section: str

    @property
    def severity(self) -> Severity:
        """What breaking the requirement counts as."""
        return SEVERITY[self.level]

    @property
    def anchor(self) -> str:
        """The fragment that the site gives the statement."""
        return self.id.lower()


def parse(document: str, text: str) -> list[Requirement]:
    """Read the statements of one Markdown document, in order.

    Raises ValueError, naming document and line, where a paragraph starts like a statement and
    is none.
    """
    found: list[Requirement] = []
    section = ""
    paragraph: list[str] = []
    fenced = False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if heading := _HEADING.match(line):
            section = heading["title"]
        if line.strip() and not heading:
            paragraph.append(line.strip())
            continue
        if paragraph and _LOOKS_LIKE_STATEMENT.match(paragraph[0]):
            match = _STATEMENT.match(" ".join(paragraph))
            if match is None:
                where = f"{document}:{number - len(paragraph)}"
                raise ValueError(
                    f"{where}: expected '**ID** (MUST|SHOULD|MAY, "
                    f"manifest|headers|tensors|backend|exec) text', found {paragraph[0]!r}"
                )
            found.append(
                Requirement(
                    id=match["id"],
                    level=cast(Level, match["level"]),
                    checked_by=cast(CheckedBy, match["checked_by"]),
                    text=match["text"],
                    document=document,
                    section=section,
                )
            )
        paragraph = []
    return found


@cache
def requirements() -> Mapping[str, Requirement]:
    """Return every requirement of the specification by id, in the order of the text.

    Raises ValueError on an id that is stated twice.
    """
    registry: dict[str, Requirement] = {}
    for document in DOCUMENTS:
        text = files("nibblespec.spec").joinpath(document).read_text(encoding="utf-8")
        for requirement in parse(document, text):
            if requirement.id in registry:
                first = registry[requirement.id].document
                raise ValueError(f"{requirement.id} is stated in {first} and again in {document}")
            registry[requirement.id] = requirement
    return registry
