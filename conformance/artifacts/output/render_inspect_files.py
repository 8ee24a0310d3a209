"""What the tensor files of a checkpoint hold, as text for a terminal."""

from collections.abc import Iterator

from nibblespec.conformance.artifacts.inspect import Inspection
from nibblespec.conformance.artifacts.inspect_files import UNQUANTIZED, Part, Stored
from nibblespec.conformance.artifacts.output.tables import (
    add_names,
    bits_per_weight,
    common_path,
    fitted,
    human_bytes,
    human_share,
    new_table,
)
from nibblespec.conformance.terminal import visible
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

MOST_KINDS = 20
"""Rows of unquantized layers; JSON has them all."""


def sizes_on_disk(found: Inspection, stored: Stored, width: int) -> Iterator[RenderableType]:
    """Lay out the sizes that the manifest implies beside those of the files."""
    yield fitted(_sizes(found, stored), width)
    if any(_differs(part) for part in stored.parts):
        yield Text("!: not what the manifest implies; nibblespec validate says more", "yellow")


def coverage(stored: Stored, width: int) -> Iterator[RenderableType]:
    """Lay out which linear layers are not quantized."""
    count = sum(kind.count for kind in stored.unquantized)
    weights = sum(kind.count * kind.rows * kind.columns for kind in stored.unquantized)
    if not count:
        yield Text.assemble(
            ("Not quantized", "bold"), f": none of {stored.linear_layers:,} linear layers"
        )
        return
    yield Text.assemble(
        ("Not quantized", "bold"),
        f": {count:,} of {stored.linear_layers:,} linear layers, {weights:,} of "
        f"{stored.linear_weights:,} weights ({human_share(1 - stored.coverage)})",
    )
    shown = stored.unquantized[:MOST_KINDS]
    prefix = common_path(kind.pattern for kind in shown)
    table = new_table()
    heading = f"kind (without {visible(prefix)})" if prefix else "kind"
    names = [visible(kind.pattern.removeprefix(prefix)) for kind in shown]
    add_names(table, heading, names, width)
    for heading in ("count", "N", "K", "dtype", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, name in zip(shown, names, strict=True):
        table.add_row(
            name,
            f"{kind.count:,}",
            f"{kind.rows:,}",
            f"{kind.columns:,}",
            visible(kind.dtype, 20),
            human_bytes(kind.bytes),
        )
    yield fitted(table, width)
    if len(stored.unquantized) > MOST_KINDS:
        more = len(stored.unquantized) - MOST_KINDS
        yield Text(f"and {more:,} more kinds: see --format json", "dim")


def _sizes(found: Inspection, stored: Stored) -> Table:
    table = new_table()
    table.add_column("part")
    for heading in ("implied", "bits per weight", "on disk", "tensors"):
        table.add_column(heading, justify="right")
    for part in stored.parts:
        size = part.implied
        table.add_row(
            part.name,
            "–" if size is None else human_bytes(size),
            "–" if size is None else f"{bits_per_weight(size, found.weights):.3f}",
            ("! " if _differs(part) else "") + human_bytes(part.stored),
            f"{part.tensors:,}",
            style="yellow" if _differs(part) else "",
        )
    table.add_row("headers", "–", "–", human_bytes(stored.header_bytes), "–")
    total = sum(found.parts.values())
    table.add_row(
        "in all",
        human_bytes(total),
        f"{bits_per_weight(total, found.weights):.3f}",
        human_bytes(stored.bytes),
        f"{sum(part.tensors for part in stored.parts):,}",
        style="bold",
    )
    loose = sum(part.tensors for part in stored.parts if part.name in UNQUANTIZED)
    unquantized = human_bytes(stored.unquantized_bytes)
    table.add_row("of that unquantized", "–", "–", unquantized, f"{loose:,}")
    if found.draft_bytes is not None:
        bits = f"{bits_per_weight(found.draft_bytes, found.weights):.3f}"
        table.add_row("a draft reads", human_bytes(found.draft_bytes), bits, "–", "–")
    return table


def _differs(part: Part) -> bool:
    """Say whether the files hold something else than the manifest implies."""
    return part.implied is not None and part.implied != part.stored
