"""The sum of what several programs computed of the same result, in the order of the parts."""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.rounding import round_to, to_float32
from nibblespec.optimized.kernels.tiles import flat_block


@triton.jit
def add_parts_kernel(
    part_sums: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    count: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Add float32 [parts, count] in the order of parts, and the bias of each row; round once."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.full((BLOCK,), 0.0, tl.float32)
    for part in range(parts):
        of_part = part_sums + tl.cast(part, tl.int64) * count
        total += tl.load(of_part + place, mask=inside, other=0.0)
    if BIAS:
        total += to_float32(tl.load(bias + place % rows, mask=inside, other=0.0))
    tl.store(y + place, round_to(total, y.dtype.element_ty), mask=inside)


def add_parts(sums: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor) -> None:
    """Write ((sums[0] + sums[1]) + …) + bias into y [M, N], for sums float32 [parts, M, N].

    bias [N] or None. One program adds up to 1024 elements on a device, so that few tokens still
    occupy it.
    """
    block = flat_block(y.numel(), largest=1024)
    launch(
        add_parts_kernel,
        triton.cdiv(y.numel(), block),
        sums,
        sums if bias is None else bias.contiguous(),
        y,
        y.numel(),
        y.shape[-1],
        sums.shape[0],
        exact=True,
        BIAS=bias is not None,
        BLOCK=block,
    )
