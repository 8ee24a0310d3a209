"""A8: the input of a nested layer as signed eight-bit codes, one scale per token or group.

The groups of a token follow each other, and so do the tokens: to the kernel a group is a row.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.rounding import rint, to_float32
from nibblespec.optimized.kernels.tiles import FLAT_BLOCK, flat_block

PER_TOKEN = -1
"""The group that is all columns of a token."""


@triton.jit
def scale_of(largest: tl.tensor) -> tl.tensor:
    """Return the scales [R] of groups, of their largest magnitudes, float32 [R]."""
    # The division of two tensors; that by a number would be as good as its name says, or not.
    step = tl.div_rn(largest, tl.full(largest.shape, 127.0, tl.float32))
    return tl.maximum(step, 1e-8)


@triton.jit
def codes_of(value: tl.tensor, step: tl.tensor) -> tl.tensor:
    """Return int8 codes [R, C] of float32 [R, C], one scale a row."""
    code = rint(tl.div_rn(value, tl.broadcast_to(step[:, None], value.shape)))
    return tl.minimum(tl.maximum(code, -128.0), 127.0).to(tl.int8)


@triton.jit
def quantize_activations_kernel(
    x: tl.tensor,
    codes: tl.tensor,
    scale: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write int8 codes [rows, columns] and float32 scale [rows], ROWS rows per program."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    largest = tl.zeros((ROWS,), tl.float32)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(to_float32(value)), axis=1))
    step = scale_of(largest)
    tl.store(scale + row, step, mask=row < rows)
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        place = row[:, None] * columns + column[None, :]
        value = to_float32(tl.load(x + place, mask=inside, other=0.0))
        tl.store(codes + place, codes_of(value, step), mask=inside)


def quantize_activations(x: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes int8 [M, K] and scales float32 [M, K/group], or [M, 1] for group -1.

    x float16, bfloat16 or float32 [M, K]. Implements BN1-ACT-SCALE, BN1-ACT-CODES, BN1-ACT-GROUPS
    and BN1-ACT-WIDEN; as a row is one row of a tile, NUM-INVARIANT-ROWS.
    """
    width = x.shape[1] if group == PER_TOKEN else group
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    shape = (x.shape[0], x.shape[1] // width)
    scale = torch.empty(shape, dtype=torch.float32, device=x.device)
    rows = scale.numel()
    block = flat_block(width, smallest=16)
    rows_per_program = min(FLAT_BLOCK // block, triton.next_power_of_2(max(1, rows)))
    launch(
        quantize_activations_kernel,
        triton.cdiv(rows, rows_per_program),
        x.contiguous(),
        codes,
        scale,
        rows,
        width,
        exact=True,
        ROWS=rows_per_program,
        BLOCK=block,
    )
    return codes, scale
