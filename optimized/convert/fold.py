"""Norms and rotations, folded into the weights of a Llama or Qwen2.

A norm's weight g goes into the layers that read its output: W·diag(g). Hidden states are turned by
R1, the values of a head by R2, the input of down_proj by R4: the layers before such a place have
their outputs turned, those after it their inputs, so that the model computes what it did.
"""

from collections.abc import Iterator

import torch
from nibblespec.optimized.convert.architecture import Layer
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.rotations import BLOCK, Rotation, Rotations
from nibblespec.optimized.convert.source import Stored, read_rows
from torch import Tensor


def blocks(stored: Stored) -> Iterator[tuple[int, Tensor]]:
    """Yield a matrix in blocks of rows, float32, each with the number of its first row."""
    rows, columns = stored.shape
    step = max(1, BLOCK // columns)
    for first in range(0, rows, step):
        yield first, read_rows(stored, first, min(first + step, rows)).to(torch.float32)


def vector(stored: Stored) -> Tensor:
    """Return a vector in float32."""
    return read_rows(stored, 0, 1).view(-1).to(torch.float32)


def folded_rows(layer: Layer, rotations: Rotations) -> Iterator[tuple[int, Tensor]]:
    """Yield a layer's folded weight in blocks of rows, as `blocks` does."""
    into, out_of = _into(layer, rotations), _out_of(layer, rotations)
    norm = None if layer.norm is None else vector(layer.norm)
    turned = (
        (first, into(rows if norm is None else rows * norm)) for first, rows in blocks(layer.weight)
    )
    if out_of is None:
        yield from turned
        return
    # Outputs are turned column by column, so that the whole matrix has to be there.
    whole = torch.empty(layer.weight.shape)
    for first, rows in turned:
        whole[first : first + len(rows)] = rows
    for columns in torch.split(whole, max(1, BLOCK // len(whole)), dim=1):
        columns.copy_(out_of(columns.T.contiguous()).T)
    first = 0
    for rows in torch.split(whole, max(1, BLOCK // whole.shape[1])):
        yield first, rows
        first += len(rows)


def folded_bias(layer: Layer, rotations: Rotations) -> Tensor:
    """Return a layer's bias, float16 [N], turned as its output is.

    Raises ConversionError where float16 cannot hold it.
    """
    assert layer.bias is not None
    bias = vector(layer.bias)
    out_of = _out_of(layer, rotations)
    stored = (bias if out_of is None else out_of(bias)).to(torch.float16)
    if not bool(stored.isfinite().all()):
        raise ConversionError(f"{layer.bias}: expected finite elements that fit float16")
    return stored


def _into(layer: Layer, rotations: Rotations) -> Rotation:
    """Return what turns a row of the weight as the layer's input is turned."""
    match layer.kind:
        case "down_proj":
            return rotations.down
        case "o_proj":
            return _by_head(rotations.value(layer.number), layer.head)
        case _:
            return rotations.residual


def _out_of(layer: Layer, rotations: Rotations) -> Rotation | None:
    """Return what turns a column of the weight as the layer's output is turned."""
    match layer.kind:
        case "o_proj" | "down_proj":
            return rotations.residual
        case "v_proj":
            return _by_head(rotations.value(layer.number), layer.head)
        case _:
            return None


def _by_head(rotation: Rotation, width: int) -> Rotation:
    return lambda x: rotation(x.reshape(*x.shape[:-1], -1, width)).reshape(x.shape)
