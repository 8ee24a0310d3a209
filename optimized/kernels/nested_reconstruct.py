"""Planes and scales to numbers: the weights of a nested layer, and what a cache's reader sees.

    number = rn(code · scale), code q4 and scale (draft) or 16·q4 + qr and scale/16 (target)

Groups follow each other as rows do, so that all codes are one long row of groups.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.planes import (
    excess_to_float32,
    interleave,
    load_codes,
)
from nibblespec.optimized.kernels.rounding import round_to, to_float32
from nibblespec.optimized.kernels.tiles import FLAT_BLOCK, flat_block


@triton.jit
def plane_scale(scale: tl.tensor, TARGET: tl.constexpr) -> tl.tensor:
    """Return the scale of the plane's codes in float32: scale, or scale/16."""
    wide = to_float32(scale)
    if TARGET:
        return wide * 0.0625
    else:
        return wide


@triton.jit
def dequantize_kernel(
    hi: tl.tensor,
    lo: tl.tensor,
    scale: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    TARGET: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write out [2·size] of planes [size] and scales [2·size / GROUP], BLOCK codes per program.

    lo is read for TARGET only.
    """
    count = tl.cast(size, tl.int64) * 2
    first = tl.program_id(0).to(tl.int64) * BLOCK
    byte = first // 2 + tl.arange(0, BLOCK // 2)[None, :]
    even, odd = load_codes(hi, lo, byte, byte < size, TARGET)
    code = excess_to_float32(interleave(even, odd), TARGET)
    place = first + tl.arange(0, BLOCK)[None, :]
    if BLOCK % GROUP == 0 and (GROUP & (GROUP - 1)) == 0:
        # Whole groups: each scale is loaded once and spread in registers.
        group = first // GROUP + tl.arange(0, BLOCK // GROUP)
        step = plane_scale(tl.load(scale + group, mask=group < count // GROUP, other=0), TARGET)
        grouped = tl.reshape(code, (BLOCK // GROUP, GROUP)) * step[:, None]
        value = tl.reshape(grouped, (1, BLOCK))
    elif GROUP % BLOCK == 0:
        # One group in the whole tile.
        value = code * plane_scale(tl.load(scale + first // GROUP), TARGET)
    else:
        # One division in 64 bits; within the tile 32 bits are enough.
        group = first // GROUP
        of_tile = (first - group * GROUP).to(tl.int32) + tl.arange(0, BLOCK)[None, :]
        step = tl.load(scale + group + of_tile // GROUP, mask=place < count, other=0)
        value = code * plane_scale(step, TARGET)
    tl.store(out + place, round_to(value, out.dtype.element_ty), mask=place < count)


def largest_block(group: int) -> int:
    """Return the codes of a block at most: fewer where each has to look for its scale."""
    return FLAT_BLOCK if group & (group - 1) == 0 else FLAT_BLOCK // 2


def dequantize(
    hi: torch.Tensor,
    lo: torch.Tensor | None,
    scale: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out`, contiguous, from planes and scales of one group after the other; return it.

    Of the target lo is given, of the draft it is None.
    """
    count = out.numel()
    if count:
        group = count // scale.numel()
        block = flat_block(count, largest_block(group))
        launch(
            dequantize_kernel,
            triton.cdiv(count, block),
            hi,
            hi if lo is None else lo,
            scale,
            out,
            hi.numel(),
            exact=True,
            TARGET=lo is not None,
            GROUP=group,
            BLOCK=block,
        )
    return out


def nested_reconstruct(
    hi: torch.Tensor,
    lo: torch.Tensor | None,
    scale: torch.Tensor,
    plane: str,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the draft or target weight, dtype [N, K].

    hi, lo uint8 [N, K/2], lo None for the draft; scale float16 [N, G]. Implements
    BN1-WEIGHT-GROUPS, BN1-DRAFT-WEIGHT, BN1-TARGET-WEIGHT and BN1-SCALE-SIXTEENTH.
    """
    low = lo if plane == "target" else None
    weight = torch.empty(hi.shape[0], 2 * hi.shape[1], dtype=dtype, device=hi.device)
    return dequantize(hi, low, scale, weight)
