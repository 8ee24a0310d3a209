"""The packed dashq layer: y = x · weightᵀ + bias, the weight staying packed in memory.

    grid:   blocks of N  ×  blocks of M  ×  parts of K
    part:   acc [BN, BM] = Σ over its columns, in steps of BLOCK_K, of weight tile · x tileᵀ
    y:      ((part 0 + part 1) + part 2) + … + bias, rounded once

The weight is the left factor, so that tiles of it, made in registers, are handed to the matrix
units as they are, and M is the narrow side: one token pads to 16 columns, not the weight to 64.

What a row of y is made of does not depend on M: the parts of K and the steps in them follow from
the layer's shape alone, every step is the same matrix instruction, and parts are added in their
order, whether by one program (many tokens) or by a second kernel (few: parts run side by side).
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.configurations import (
    DASHQ_LINEAR,
    DASHQ_LINEAR_GENERAL,
    configuration,
)
from nibblespec.optimized.kernels.dashq_weight import (
    as_codes,
    fp8_format,
    takes_whole_groups,
    weight_tile,
)
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.parts import add_parts
from nibblespec.optimized.kernels.rounding import product_operand, round_to, to_float32
from nibblespec.optimized.kernels.words import rows_are_aligned
from nibblespec.optimized.layout import DashqLayout, word_count

PROGRAMS = 528
"""Programs that a layer is cut into at least, as far as it is wide enough: four per multiprocessor.

