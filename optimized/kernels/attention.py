"""Flash decoding over the nested cache: blocks of keys with a running maximum, splits side by side.

    grid:   splits of the keys  ×  blocks of queries  ×  heads of the cache  ×  batch
    split:  maximum, sum of weights and weighted sum of values of its keys, block by block
    result: splits combined in their order, divided, plus offset, rounded once

Blocks and splits begin at fixed positions of the cache, and a query is a row of a tile whose shape
never changes; a block or split of which a query sees nothing leaves what it has as it is. So a
query's bits depend on nothing but the query and the keys that it sees (NUM-INVARIANT-ROWS).

Scores are in powers of two: softmax_scale · log₂e is one float32 factor.
"""

import math

import numpy as np
import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.planes import (
    excess_to_float32,
    interleave,
    load_codes,
)
from nibblespec.optimized.kernels.rounding import round_to, to_float32

FACTOR = tl.constexpr(tl.float32 if INTERPRETED else tl.bfloat16)
"""What matrix units multiply, holding eight bits; the interpreter cannot multiply bfloat16."""

BLOCK_KEYS = 64
"""Keys of a block."""

SPLIT_KEYS = 256
"""Keys of a split, a multiple of BLOCK_KEYS."""

BLOCK_QUERIES = 16
"""Queries of a program, all of one head of the cache."""

PARTS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}
"""Parts of eight bits that a number of q's dtype is cut into."""


@triton.jit
def load_factor(
    hi: tl.tensor, lo: tl.tensor, place: tl.tensor, inside: tl.tensor, TARGET: tl.constexpr
) -> tl.tensor:
    """Load bytes [R, C] and return their codes, FACTOR [R, 2·C]: exact, and 0 outside."""
    even, odd = load_codes(hi, lo, place, inside, TARGET)
    return excess_to_float32(interleave(even, odd), TARGET).to(FACTOR)


@triton.jit
def whole_product(x: tl.tensor, code: tl.tensor, PARTS: tl.constexpr) -> tl.tensor:
    """Return x [R, C], float32, times whole numbers of eight bits, FACTOR [C, N]: float32.

    x is cut into PARTS of eight bits, exactly, so that matrix units multiply without a rounding.
    Three parts are all of a float32 number, two of a float16 one, one of a bfloat16 one.
    """
    high = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    product = tl.dot(high.to(FACTOR), code, input_precision="ieee")
    if PARTS > 1:
        rest = x - high
        middle = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
        small = tl.dot(middle.to(FACTOR), code, input_precision="ieee")
        if PARTS > 2:
            small += tl.dot((rest - middle).to(FACTOR), code, input_precision="ieee")
        product += small
    return product


