"""The nested layer: y = Σ over segments of dot · (sx · sw) + bias, dot a product of whole numbers.

    grid:    blocks of N  ×  blocks of M  ×  parts of K
    segment: dot [BN, BM] int32, exact, in steps of BLOCK_K; part += dot · (sw · sx)
    y:       ((part 0 + part 1) + part 2) + … + bias, rounded once

The weight is the left factor: codes go from bytes to the matrix units, and one token pads to 16
columns. The draft reads `hi` alone: half of the bytes.

Of floating-point numbers there is nothing but one product and one sum per segment and element, each
rounded by itself, in the order of the segments; parts follow from the layer's shape alone. So no
block size and no number of tokens changes a bit of a row (NUM-INVARIANT-ROWS), whether parts are
added by one program (many tokens) or by a second kernel (few tokens: parts run side by side).
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.configurations import NESTED_LINEAR, configuration
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.parts import add_parts
from nibblespec.optimized.kernels.planes import (
    codes_of_bytes,
    deinterleave,
    excess_to_int8,
    interleave,
)
from nibblespec.optimized.kernels.rounding import round_to, to_float32

PROGRAMS = 4 if INTERPRETED else 264
"""Programs that a layer is cut into at least, where it has as many groups: two per multiprocessor.

A constant, not the device's number: results would depend on it.
"""

ROWS_OF_A_PART = 64
"""Rows of the weight per program, in the count of programs."""

SPLIT_TOKENS = 64
"""Tokens up to which parts run side by side."""

EXACT_COLUMNS = (1 << 17) - 1
"""Columns of products up to 2**14 whose sum fits int32."""


@triton.jit
def whole_products(
    xq: tl.tensor,
    hi: tl.tensor,
    lo: tl.tensor,
    first: tl.tensor,
    TARGET: tl.constexpr,
    HALVES: tl.constexpr,
) -> tl.tensor:
    """Return the products of one step, that of the bytes from `first` on: int32 [N, M].

    xq, hi, lo: pointers to what the first step of a row takes: bytes [N, BLOCK/2], codes of the
    input [M, BLOCK] or, where not HALVES, [BLOCK, M]. HALVES: even and odd columns apart, so that
    bytes are loaded as wide as can be; otherwise codes are put in their order, and the input, the
    larger part where tokens are many, is left as it is.
    """
    high = tl.load(hi + first)
    low = tl.load(lo + first) if TARGET else high
    even, odd = codes_of_bytes(high, low, TARGET)
    x = tl.load(xq + 2 * first)
    if HALVES:
        x_even, x_odd = deinterleave(x)
        dot = tl.dot(excess_to_int8(even, TARGET), tl.trans(x_even), out_dtype=tl.int32)
        return tl.dot(excess_to_int8(odd, TARGET), tl.trans(x_odd), dot, out_dtype=tl.int32)
    else:
        return tl.dot(excess_to_int8(interleave(even, odd), TARGET), x, out_dtype=tl.int32)


@triton.jit
def any_products(
    xq: tl.tensor,
    hi: tl.tensor,
    lo: tl.tensor,
    w_start: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    TARGET: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Return the products of columns first … stop - 1, at most BLOCK of them: int32 [N, M].

    xq: pointers to the first column of a row, [1, M]. w_start: where rows begin in the planes,
    int64 [N, 1]. Each code comes from a byte of its own; columns past the segment read its last
    one, as a code 0.
    """
    column = first + tl.arange(0, BLOCK)
    real = column < stop
    column = tl.minimum(column, stop - 1)
    place = w_start + (column // 2)[None, :]
    shift = (column % 2 * 4).to(tl.uint8)[None, :]
    code = (tl.load(hi + place) >> shift) & 15
    if TARGET:
        code = (code << 4) | ((tl.load(lo + place) >> shift) & 15)
    code = excess_to_int8(code, TARGET)
    x = tl.load(xq + column[:, None])
    return tl.dot(tl.where(real[None, :], code, 0), x, out_dtype=tl.int32)


@triton.jit
def add_segment(
    total: tl.tensor, dot: tl.tensor, sx: tl.tensor, scale: tl.tensor, TARGET: tl.constexpr
) -> tl.tensor:
    """Return total + dot · (sw · sx), float32 [N, M]; sx, scale: pointers [1, M] and [N, 1]."""
    of_w = tl.load(scale).to(tl.float32) * (0.0625 if TARGET else 1.0)
    return total + dot.to(tl.float32) * (of_w * tl.load(sx))


@triton.jit
def nested_linear_kernel(
    xq: tl.tensor,
    sx: tl.tensor,
    hi: tl.tensor,
    lo: tl.tensor,
    scale: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    row_bytes: tl.tensor,
    x_groups: tl.tensor,
    w_groups: tl.tensor,
    part_groups: tl.tensor,
    parts: tl.tensor,
    TARGET: tl.constexpr,
    X_WIDTH: tl.constexpr,
    W_WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,
    HALVES: tl.constexpr,
    BIAS: tl.constexpr,
    SPLIT: tl.constexpr,
    SUM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Write y [tokens, rows], or, SPLIT, the sum of one part: float32 [parts, tokens, rows].

    X_WIDTH, W_WIDTH: columns of a group of xq and of the weight. WHOLE: BLOCK_K divides W_WIDTH and
    W_WIDTH divides X_WIDTH. SUM: the integer type that a segment is added up in.
    """
    token_blocks = (tokens + BLOCK_M - 1) // BLOCK_M
    row_blocks = (rows + BLOCK_N - 1) // BLOCK_N
    program = tl.program_id(0)
    token = (program % token_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    block = program // token_blocks
    row = (block % row_blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_part = block // row_blocks if SPLIT else 0
    last_part = first_part + 1 if SPLIT else parts

    # Lanes of no row or token compute what the last of them does, so that no load needs a mask.
    of_row = tl.minimum(row, rows - 1)[:, None]
    of_token = tl.minimum(token, tokens - 1)
    scale, sx = scale + of_row * w_groups, sx + (of_token * x_groups)[None, :]
    w_start = of_row * row_bytes
    of_token = of_token * row_bytes * 2
    if WHOLE:
        byte = w_start + tl.arange(0, BLOCK_K // 2)[None, :]
        hi, lo = hi + byte, lo + byte
        column = tl.arange(0, BLOCK_K)
        across, down = of_token[:, None] + column[None, :], of_token[None, :] + column[:, None]
        xq = xq + (across if HALVES else down)
    else:
        xq = xq + of_token[None, :]
    total = tl.full((BLOCK_N, BLOCK_M), 0.0, tl.float32)
    for part in range(first_part, last_part):
        part_sum = tl.full((BLOCK_N, BLOCK_M), 0.0, tl.float32)
        begin = part * part_groups
        for group in range(begin, min(begin + part_groups, w_groups)):
            start = group * W_WIDTH
            if WHOLE:
                half = group * (W_WIDTH // 2)
                if W_WIDTH == BLOCK_K:
                    dot = whole_products(xq, hi, lo, half, TARGET, HALVES)
                else:
                    dot = tl.full((BLOCK_N, BLOCK_M), 0, SUM)
                    for first in range(half, half + W_WIDTH // 2, BLOCK_K // 2):
                        dot += whole_products(xq, hi, lo, first, TARGET, HALVES).to(SUM)
                part_sum = add_segment(part_sum, dot, sx + start // X_WIDTH, scale + group, TARGET)
            else:
                end = start + W_WIDTH
                for x_group in range(start // X_WIDTH, (end - 1) // X_WIDTH + 1):
                    stop = min(end, (x_group + 1) * X_WIDTH)
                    dot = tl.full((BLOCK_N, BLOCK_M), 0, SUM)
                    for first in range(max(start, x_group * X_WIDTH), stop, BLOCK_K):
                        dot += any_products(xq, hi, lo, w_start, first, stop, TARGET, BLOCK_K).to(
                            SUM
                        )
                    part_sum = add_segment(part_sum, dot, sx + x_group, scale + group, TARGET)
        total += part_sum

    place = token[None, :] * rows + row[:, None]
    inside = (row < rows)[:, None] & (token < tokens)[None, :]
    if SPLIT:
        of_part = first_part.to(tl.int64) * tokens * rows
        tl.store(y + of_part + place, total, mask=inside)
    else:
        if BIAS:
            total += to_float32(tl.load(bias + of_row))
        tl.store(y + place, round_to(total, y.dtype.element_ty), mask=inside)


def part_groups(rows: int, groups: int) -> int:
    """Return the weight groups of a part: few where rows alone would leave a device idle."""
    wanted = max(1, PROGRAMS // triton.cdiv(rows, ROWS_OF_A_PART))
    return triton.cdiv(groups, min(wanted, groups))


def step_columns(x_width: int, w_width: int) -> tuple[int, bool]:
    """Return BLOCK_K and whether segments are whole multiples of it that begin at even columns."""
    block = min(128, w_width & -w_width)
    if block >= 32 and x_width % w_width == 0:
        return block, True
    return (64 if min(x_width, w_width) > 32 else 32), False


def takes_halves(block_m: int, block_k: int) -> bool:
    """Return HALVES: for few tokens, and where half a block is what matrix units take."""
    return block_m <= 16 and block_k >= 64


def nested_linear(
    xq: torch.Tensor,
    sx: torch.Tensor,
    hi: torch.Tensor,
    lo: torch.Tensor | None,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    plane: str,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return Σ over segments of dot · (sx · sw), plus bias: dtype [M, N].

    xq int8 [M, K] and sx float32 [M, Ga]; hi, lo uint8 [N, K/2], lo None for the draft; scale
    float16 [N, G]; bias float16 [N] or None. Implements BN1-LINEAR-DOT, BN1-LINEAR-SEGMENTS,
    BN1-LINEAR-TARGET, BN1-LINEAR-BIAS, NUM-LINEAR-NESTED and NUM-INVARIANT-ROWS.
    """
    tokens, columns = xq.shape
    rows, groups = scale.shape
    low = lo if plane == "target" else None
    y = torch.empty(tokens, rows, dtype=dtype, device=xq.device)
    if y.numel() == 0:
        return y
    x_width, w_width = columns // sx.shape[1], columns // groups
    block_k, whole = step_columns(x_width, w_width)
    of_a_part = part_groups(rows, groups)
    parts = triton.cdiv(groups, of_a_part)
    split = parts > 1 and tokens <= SPLIT_TOKENS
    tile = configuration(NESTED_LINEAR, xq.device, tokens)
    block_n = min(tile.n, max(16, triton.next_power_of_2(rows)))
    sums = torch.empty(parts, tokens, rows, dtype=torch.float32, device=xq.device) if split else y
    launch(
        nested_linear_kernel,
        triton.cdiv(tokens, tile.m) * triton.cdiv(rows, block_n) * (parts if split else 1),
        xq.contiguous(),
        sx.contiguous(),
        hi,
        hi if low is None else low,
        scale,
        scale if bias is None else bias.contiguous(),
        sums,
        tokens,
        rows,
        columns // 2,
        sx.shape[1],
        groups,
        of_a_part,
        parts,
        exact=True,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        TARGET=low is not None,
        X_WIDTH=x_width,
        W_WIDTH=w_width,
        WHOLE=whole,
        HALVES=takes_halves(tile.m, block_k),
        BIAS=bias is not None,
        SPLIT=split,
        SUM=tl.int32 if min(x_width, w_width) <= EXACT_COLUMNS else tl.int64,
        BLOCK_N=block_n,
        BLOCK_M=tile.m,
        BLOCK_K=block_k,
    )
    if split:
        add_parts(sums, bias, y)
    return y
