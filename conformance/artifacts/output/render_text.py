"""Reports as text that fits one screen: equal findings are one entry."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from nibblespec.conformance.artifacts.findings import Finding, count, worst
from nibblespec.conformance.artifacts.inspect import count_layers, count_weights, layer_noun
from nibblespec.conformance.artifacts.validate import STDIN, Failure, Report
from nibblespec.conformance.terminal import render, visible
from nibblespec.spec.formats import Format
from nibblespec.spec.requirements import Severity
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

MOST_ENTRIES = 12
"""Entries of one report; JSON and SARIF have every finding."""

_STYLE: Mapping[Severity, str] = {
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
}
_LISTS = ("quantized_modules", "layers")
"""Keys of a manifest whose members are modules."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Findings of one requirement with one message."""

    first: Finding
    findings: Sequence[Finding]
    unlisted: int = 0
    """How many more findings of the requirement there are, which are not listed."""


def reports_text(
    reports: Sequence[Report],
    failures: Sequence[Failure],
    *,
    strict: bool,
    width: int,
    colour: bool,
) -> str:
    """Lay out reports for a terminal; with `strict`, warnings count as failures."""
    parts: list[RenderableType] = []
    spaced = False
    for report in reports:
        if parts and (report.findings or spaced):
            parts.append("")
        parts += _report(report, strict=strict)
        spaced = bool(report.findings)
    if len(reports) + len(failures) > 1 and (failures or any(map(_failed, reports))):
        parts += ["", _tally(reports, failures)]
    return render(*parts, width=width, colour=colour)


def entries(findings: Iterable[Finding]) -> list[Entry]:
    """Collect findings by requirement and message, errors first.

    Those that are not listed are counted with the last entry of their requirement.
    """
    alike: dict[tuple[str, str], list[Finding]] = {}
    last: dict[str, tuple[str, str]] = {}
    unlisted: Counter[tuple[str, str]] = Counter()
    for found in findings:
        key = found.requirement, found.message
        if found.unlisted and found.requirement in last:
            unlisted[last[found.requirement]] += found.unlisted
        else:
            alike.setdefault(key, []).append(found)
            last[found.requirement] = key
    collected = [Entry(found[0], found, unlisted[key]) for key, found in alike.items()]
    order = list(_STYLE)
    return sorted(collected, key=lambda entry: order.index(entry.first.severity))


def places(findings: Sequence[Finding], manifest: str) -> str:
    """Say where findings are: the place of one, the number of more with an example.

    Empty where that is the whole manifest; `manifest` is its name, which goes without saying.
    """
    example = _place(findings[0], manifest)
    if len(findings) == 1 or not example:
        return example
    modules = {_module(found) for found in findings}
    noun = "modules" if "" not in modules and len(modules) == len(findings) else "places"
    return f"{len(findings):,} {noun}, e.g. {example}"


def _report(report: Report, *, strict: bool) -> Iterator[RenderableType]:
    listed = entries(report.findings)
    for entry in listed[:MOST_ENTRIES]:
        yield from _entry(entry, PurePath(report.path).name)
    if len(listed) > MOST_ENTRIES:
        more = f"and {len(listed) - MOST_ENTRIES:,} more kinds of finding: --format json has all"
        yield Text(more, "dim")
    yield _verdict(report, strict=strict)


def _entry(entry: Entry, manifest: str) -> Iterator[RenderableType]:
    first = entry.first
    yield Text.assemble(
        (first.severity, _STYLE[first.severity]),
        f" {first.requirement}: ",
        (visible(first.message), "bold"),
    )
    more = f"{entry.unlisted:,} more of this requirement" if entry.unlisted else ""
    if where := ", and ".join(filter(None, (places(entry.findings, manifest), more))):
        yield _indented(where)
    contrast = [
        f"{label} {visible(value)}"
        for label, value in (("expected", first.expected), ("found", first.found))
        if value
    ]
    if contrast:
        yield _indented(", ".join(contrast))
    if first.hint:
        yield _indented(f"hint: {visible(first.hint, 400)}")


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 4), expand=False)


def _verdict(report: Report, *, strict: bool) -> Text:
    name = "standard input" if report.path == STDIN else visible(report.path)
    counts = count(report.findings)
    summary = _counted(counts)
    if counts["error"]:
        ids = [found.requirement for found in report.findings if found.severity == "error"]
        return Text.assemble(("✗ ", "bold red"), (name, "bold"), f": {summary}", _explain(ids[0]))
    subject = f": {_described(report)}"
    if counts["warning"]:
        ids = [found.requirement for found in report.findings if found.severity == "warning"]
        mark = ("✗ ", "bold red") if strict else ("✓ ", "bold yellow")
        failed = ", which --strict forbids" if strict else ""
        return Text.assemble(
            mark, (name, "bold"), subject, f", with {summary}{failed}", _explain(ids[0])
        )
    also = f", with {summary}" if summary else ""
    return Text.assemble(("✓ ", "bold green"), (name, "bold"), subject, also)


def _explain(requirement: str) -> tuple[str, str]:
    return (f" (nibblespec explain {requirement})", "dim")


def _counted(counts: Counter[Severity]) -> str:
    """Write `2 errors, 1 warning`; empty where there is nothing to count."""
    return ", ".join(
        f"{counts[severity]:,} {severity}{'' if counts[severity] == 1 else 's'}"
        for severity in _STYLE
        if counts[severity]
    )


def _described(report: Report) -> str:
    """Say what was found valid: how much of it, its format, modules and weights."""
    scope = "manifest" if report.level == "manifest" else f"checkpoint ({report.level} checked)"
    if report.format is None or report.manifest is None:
        return f"valid {scope} of no known format"
    layers, weights = count_layers(report.manifest), count_weights(report.manifest)
    noun = layer_noun(report.format.id)
    return f"valid {scope} of {format_title(report.format)}, {layers:,} {noun}, {weights:,} weights"


def _failed(report: Report) -> bool:
    return worst(report.findings) == "error"


def _tally(reports: Sequence[Report], failures: Sequence[Failure]) -> Text:
    invalid = sum(map(_failed, reports))
    counts = {
        "valid": len(reports) - invalid,
        "with errors": invalid,
        "could not be read": len(failures),
    }
    return Text(", ".join(f"{number:,} {what}" for what, number in counts.items() if number))


def format_title(known: Format) -> str:
    """Name a format with its version, once."""
    version = f"v{known.version}"
    return known.id if known.id.endswith(version) else f"{known.id} {version}"


def _module(found: Finding) -> str:
    """Return the module that a finding is about, empty where it is about none."""
    if found.tensor:
        return found.tensor.rpartition(".")[0]
    parts = found.pointer.split("/")
    return parts[2] if len(parts) > 2 and parts[1] in _LISTS else ""


def _place(found: Finding, manifest: str) -> str:
    position = f"line {found.line}, column {found.column}" if found.line else ""
    where = f"tensor {found.tensor}" if found.tensor else found.pointer
    file = "" if found.file == manifest else found.file
    return visible(": ".join(filter(None, (file, position, where))), 300)