A constant, not the device's number: results would depend on it.
"""

ROWS_OF_A_PART = 64
"""Rows of the weight per program, in the count of programs."""

FAST_COLUMNS = 128
"""Columns of one step where words and groups are loaded whole; elsewhere registers allow 32."""

MOST_PARTS = 16
"""Parts that K is cut into at most: their sums are written and read again."""

SPLIT_TOKENS = 64
"""Tokens up to which parts run side by side."""


@triton.jit
def dashq_linear_kernel(
    x: tl.tensor,
    words: tl.tensor,
    scale: tl.tensor,
    zero: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    stored_columns: tl.tensor,
    row_words: tl.tensor,
    row_groups: tl.tensor,
    part_steps: tl.tensor,
    parts: tl.tensor,
    NBITS: tl.constexpr,
    GROUP: tl.constexpr,
    FP8: tl.constexpr,
    ALIGNED: tl.constexpr,
    WHOLE: tl.constexpr,
    BIAS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Write y [tokens, rows], or, SPLIT, the sum of one part: float32 [parts, tokens, rows].

    WHOLE: BLOCK_K divides `columns`. part_steps: steps of BLOCK_K columns in a part.
    """
    token_blocks = (tokens + BLOCK_M - 1) // BLOCK_M
    row_blocks = (rows + BLOCK_N - 1) // BLOCK_N
    program = tl.program_id(0)
    token = (program % token_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    block = program // token_blocks
    row = (block % row_blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_part = block // row_blocks if SPLIT else 0
    last_part = first_part + 1 if SPLIT else parts

    total = tl.full((BLOCK_N, BLOCK_M), 0.0, tl.float32)
    for part in range(first_part, last_part):
        part_sum = tl.full((BLOCK_N, BLOCK_M), 0.0, tl.float32)
        begin = part * part_steps
        for step in range(begin, min(begin + part_steps, (columns + BLOCK_K - 1) // BLOCK_K)):
            weight = weight_tile(
                words,
                scale,
                zero,
                row,
                step,
                rows,
                stored_columns,
                row_words,
                row_groups,
                NBITS,
                GROUP,
                FP8,
                BLOCK_K,
                ALIGNED,
            )
            column = step * BLOCK_K + tl.arange(0, BLOCK_K)
            inside = (token < tokens)[None, :]
            if not WHOLE:
                # Padding columns may hold infinite weights: 0 there, not only in x.
                weight = tl.where((column < columns)[None, :], weight, 0.0)
                inside = inside & (column < columns)[:, None]
            place = token[None, :] * columns + column[:, None]
            x_tile = tl.load(x + place, mask=inside, other=0)
            rounded = round_to(weight, x.dtype.element_ty)
            part_sum = tl.dot(
                product_operand(rounded), product_operand(x_tile), part_sum, input_precision="ieee"
            )
        total += part_sum

    place = token[None, :] * rows + row[:, None]
    inside = (row < rows)[:, None] & (token < tokens)[None, :]
    if SPLIT:
        of_part = tl.cast(first_part, tl.int64) * tokens * rows
        tl.store(y + of_part + place, total, mask=inside)
    else:
        if BIAS:
            total += to_float32(tl.load(bias + row, mask=row < rows, other=0))[:, None]
        tl.store(y + place, round_to(total, y.dtype.element_ty), mask=inside)


def part_steps(layout: DashqLayout, steps: int) -> int:
    """Return how many of a layer's steps along K make a part, from the layer's shape alone."""
    wanted = max(1, PROGRAMS // triton.cdiv(layout.rows, ROWS_OF_A_PART))
    return int(triton.cdiv(steps, min(wanted, MOST_PARTS, steps)))


def is_fast(layout: DashqLayout, dtype: torch.dtype) -> bool:
    """Say whether words and groups are loaded whole and factors go to the matrix units."""
    return (
        rows_are_aligned(layout.rows, layout.stored_columns, layout.nbits)
        and takes_whole_groups(layout.group_size, FAST_COLUMNS)
        and dtype != torch.float32
    )


def step_columns(layout: DashqLayout, dtype: torch.dtype) -> int:
    """Return BLOCK_K, the columns of one step, from the layer's shape and dtype alone."""
    most = FAST_COLUMNS if is_fast(layout, dtype) else 32
    if INTERPRETED:
        most = 512  # it pays by the step, not by the element
    return min(most, max(32, int(triton.next_power_of_2(layout.columns))))


def dashq_linear(
    x: torch.Tensor,
    words: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    bias: torch.Tensor | None,
    layout: DashqLayout,
) -> torch.Tensor:
    """Return x · weightᵀ + bias, x's dtype [M, N], the weight rounded to that dtype.

    x [M, K] and bias [N] (or None) of one dtype; the rest as `dashq_reconstruct` takes it.
    Implements DQ1-LINEAR-FORMULA, DQ1-LINEAR-BIAS, DQ1-LINEAR-DTYPE, DQ1-LINEAR-PADDING,
    NUM-LINEAR-ACCUMULATE, NUM-LINEAR-DASHQ-ROUNDED and NUM-INVARIANT-ROWS-DASHQ.
    """
    tokens, rows, columns = x.shape[0], layout.rows, layout.columns
    y = torch.empty(tokens, rows, dtype=x.dtype, device=x.device)
    block_k = step_columns(layout, x.dtype)
    steps = triton.cdiv(columns, block_k)
    of_a_part = part_steps(layout, steps)
    parts = triton.cdiv(steps, of_a_part)
    split = parts > 1 and tokens <= SPLIT_TOKENS
    aligned = rows_are_aligned(rows, layout.stored_columns, layout.nbits)
    table = DASHQ_LINEAR if is_fast(layout, x.dtype) else DASHQ_LINEAR_GENERAL
    tile = configuration(table, x.device, tokens)
    sums = torch.empty(parts, tokens, rows, dtype=torch.float32, device=x.device) if split else y
    launch(
        dashq_linear_kernel,
        triton.cdiv(tokens, tile.m) * triton.cdiv(rows, tile.n) * (parts if split else 1),
        x.contiguous(),
        words,
        as_codes(scale),
        as_codes(zero),
        words if bias is None else bias.contiguous(),
        sums,
        tokens,
        rows,
        columns,
        layout.stored_columns,
        word_count(layout.stored_columns, layout.nbits),
        layout.stored_columns // layout.group_size,
        of_a_part,
        parts,
        exact=True,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        NBITS=layout.nbits,
        GROUP=layout.group_size,
        FP8=fp8_format(scale),
        ALIGNED=aligned,
        WHOLE=columns % block_k == 0,
        BIAS=bias is not None,
        SPLIT=split,
        BLOCK_N=tile.n,
        BLOCK_M=tile.m,
        BLOCK_K=block_k,
    )
    if split:
        add_parts(sums, bias, y)
    return y
