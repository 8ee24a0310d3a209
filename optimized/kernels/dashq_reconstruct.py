"""dashq reconstruction: packed words to the weight, in the evaluation `fused`.

    weight [N, K] = rn(rn(rn(q - zero) * scale)), the last rounding to the output dtype

A weight without padding columns is one long row, which no row can straddle and in which the
groups follow each other as they do in the rows. One with padding is taken row by row.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.dashq_weight import as_codes, fp8_format, weight_tile
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.rounding import round_to
from nibblespec.optimized.kernels.tiles import FLAT_BLOCK, flat_block
from nibblespec.optimized.kernels.words import rows_are_aligned
from nibblespec.optimized.layout import DashqLayout, word_count


@triton.jit
def dashq_reconstruct_kernel(
    words: tl.tensor,
    scale: tl.tensor,
    zero: tl.tensor,
    weight: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    stored_columns: tl.tensor,
    row_words: tl.tensor,
    row_groups: tl.tensor,
    NBITS: tl.constexpr,
    GROUP: tl.constexpr,
    FP8: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Write weight [rows, columns]: ROWS × BLOCK of it per program, along the rows first."""
    blocks = (columns + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    row = program // blocks * ROWS + tl.arange(0, ROWS)
    tile = program % blocks
    value = weight_tile(
        words,
        scale,
        zero,
        row,
        tile,
        rows,
        stored_columns,
        row_words,
        row_groups,
        NBITS,
        GROUP,
        FP8,
        BLOCK,
        ALIGNED,
    )
    column = tile * BLOCK + tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None] * columns + column[None, :]
    tl.store(weight + place, round_to(value, weight.dtype.element_ty), mask=inside)


def warps(aligned: bool) -> int:
    """Return the warps of a program: codes that load a word each take more registers."""
    return 4 if aligned else 8


def dashq_reconstruct(
    words: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    layout: DashqLayout,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the weight, `dtype` [rows, columns].

    words int32 [⌈rows·stored_columns / P⌉]; scale and zero, of one dtype, [groups, 1]. Implements
    NUM-EVALUATION-FUSED, DQ1-PACKING-ROWS, DQ1-RECONSTRUCT-FORMULA, DQ1-RECONSTRUCT-GROUPS,
    DQ1-RECONSTRUCT-ZERO-POINT, DQ1-RECONSTRUCT-PARAMETERS, DQ1-RECONSTRUCT-CROP and
    DQ1-RECONSTRUCT-DTYPE.
    """
    weight = torch.empty(layout.rows, layout.columns, dtype=dtype, device=words.device)
    whole = layout.columns == layout.stored_columns
    rows = 1 if whole else layout.rows
    columns = weight.numel() if whole else layout.columns
    stored = weight.numel() if whole else layout.stored_columns
    block = flat_block(columns)
    aligned = rows_are_aligned(rows, stored, layout.nbits)
    rows_per_program = min(FLAT_BLOCK // block, triton.next_power_of_2(rows))
    launch(
        dashq_reconstruct_kernel,
        triton.cdiv(rows, rows_per_program) * triton.cdiv(columns, block),
        words,
        as_codes(scale),
        as_codes(zero),
        weight,
        rows,
        columns,
        stored,
        word_count(stored, layout.nbits),
        stored // layout.group_size,
        exact=True,
        num_warps=warps(aligned),
        NBITS=layout.nbits,
        GROUP=layout.group_size,
        FP8=fp8_format(scale),
        ROWS=rows_per_program,
        BLOCK=block,
        ALIGNED=aligned,
    )
    return weight
