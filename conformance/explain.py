"""What a requirement or an operation says, for `nibblespec explain`."""

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import groupby

from nibblespec.conformance.terminal import render, visible
from nibblespec.spec.requirements import Requirement, requirements
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

_CONSEQUENCE = {
    "MUST": "breaking it is an error",
    "SHOULD": "breaking it is a warning",
    "MAY": "where this is so, an info",
}
_CHECKER = {
    "manifest": "nibblespec validate, from the manifest alone",
    "headers": "nibblespec validate, from the files beside the manifest and their headers",
    "tensors": "nibblespec validate, from the contents of the tensors",
    "backend": "the conformance suite, on a backend",
    "exec": "nibblespec exec-check, on an adapter",
}


class UnknownRequirementError(ValueError):
    """There is no such requirement or operation; the message names what comes close."""


def find_requirement(requirement_id: str) -> Requirement:
    """Return a requirement by its id in any case. Raises UnknownRequirementError."""
    known = requirements()
    wanted = requirement_id.upper()
    if wanted in known:
        return known[wanted]
    from nibblespec.spec import operations  # noqa: PLC0415 (late, as it imports NumPy)

    # Operations are called by names in lower case: what comes close to one is no id.
    close = get_close_matches(requirement_id.lower()[:100], operations.OPERATIONS, n=3, cutoff=0.7)
    close = close or get_close_matches(wanted[:100], known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`nibblespec explain` lists all"
    raise UnknownRequirementError(f"no requirement or operation {visible(requirement_id)}; {hint}")


def requirement_text(requirement: Requirement, *, width: int, colour: bool) -> str:
    """Lay out one requirement: id, level, text, who checks it, and where it stands."""
    return render(*_explained(requirement), width=min(width, 100), colour=colour)


def operation_text(name: str) -> str | None:
    """Return the call of an operation and what it computes; None where there is none so named."""
    name = name.lower()
    if "-" in name:
        return None  # the id of a requirement
    from nibblespec.spec import operations  # noqa: PLC0415 (late, as it imports NumPy)

    if name not in operations.OPERATIONS:
        return None
    protocol = getattr(operations, name.title().replace("_", ""))
    parameters = [one for one in inspect.signature(protocol.__call__).parameters if one != "self"]
    said = inspect.getdoc(protocol.__call__) or ""
    return f"{name}({', '.join(parameters)})\n\n{said}\n"


def requirements_text(*, width: int, colour: bool) -> str:
    """List all requirements, with level and checker, under the documents they stand in."""
    return render(*_listed(width), width=width, colour=colour)


def _explained(requirement: Requirement) -> Iterator[RenderableType]:
    yield Text.assemble(
        (requirement.id, "bold cyan"),
        f"  {requirement.level}: {_CONSEQUENCE[requirement.level]}",
    )
    yield ""
    yield Padding(marked_up(requirement), (0, 0, 0, 2), expand=False)
    yield ""
    yield Text(f"checked by  {_CHECKER[requirement.checked_by]}", "dim")
    yield Text(f"stated in   spec/{requirement.document}, {requirement.section}", "dim")


def _listed(width: int) -> Iterator[RenderableType]:
    known = requirements().values()
    longest = max(len(requirement.id) for requirement in known)
    for document, stated in groupby(known, lambda requirement: requirement.document):
        yield Text(f"spec/{document}", "bold")
        for requirement in stated:
            line = Text()
            line.append(f"{requirement.id:<{longest}}  ", "cyan")
            line.append(f"{requirement.level:<6}  {requirement.checked_by:<8}  ")
            line.append_text(marked_up(requirement))
            line.truncate(width, overflow="ellipsis")
            yield line
        yield ""


def marked_up(requirement: Requirement) -> Text:
    """Return the statement with its `code` in bold."""
    styled = Text(requirement.text)
    styled.highlight_regex("`[^`]*`", "bold")
    return styled