@triton.jit
def attention_kernel(
    q: tl.tensor,
    k_hi: tl.tensor,
    k_lo: tl.tensor,
    k_scale: tl.tensor,
    v_hi: tl.tensor,
    v_lo: tl.tensor,
    v_scale: tl.tensor,
    sums: tl.tensor,
    maxima: tl.tensor,
    weights: tl.tensor,
    queries: tl.tensor,
    ratio: tl.tensor,
    capacity: tl.tensor,
    position: tl.tensor,
    splits: tl.tensor,
    factor: tl.tensor,
    WIDTH: tl.constexpr,
    TARGET: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_L: tl.constexpr,
    SPLIT_L: tl.constexpr,
) -> None:
    """Write of one split: sums [rows, splits, WIDTH], maxima and weights [rows, splits], float32.

    rows: batch · heads of the cache · ratio · queries. factor: softmax_scale · log₂e.
    PARTS: of q, as `whole_product` takes them.
    """
    UNIT: tl.constexpr = 0.0625 if TARGET else 1.0
    blocks = (ratio * queries + BLOCK_Q - 1) // BLOCK_Q
    program = tl.program_id(0)
    split = program % splits
    block = program // splits % blocks
    head = (program // splits // blocks).to(tl.int64)  # of the cache, over the batch
    of_head = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    real = of_head < ratio * queries
    row = head * ratio * queries + of_head
    last = position + of_head % queries  # the last key that a query sees

    column = tl.arange(0, BLOCK_D)
    inside = real[:, None] & (column < WIDTH)[None, :]
    x = tl.load(q + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
    x = to_float32(x)
    byte = tl.arange(0, BLOCK_D // 2)

    largest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    weight = tl.full((BLOCK_Q,), 0.0, tl.float32)
    total = tl.full((BLOCK_Q, BLOCK_D), 0.0, tl.float32)
    end = min((split + 1) * SPLIT_L, position + queries)
    for first in range(split * SPLIT_L, end, BLOCK_L):
        key = first + tl.arange(0, BLOCK_L)
        of_cache = head * capacity + key
        stored = (key < end)[:, None] & (byte < WIDTH // 2)[None, :]
        place = of_cache[:, None] * (WIDTH // 2) + byte[None, :]
        codes = load_factor(k_hi, k_lo, place, stored, TARGET)
        score = whole_product(x, tl.trans(codes), PARTS)
        step = tl.load(k_scale + of_cache, mask=key < end, other=0.0) * UNIT
        seen = (key[None, :] <= last[:, None]) & (key < end)[None, :]
        score = tl.where(seen, score * (step * factor)[None, :], float("-inf"))

        grown = tl.maximum(largest, tl.max(score, axis=1))
        # Where nothing has been seen yet, -inf less -inf would be NaN.
        shift = tl.where(grown == float("-inf"), 0.0, grown)
        shrink = tl.exp2(largest - shift)
        p = tl.exp2(score - shift[:, None])
        weight = weight * shrink + tl.sum(p, axis=1)
        step = tl.load(v_scale + of_cache, mask=key < end, other=0.0) * UNIT
        p = tl.where(seen, p * step[None, :], 0.0)
        codes = load_factor(v_hi, v_lo, place, stored, TARGET)
        total = total * shrink[:, None] + whole_product(p, codes, 3)
        largest = grown

    of_split = row * splits + split
    inside = real[:, None] & (column < WIDTH)[None, :]
    tl.store(sums + of_split[:, None] * WIDTH + column[None, :], total, mask=inside)
    tl.store(maxima + of_split, largest, mask=real)
    tl.store(weights + of_split, weight, mask=real)


@triton.jit
def combine_kernel(
    sums: tl.tensor,
    maxima: tl.tensor,
    weights: tl.tensor,
    offset: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    splits: tl.tensor,
    of_head: tl.tensor,
    heads: tl.tensor,
    WIDTH: tl.constexpr,
    OFFSET: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write out [rows, WIDTH] from the splits of each row, ROWS rows per program.

    of_head: rows that read one head of the cache. OFFSET: add offset [heads, WIDTH] of the head.
    """
    of_call = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = of_call // of_head % heads
    row = of_call.to(tl.int64)
    column = tl.arange(0, BLOCK_D)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.full((ROWS,), 0.0, tl.float32)
    total = tl.full((ROWS, BLOCK_D), 0.0, tl.float32)
    for split in range(splits):
        of_split = row * splits + split
        its_largest = tl.load(maxima + of_split, mask=row < rows, other=0.0)
        its_weight = tl.load(weights + of_split, mask=row < rows, other=1.0)
        place = of_split[:, None] * WIDTH + column[None, :]
        its_total = tl.load(sums + place, mask=inside, other=0.0)
        # Every query sees key 0, so that the first split's maximum is a number.
        grown = tl.maximum(largest, its_largest)
        shrink = tl.exp2(largest - grown)
        its_shrink = tl.exp2(its_largest - grown)
        weight = weight * shrink + its_weight * its_shrink
        total = total * shrink[:, None] + its_total * its_shrink[:, None]
        largest = grown
    y = tl.div_rn(total, tl.broadcast_to(weight[:, None], (ROWS, BLOCK_D)))
    if OFFSET:
        place = head[:, None] * WIDTH + column[None, :]
        y = y + to_float32(tl.load(offset + place, mask=inside, other=0.0))
    place = row[:, None] * WIDTH + column[None, :]
    tl.store(out + place, round_to(y, out.dtype.element_ty), mask=inside)


def warps(block_d: int) -> int:
    """Return the warps of a program: more where four would not have the registers."""
    return 4 if block_d <= 128 else 8


def kv_attention(
    q: torch.Tensor,
    k_hi: torch.Tensor,
    k_lo: torch.Tensor | None,
    k_scale: torch.Tensor,
    v_hi: torch.Tensor,
    v_lo: torch.Tensor | None,
    v_scale: torch.Tensor,
    v_offset: torch.Tensor | None,
    position: int,
    plane: str,
    softmax_scale: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return dtype [B, Hq, M, D]; query m sees the keys 0 … position + m.

    q [B, Hq, M, D]; planes uint8 [B, Hkv, L, D/2], low ones None for the draft; scales float32
    [B, Hkv, L]; v_offset [Hkv, D] or None. Implements BN1-ATTENTION-CAUSAL, BN1-ATTENTION-HEADS,
    BN1-ATTENTION-OFFSET, BN1-ATTENTION-PLANE, BN1-ATTENTION-WIDEN, NUM-ATTENTION-EXP and
    NUM-INVARIANT-ROWS.
    """
    batch, q_heads, queries, width = q.shape
    heads, capacity = k_hi.shape[1:3]
    ratio = q_heads // heads
    rows = batch * q_heads * queries
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    if out.numel() == 0:
        return out
    q = q.contiguous()
    target = plane == "target" and k_lo is not None
    splits = triton.cdiv(position + queries, SPLIT_KEYS)
    blocks = triton.cdiv(ratio * queries, BLOCK_QUERIES)
    block_d = max(32, triton.next_power_of_2(width))
    sums = torch.empty(rows, splits, width, dtype=torch.float32, device=q.device)
    maxima, weights = (
        torch.empty(rows, splits, dtype=torch.float32, device=q.device) for _ in range(2)
    )
    launch(
        attention_kernel,
        splits * blocks * heads * batch,
        q,
        k_hi,
        k_lo if target else k_hi,
        k_scale,
        v_hi,
        v_lo if target else v_hi,
        v_scale,
        sums,
        maxima,
        weights,
        queries,
        ratio,
        capacity,
        position,
        splits,
        float(np.float32(np.float32(softmax_scale) * math.log2(math.e))),
        exact=True,
        num_warps=warps(block_d),
        WIDTH=width,
        TARGET=target,
        PARTS=PARTS[q.dtype],
        BLOCK_D=block_d,
        BLOCK_Q=BLOCK_QUERIES,
        BLOCK_L=BLOCK_KEYS,
        SPLIT_L=SPLIT_KEYS,
    )
    rows_per_program = min(16, triton.next_power_of_2(rows))
    launch(
        combine_kernel,
        triton.cdiv(rows, rows_per_program),
        sums,
        maxima,
        weights,
        q if v_offset is None else v_offset.contiguous(),
        out,
        rows,
        splits,
        ratio * queries,
        heads,
        exact=True,
        WIDTH=width,
        OFFSET=v_offset is not None,
        ROWS=rows_per_program,
        BLOCK_D=block_d,
    )
    return out
