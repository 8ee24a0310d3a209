"""bitnest: the weights of a nested layer, and the layer."""

from itertools import pairwise

import torch
from nibblespec.optimized.portable.planes import read_codes
from nibblespec.optimized.portable.sums import rows_of_a_part, tree_sum
from torch import Tensor

EXACT_COLUMNS = 1024
"""Columns of products of at most 2^14 whose partial sums are all exact in float32."""


def nested_reconstruct(
    hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str, dtype: torch.dtype
) -> Tensor:
    """Return the draft or target weight, dtype [N, K].

    Implements BN1-WEIGHT-GROUPS, BN1-DRAFT-WEIGHT, BN1-TARGET-WEIGHT and BN1-SCALE-SIXTEENTH.
    """
    weight = read_codes(hi, lo)
    width = weight.shape[1] // scale.shape[1]
    weight.view(*scale.shape, width).mul_(weight_scale(scale, plane)[:, :, None])
    return weight.to(dtype)


def weight_scale(scale: Tensor, plane: str) -> Tensor:
    """Return the scale of the plane's codes in float32, where the division is exact."""
    wide = scale.to(torch.float32)
    return wide if plane == "draft" else wide / 16


def nested_linear(
    xq: Tensor,
    sx: Tensor,
    hi: Tensor,
    lo: Tensor | None,
    scale: Tensor,
    bias: Tensor | None,
    plane: str,
    dtype: torch.dtype,
) -> Tensor:
    """Return Σ over segments of dot·(sx·sw), plus bias: dtype [M, N].

    Implements BN1-LINEAR-DOT, BN1-LINEAR-SEGMENTS, BN1-LINEAR-TARGET, BN1-LINEAR-BIAS and, with a
    fixed order of the sum, NUM-INVARIANT-ROWS.
    """
    columns = xq.shape[1]
    starts, width = segments(columns, sx.shape[1], scale.shape[1])
    codes = cut(read_codes(hi, lo), starts, width)  # [S, N, width]
    sx_of = (starts[:-1] // (columns // sx.shape[1])).to(xq.device)
    sw_of = (starts[:-1] // (columns // scale.shape[1])).to(xq.device)
    sw = weight_scale(scale, plane)[:, sw_of].T  # [S, N]
    result = torch.empty(xq.shape[0], hi.shape[0], dtype=dtype, device=xq.device)
    step = rows_of_a_part(codes.shape[0] * codes.shape[1])
    for first in range(0, xq.shape[0], step):
        part = slice(first, first + step)
        tokens = cut(xq[part].to(torch.float32), starts, width)  # [S, m, width]
        dots = exact_products(tokens, codes)  # [S, m, N]
        y = tree_sum(dots * (sx[part][:, sx_of].T[:, :, None] * sw[:, None, :]))
        result[part] = (y if bias is None else y + bias.to(torch.float32)).to(dtype)
    return result


def segments(columns: int, *group_counts: int) -> tuple[Tensor, int]:
    """Return where segments begin, int64 [S + 1] with `columns` at the end, and the widest's width.

    Segments are the common refinement of the groups.
    """
    borders = {columns}
    for count in group_counts:
        borders.update(range(0, columns, columns // count))
    ordered = sorted(borders)
    return torch.tensor(ordered, device="cpu"), max(
        stop - start for start, stop in pairwise(ordered)
    )


def cut(matrix: Tensor, starts: Tensor, width: int) -> Tensor:
    """Cut float32 [R, K] into segments: [S, R, width], zeros where a segment is narrower."""
    rows, columns = matrix.shape
    if columns == width * (len(starts) - 1):
        return matrix.view(rows, columns // width, width).transpose(0, 1)
    place = starts[:-1, None] + torch.arange(width, device="cpu")
    place = torch.where(place < starts[1:, None], place, columns).to(matrix.device)
    padded = torch.nn.functional.pad(matrix, (0, 1))
    return padded[:, place].transpose(0, 1)


def exact_products(tokens: Tensor, codes: Tensor) -> Tensor:
    """Return tokens [S, M, width] times codes [S, N, width], whole numbers: float32 [S, M, N].

    Every partial sum is a whole number that the type holds, so that no order of summation rounds;
    reduced-precision products (TF32, bfloat16) neither, as codes have eight bits.
    """
    if tokens.shape[2] > EXACT_COLUMNS:
        wide = tokens.to(torch.float64) @ codes.to(torch.float64).transpose(1, 2)
        return wide.to(torch.float32)
    return tokens @ codes.transpose(1, 2)
