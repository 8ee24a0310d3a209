"""A tile of a dashq weight, in float32, from codes and the parameters of their groups.

Everything that reads packed weights reads them by `weight_tile`, so that a linear layer multiplies
with the very weights that reconstruction returns.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.rounding import fp8_to_float32, to_float32
from nibblespec.optimized.kernels.words import code_tile, code_to_float32

FP8_FORMATS = {torch.float8_e4m3fn: "e4m3fn", torch.float8_e5m2: "e5m2"}


@triton.jit
def load_parameter(
    parameter: tl.tensor, place: tl.tensor, inside: tl.tensor, FP8: tl.constexpr
) -> tl.tensor:
    """Load scales or zero points as float32; FP8: `e4m3fn` or `e5m2` of uint8 codes, or ``."""
    value = tl.load(parameter + place, mask=inside, other=0)
    if FP8 == "":
        return to_float32(value)
    else:
        return fp8_to_float32(value, FP8 == "e4m3fn")


@triton.jit
def weight_tile(
    words: tl.tensor,
    scale: tl.tensor,
    zero: tl.tensor,
    row: tl.tensor,
    tile: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    row_words: tl.tensor,
    row_groups: tl.tensor,
    NBITS: tl.constexpr,
    GROUP: tl.constexpr,
    FP8: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> tl.tensor:
    """Return rn(rn(q - zero) * scale) of (row[i], tile · BLOCK + j): float32 [R, BLOCK].

    words to row_words (columns: the stored ones) and ALIGNED: as `code_tile` takes them. Code
    (n, k) has scale and zero at n * row_groups + k // GROUP. Both roundings are float32's, as the
    evaluation `fused` has them: only for kernels launched with exact=True.
    """
    code = code_tile(words, row, tile, rows, columns, row_words, NBITS, BLOCK, ALIGNED)
    q = code_to_float32(code)
    if GROUP % BLOCK == 0 or BLOCK % GROUP == 0:
        # Whole groups, or a part of one: a parameter is loaded once and spread in registers.
        in_tile: tl.constexpr = max(1, BLOCK // GROUP)
        group = tile * in_tile // max(1, GROUP // BLOCK) + tl.arange(0, in_tile)
        inside = (row < rows)[:, None] & (group < row_groups)[None, :]
        place = row[:, None] * row_groups + group[None, :]
        z = load_parameter(zero, place, inside, FP8)
        s = load_parameter(scale, place, inside, FP8)
        grouped = tl.reshape(q, (row.shape[0], in_tile, BLOCK // in_tile))
        weight = (grouped - z[:, :, None]) * s[:, :, None]
        return tl.reshape(weight, (row.shape[0], BLOCK))
    else:
        column = tile * BLOCK + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        place = row[:, None] * row_groups + (column // GROUP)[None, :]
        z = load_parameter(zero, place, inside, FP8)
        s = load_parameter(scale, place, inside, FP8)
        return (q - z) * s


def takes_whole_groups(group: int, block: int) -> bool:
    """Say whether a tile of `block` columns is a number of whole groups, or a part of one."""
    return group % block == 0 or block % group == 0


def as_codes(parameter: torch.Tensor) -> torch.Tensor:
    """Return scales or zero points as kernels load them: fp8 as its bytes."""
    return parameter.view(torch.uint8) if parameter.dtype in FP8_FORMATS else parameter


def fp8_format(parameter: torch.Tensor) -> str:
    """Return `e4m3fn`, `e5m2`, or `` where the parameter is wider."""
    return FP8_FORMATS.get(parameter.dtype, "")
