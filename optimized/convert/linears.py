"""Which tensors of a causal language model are weights of linear layers, by their names.

A linear layer is named like one and lies in a decoder layer. Embeddings, the output layer, routers,
convolutions, norms, vision and audio towers and layers for multi-token prediction are not meant.

Experts become modules of their own, whether the model stores them one by one or all in one tensor:
`experts.gate_up_proj_list.7` holds the rows of the gate and, below them, those of up.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.source import Stored, read_rows, require_float
from torch import Tensor, cat

_DECODER = (
    r"(?:(?:model|language_model|text_model|transformer|gpt_neox|backbone|decoder)\.)+layers\.\d+\."
)
_LINEAR = re.compile(
    rf"(?P<module>{_DECODER}(?:\w+\.)*?"
    r"(?:\w*_proj|in_proj_\w+|kv_a_proj_with_mqa|fc[12]|dense\w*|query_key_value))\.weight"
)
_EXPERT = re.compile(
    rf"(?P<experts>{_DECODER}(?:\w+\.)*experts)\.(?P<number>\d+)\."
    r"(?P<part>gate_proj|up_proj|down_proj|w1|w2|w3)\.weight"
)
_FUSED = re.compile(
    rf"(?P<experts>{_DECODER}(?:\w+\.)*experts)\.(?P<part>gate_up_proj|up_proj|down_proj)"
)
_PARTS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a stored tensor, seen as a matrix."""

    stored: Stored
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight [rows, columns]: pieces, one below the other."""

    pieces: tuple[Piece, ...]
    rows: int
    columns: int

    @property
    def dtype(self) -> str:
        """The dtype of its first piece, as headers name it."""
        return self.pieces[0].stored.dtype

    def read(self, first: int, last: int) -> Tensor:
        """Read rows first … last − 1, in the dtype in which they are stored."""
        parts, above = [], 0
        for piece in self.pieces:
            begin, end = max(first - above, 0), min(last - above, piece.rows)
            if begin < end:
                parts.append(read_rows(piece.stored, piece.first + begin, piece.first + end))
            above += piece.rows
        return parts[0] if len(parts) == 1 else cat(parts)


def find_linears(tensors: Mapping[str, Stored]) -> tuple[dict[str, Linear], dict[str, Stored]]:
    """Return the linear layers by the names of their modules, and all other tensors.

    Raises ConversionError for experts that are incomplete or stored in another way, and for
    weights that are no unquantized matrices.
    """
    linears: dict[str, Linear] = {}
    others: dict[str, Stored] = {}
    experts: dict[tuple[str, int], dict[str, Stored]] = {}
    fused: dict[str, dict[str, Stored]] = {}
    for name, stored in tensors.items():
        if match := _EXPERT.fullmatch(name):
            part = _PARTS.get(match["part"], match["part"])
            experts.setdefault((match["experts"], int(match["number"])), {})[part] = stored
        elif match := _FUSED.fullmatch(name):
            fused.setdefault(match["experts"], {})[match["part"]] = stored
        elif (match := _LINEAR.fullmatch(name)) and len(stored.shape) == 2:
            linears[match["module"]] = _whole(stored)
        else:
            others[name] = stored
    for (parent, number), parts in experts.items():
        linears |= _single_expert(parent, number, parts)
    for parent, parts in fused.items():
        linears |= _fused_experts(parent, parts)
    for linear in linears.values():
        for piece in linear.pieces:
            require_float(piece.stored)
    return linears, others


def _whole(stored: Stored) -> Linear:
    if len(stored.shape) != 2:
        raise ConversionError(f"{stored}: expected a matrix, found shape {list(stored.shape)}")
    return Linear((Piece(stored, 0, stored.shape[0]),), *stored.shape)


def _single_expert(parent: str, number: int, parts: Mapping[str, Stored]) -> dict[str, Linear]:
    weights = {part: _whole(stored) for part, stored in parts.items()}
    missing = {"up_proj", "down_proj"} - weights.keys()
    if missing:
        raise ConversionError(
            f"{parent}.{number}: expected {' and '.join(sorted(missing))}, found none; "
            "is a shard missing?"
        )
    up, name = weights["up_proj"], "up_proj_list"
    if "gate_proj" in weights:
        gate, name = weights["gate_proj"], "gate_up_proj_list"
        if (gate.rows, gate.columns) != (up.rows, up.columns):
            raise ConversionError(
                f"{parent}.{number}: expected gate_proj and up_proj of one shape, found "
                f"{[gate.rows, gate.columns]} and {[up.rows, up.columns]}"
            )
        up = Linear(gate.pieces + up.pieces, 2 * up.rows, up.columns)
    return {
        f"{parent}.{name}.{number}": up,
        f"{parent}.down_proj_list.{number}": weights["down_proj"],
    }


def _fused_experts(parent: str, parts: Mapping[str, Stored]) -> dict[str, Linear]:
    up_name = "gate_up_proj" if "gate_up_proj" in parts else "up_proj"
    if up_name not in parts or "down_proj" not in parts:
        raise ConversionError(
            f"{parent}: expected down_proj and gate_up_proj or up_proj, found {', '.join(parts)}"
        )
    up, down = parts[up_name].shape, parts["down_proj"].shape
    times = 2 if up_name == "gate_up_proj" else 1
    if len(up) != 3 or len(down) != 3 or up != (down[0], times * down[2], down[1]):
        raise ConversionError(
            f"{parent}: expected {up_name} [experts, {'2·' if times > 1 else ''}width, hidden] "
            f"and down_proj [experts, hidden, width], found {list(up)} and {list(down)}; "
            "experts that are stored transposed or interleaved are not supported"
        )
    return {
        f"{parent}.{part}_list.{number}": Linear(
            (Piece(parts[part], number * rows, rows),), rows, columns
        )
        for part in (up_name, "down_proj")
        for count, rows, columns in [parts[part].shape]
        for number in range(count)
    }
