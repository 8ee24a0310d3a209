"""A8 of the Hadamard transform: both in one launch, where one program holds a token.

    x [M, n] ─ butterflies, had_K, 1/√n ─→ float32 in registers ─→ int8 codes, float32 scales

The operations are those of `hadamard` and of `activations`, in the same order: so are the bits. The
sum over had_K takes elements of all lines of a token, which other threads hold: so what it adds
passes through memory, where the program that wrote it finds it in a cache.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.activations import (
    PER_TOKEN,
    codes_of,
    quantize_activations,
    scale_of,
)
from nibblespec.optimized.kernels.hadamard import (
    TILE,
    butterflies,
    factor_of,
    hadamard,
    times_matrix,
)
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.rounding import to_float32

MOST_ELEMENTS = 16384
"""Elements of the largest tile: 16 for each of 1024 threads, which exchange them through 64 kB of
shared memory. Every device has so much."""

MOST_ORDER = 32
"""With it the largest tile takes 2^19 products with had_K, which keep a multiprocessor busy for
about as long as a launch takes. More of them are better shared out to many programs."""


@triton.jit
def quantize_transformed_kernel(
    x: tl.tensor,
    had_k: tl.tensor,
    passed: tl.tensor,
    codes: tl.tensor,
    scale: tl.tensor,
    lines: tl.tensor,
    factor: tl.tensor,
    ORDER: tl.constexpr,
    LOG: tl.constexpr,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write int8 codes and float32 scales of `lines` lines of 2**LOG elements, LINES a program.

    ORDER is that of had_k, and ORDER lines, at most LINES, are a token and a program. It is 0
    without a matrix: lines are tokens. WIDTH elements of a program's share a scale; it divides
    2**LOG, or is LINES * 2**LOG. `passed`, float32 of x's size, is written to with a matrix alone.
    """
    USED: tl.constexpr = ORDER if ORDER else LINES
    first = tl.program_id(0).to(tl.int64) * USED
    count = tl.minimum(lines - first, USED).to(tl.int32)
    start = first << LOG
    line = tl.arange(0, LINES)
    column = tl.arange(0, 1 << LOG)
    place = (line << LOG)[:, None] + column[None, :]
    inside = (line < count)[:, None]
    y = butterflies(to_float32(tl.load(x + start + place, mask=inside, other=0.0)), LOG)
    if ORDER:
        tl.store(passed + start + place, y, mask=inside)
        tl.debug_barrier()
        # Lines that are none are copies of the last one: they do not widen its range.
        of_row = had_k + tl.minimum(line, ORDER - 1) * ORDER
        y = times_matrix(of_row, passed + start + column, ORDER, 1 << LOG, LINES, 1 << LOG)
    GROUPS: tl.constexpr = (LINES << LOG) // WIDTH
    y = tl.reshape(y * factor, (GROUPS, WIDTH))
    step = scale_of(tl.max(tl.abs(y), axis=1))
    group = tl.arange(0, GROUPS)
    # The tile of a token may go on past the token, and WIDTH with it: programs count then.
    of_program = first // USED if GROUPS == 1 else start // WIDTH
    tl.store(scale + of_program + group, step, mask=group * WIDTH < count << LOG)
    place = (group * WIDTH)[:, None] + tl.arange(0, WIDTH)[None, :]
    tl.store(codes + start + place, codes_of(y, step), mask=place < count << LOG)


def quantize_transformed(
    x: torch.Tensor, had_k: torch.Tensor | None, group: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `quantize_activations` of `hadamard` in float32: the same bits, in fewer launches.

    x float16, bfloat16 or float32 [M, K·2^k]; had_k float32 [K, K], or None for K = 1; group −1 or
    a width. Codes int8 of x's shape and scales float32 [M, groups].
    """
    tokens, size = x.shape
    width = size if group == PER_TOKEN else group
    order = 1 if had_k is None else had_k.shape[0]
    columns = size // order
    if not fits_one_program(order, columns, width):
        return quantize_activations(hadamard(x, had_k, torch.float32), group)
    x = x.contiguous()
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty((tokens, size // width), dtype=torch.float32, device=x.device)
    if had_k is None:
        lines = min(max(1, TILE // size), triton.next_power_of_2(max(1, tokens)))
        programs, passed = triton.cdiv(tokens, lines), scale
    else:
        lines = triton.next_power_of_2(order)
        programs = tokens
        passed = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    launch(
        quantize_transformed_kernel,
        programs,
        x,
        scale if had_k is None else had_k,
        passed,
        codes,
        scale,
        tokens * order,
        factor_of(size),
        exact=True,
        num_warps=warps(lines * columns),
        ORDER=0 if had_k is None else order,
        LOG=columns.bit_length() - 1,
        LINES=lines,
        WIDTH=lines * columns if width == size and had_k is not None else width,
    )
    return codes, scale


def fits_one_program(order: int, columns: int, width: int) -> bool:
    """Say whether one program transforms and quantizes a token of order · columns elements.

    width: elements that share a scale; a group of several lines, but not of all, is no row of a
    tile.
    """
    tile = triton.next_power_of_2(order) * columns
    of_lines = columns % width == 0 or width == order * columns
    return of_lines and tile <= MOST_ELEMENTS and order <= MOST_ORDER


def warps(elements: int) -> int:
    """Return the warps of a tile's program: of twice the elements a thread, ptxas spills some."""
    return min(32, max(4, elements // 512))
