"""An inspection as text that a person enjoys reading, and as JSON."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from nibblespec.conformance.artifacts.inspect import Inspection, Kind, Split, layer_noun
from nibblespec.conformance.artifacts.inspect_files import Stored
from nibblespec.conformance.artifacts.output.render_inspect_files import coverage, sizes_on_disk
from nibblespec.conformance.artifacts.output.tables import (
    add_names,
    bits_per_weight,
    common_path,
    fitted,
    human_bytes,
    human_share,
    new_table,
)
from nibblespec.conformance.terminal import render, visible
from nibblespec.spec.json_faults import clean
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

MOST_KINDS = 40
"""Rows of a table; JSON has them all."""

MOST_WIDTHS = 6


def inspection_text(
    path: str, found: Inspection, stored: Stored | None = None, *, width: int, colour: bool
) -> str:
    """Lay out an inspection for a terminal, with what is stored where that is known."""
    return render(*_parts(path, found, stored, width), width=width, colour=colour)


def inspection_json(path: str, found: Inspection, stored: Stored | None = None) -> str:
    """Write an inspection as one JSON document, with every kind of layer."""
    document = {
        "inspection_version": 1,
        "path": clean(path),
        **asdict(found),
        "bits_per_weight": bits_per_weight(sum(found.parts.values()), found.weights),
        "stored": None if stored is None else asdict(stored),
    }
    return json.dumps(document, indent=2) + "\n"


def _parts(
    path: str, found: Inspection, stored: Stored | None, width: int
) -> Iterator[RenderableType]:
    shown = found.kinds[:MOST_KINDS]
    prefix = common_path(kind.pattern for kind in shown)
    names = [visible(kind.pattern.removeprefix(prefix)) for kind in shown]
    yield Text.assemble((visible(path), "bold"), f": {found.format}", _model(found))
    bits = bits_per_weight(sum(found.parts.values()), found.weights)
    yield Text(
        f"{found.layers:,} {layer_noun(found.format)}, {found.weights:,} weights in "
        f"{found.groups:,} groups, {bits} bits per weight"
    )
    yield from _widths(found)
    yield ""
    if stored is None:
        yield _sizes(found)
    else:
        yield from sizes_on_disk(found, stored, width)
        yield ""
        yield from coverage(stored, width)
    if not shown:
        return
    yield ""
    yield Text.assemble(
        (layer_noun(found.format).capitalize(), "bold"),
        f" (names without {visible(prefix)})" if prefix else "",
    )
    yield fitted(_layers(found, shown, names, width), width)
    if len(found.kinds) > MOST_KINDS:
        yield Text(f"and {len(found.kinds) - MOST_KINDS:,} more kinds: see --format json", "dim")
    yield ""
    yield Text.assemble(
        ("Tensor parallelism", "bold"),
        f": cuts that keep groups and {_unit(found)} whole (N rows, K columns)",
    )
    yield fitted(_splits(found, shown, names, width), width)
    yield from _split_notes(shown)


def _model(found: Inspection) -> str:
    return f", {visible(found.model)}" if found.model else ""


def _widths(found: Inspection) -> Iterator[Text]:
    """Yield the mix of widths, where there is one."""
    if len(found.widths) < 2:
        return
    for width in found.widths[:MOST_WIDTHS]:
        noun = layer_noun(found.format).removesuffix("s" if width.layers == 1 else "")
        share = human_share(width.weights / found.weights)
        yield Text(
            f"{width.bits} bits in groups of {width.group_size:,}: {width.layers:,} {noun}, "
            f"{share} of the weights"
        )
    if len(found.widths) > MOST_WIDTHS:
        yield Text(f"and {len(found.widths) - MOST_WIDTHS:,} more: see --format json", "dim")


def _sizes(found: Inspection) -> Table:
    table = new_table()
    table.add_column("part")
    table.add_column("size", justify="right")
    table.add_column("bits per weight", justify="right")
    for part, size in found.parts.items():
        table.add_row(part, human_bytes(size), _bits(size, found))
    total = sum(found.parts.values())
    table.add_row("in all", human_bytes(total), _bits(total, found), style="bold")
    if found.draft_bytes is not None:
        table.add_row(
            "a draft reads", human_bytes(found.draft_bytes), _bits(found.draft_bytes, found)
        )
    return table


def _layers(found: Inspection, kinds: Sequence[Kind], names: Sequence[str], width: int) -> Table:
    nested = found.draft_bytes is not None
    table = new_table()
    add_names(table, "kind", names, width)
    for heading in ("count", "N", "K", "bits", "group", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    if nested:
        table.add_column("input")
    for kind, name in zip(kinds, names, strict=True):
        layer = kind.example
        table.add_row(
            name,
            f"{kind.count:,}",
            f"{layer.rows:,}",
            f"{layer.columns:,}",
            "4+4" if nested else str(layer.bits),
            f"{layer.group_size:,}",
            human_bytes(kind.count * layer.bytes),
            *([layer.input] if nested else []),
        )
    return table


def _splits(found: Inspection, kinds: Sequence[Kind], names: Sequence[str], width: int) -> Table:
    table = new_table()
    whole = f"all {layer_noun(found.format)}"
    add_names(table, "kind", (*names, whole), width)
    for dimension in ("N", "K"):
        table.add_column(f"{dimension} into", no_wrap=True)
        table.add_column("step", justify="right", no_wrap=True)
    for kind, name in zip(kinds, names, strict=True):
        rows, columns = kind.example.row_split, kind.example.column_split
        table.add_row(name, _ways(rows.ways), _step(rows), _ways(columns.ways), _step(columns))
    table.add_row(
        whole,
        _ways(_shared(kind.example.row_split for kind in found.kinds)),
        "",
        _ways(_shared(kind.example.column_split for kind in found.kinds)),
        "",
        style="bold",
    )
    return table


def _shared(splits: Iterable[Split]) -> tuple[int, ...]:
    """Return the numbers of parts that are legal for all."""
    first, *others = (split.ways for split in splits)
    return tuple(parts for parts in first if all(parts in ways for ways in others))


def _split_notes(kinds: Sequence[Kind]) -> Iterator[Text]:
    yield Text("Unequal parts are multiples of the step. Heads are not considered.", "dim")
    if any(kind.example.column_split.step is None for kind in kinds):
        yield Text("–: cannot be cut there without packing anew.", "dim")
    if any("Hadamard" in kind.example.input for kind in kinds):
        yield Text("Hadamard: transform the whole input before it is cut along K.", "dim")


def _ways(ways: Sequence[int]) -> str:
    """List the legal numbers of parts up to 16, with a mark where there are larger ones."""
    small = [str(parts) for parts in ways if parts <= 16]
    more = ["…"] if any(parts > 16 for parts in ways) else []
    return " ".join(small + more) or "–"


def _step(split: Split) -> str:
    return f"{split.step:,}" if split.step else "–"


def _unit(found: Inspection) -> str:
    return "words" if found.draft_bytes is None else "bytes"


def _bits(size: int, found: Inspection) -> str:
    return f"{bits_per_weight(size, found.weights):.3f}"
