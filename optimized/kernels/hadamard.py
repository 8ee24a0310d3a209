"""The online Hadamard transform, in the canonical order of float32 operations.

    x [..., n], n = K·m ─ butterflies over m, several strides a pass ─→ float32
    had_K over K, products added in the order of the index
    times float32(1/√n), then one rounding to the output dtype

A pass keeps a stretch of the axis in registers; what is longer takes another pass, at the strides
that are left. Numbers pass through memory in float32, so that passes change no bits.
"""

import math

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.planes import deinterleave
from nibblespec.optimized.kernels.rounding import round_to, to_float32

STRETCH = 8192
"""Elements of the axis that one pass transforms at most."""

TILE = 262144 if INTERPRETED else 8192
"""Elements per program of a pass."""

MIX_ROWS = 256 if INTERPRETED else 32
MIX_COLUMNS = 2048 if INTERPRETED else 64
"""Tile per program of the product with had_K."""


@triton.jit
def butterflies(x: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    """Return the unscaled transform of the last axis of float32 [R, 2**LOG].

    A stage is at the last of the LOG bits of the index, which then becomes the first: the next
    stride is up, and after LOG stages all bits are where they were. Pairs are next to each other in
    every stage, which spares most exchanges between threads.
    """
    for _ in tl.static_range(0, LOG):
        a, b = deinterleave(x)
        x = tl.reshape(tl.trans(tl.join(a + b, a - b), (0, 2, 1)), x.shape)
    return x


@triton.jit
def walsh_hadamard_kernel(
    x: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    stride: tl.tensor,
    factor: tl.tensor,
    LOG: tl.constexpr,
    LAST: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Transform stretches of 2**LOG elements, `stride` apart: ROWS of `rows` per program.

    A row is (outer, inner) with inner < stride; element l of it is at
    (outer * 2**LOG + l) * stride + inner. LAST: times factor, rounded to the dtype of out.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    outer = row // stride
    start = (outer << LOG) * stride + (row - outer * stride)
    place = start[:, None] + tl.arange(0, 1 << LOG).to(tl.int64)[None, :] * stride
    inside = (row < rows)[:, None]
    y = butterflies(to_float32(tl.load(x + place, mask=inside, other=0.0)), LOG)
    if LAST:
        y = y * factor
    tl.store(out + place, round_to(y, out.dtype.element_ty), mask=inside)


@triton.jit
def times_matrix(
    of_row: tl.tensor,
    of_pair: tl.tensor,
    order: tl.tensor,
    columns: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> tl.tensor:
    """Return [ROWS, COLUMNS]: the sums over l of a row's element l times that of a pair, in order.

    of_row points to the first elements of rows of had_K, of_pair to those of pairs, whose elements
    are `columns` apart.
    """
    y = tl.zeros((ROWS, COLUMNS), tl.float32)
    for column in range(order):
        h = tl.load(of_row + column)
        y = y + h[:, None] * tl.load(of_pair)[None, :]
        of_pair += columns
    return y


@triton.jit
def multiply_by_matrix_kernel(
    had_k: tl.tensor,
    x: tl.tensor,
    out: tl.tensor,
    order: tl.tensor,
    columns: tl.tensor,
    count: tl.tensor,
    factor: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Write out [r, i, j] = factor · Σ over l of had_k[i, l] · x[r, l, j], in the order of l.

    x, float32, and out are […, order, columns], `count` pairs (r, j); ROWS × COLUMNS of
    (i, (r, j)) per program.
    """
    blocks = (order + ROWS - 1) // ROWS
    program = tl.program_id(0).to(tl.int64)
    i = (program % blocks * ROWS + tl.arange(0, ROWS)).to(tl.int32)
    pair = program // blocks * COLUMNS + tl.arange(0, COLUMNS)
    real_pair = pair < count
    pair = tl.minimum(pair, count - 1)
    r = pair // columns
    start = r * order * columns + (pair - r * columns)
    # Lanes of no row or pair read what the last of them reads, so that no load needs a mask.
    of_row = had_k + tl.minimum(i, order - 1) * order
    y = times_matrix(of_row, x + start, order, columns, ROWS, COLUMNS)
    place = start[None, :] + (i * columns)[:, None]
    inside = (i < order)[:, None] & real_pair[None, :]
    tl.store(out + place, round_to(y * factor, out.dtype.element_ty), mask=inside)


def hadamard(x: torch.Tensor, had_k: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Return the transform of the last axis, dtype of x's shape.

    x float16, bfloat16 or float32 [..., K·2^k]; had_k float32 [K, K], or None for K = 1.
    Implements BN1-HADAMARD-ORDER, BN1-HADAMARD-AXES, BN1-HADAMARD-MATRIX, BN1-HADAMARD-SCALE,
    BN1-HADAMARD-EXACT, BN1-HADAMARD-CANONICAL and BN1-HADAMARD-RANGE.
    """
    size = x.shape[-1]
    order = 1 if had_k is None else had_k.shape[0]
    columns = size // order
    factor = factor_of(size)
    y, out = x.contiguous(), torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.numel() == 0:
        return out
    stride = 1
    while stride < columns or (columns == 1 and had_k is None and stride == 1):
        length = min(STRETCH, columns // stride)
        last = had_k is None and stride * length == columns
        target = out if last else torch.empty(x.shape, dtype=torch.float32, device=x.device)
        _transform(y, target, length, stride, factor if last else None)
        y, stride = target, max(2, stride * length)
    if had_k is not None:
        _multiply(had_k, y.to(torch.float32), out, columns, factor)
    return out


def factor_of(size: int) -> float:
    """Return 1/√size, rounded to float32."""
    return float(torch.tensor(1 / math.sqrt(size), dtype=torch.float32))


def _transform(
    x: torch.Tensor, out: torch.Tensor, length: int, stride: int, factor: float | None
) -> None:
    rows = x.numel() // length
    rows_per_program = min(max(1, TILE // length), triton.next_power_of_2(rows))
    launch(
        walsh_hadamard_kernel,
        triton.cdiv(rows, rows_per_program),
        x,
        out,
        rows,
        stride,
        1.0 if factor is None else factor,
        exact=True,
        LOG=length.bit_length() - 1,
        LAST=factor is not None,
        ROWS=rows_per_program,
    )


def _multiply(
    had_k: torch.Tensor, x: torch.Tensor, out: torch.Tensor, columns: int, factor: float
) -> None:
    order = had_k.shape[0]
    count = x.numel() // order
    rows = min(MIX_ROWS, triton.next_power_of_2(order))
    pairs = min(MIX_COLUMNS, triton.next_power_of_2(count))
    launch(
        multiply_by_matrix_kernel,
        triton.cdiv(order, rows) * triton.cdiv(count, pairs),
        had_k,
        x,
        out,
        order,
        columns,
        count,
        factor,
        exact=True,
        ROWS=rows,
        COLUMNS=pairs,
    )
