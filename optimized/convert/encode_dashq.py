"""Round-to-nearest encoder of dashq: scale, zero point and codes of each group, in float64.

Two ranges are tried for each group, the one that its weights span and that one extended to include
0; the one whose largest error is smaller is kept. Codes are fitted to the scale and the zero point
as they are stored, in float16.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_FLOAT16 = 2.0**-24


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of codes, and the parameters that belong to them."""

    codes: Tensor
    """uint8 [G, group_size]."""
    scale: Tensor
    """float16 [G, 1]."""
    zero: Tensor
    """float16 [G, 1]."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Codes float64 [G, group_size], parameters float16 [G, 1], largest errors float64 [G, 1]."""

    codes: Tensor
    scale: Tensor
    zero: Tensor
    error: Tensor


def encode_groups(weight: Tensor, nbits: int, group_size: int) -> Groups:
    """Quantize the groups of a weight [N, K] (float16, bfloat16 or float32, finite), row by row.

    A group of zeros gets scale, zero point and codes 0. Raises ValueError for a weight that is not
    finite, or a group whose scale float16 cannot hold.
    """
    groups = weight.to(torch.float64).reshape(-1, group_size)
    if not bool(groups.isfinite().all()):
        raise ValueError("expected finite weights, found an infinity or a NaN")
    low, high = groups.aminmax(dim=1, keepdim=True)
    top = 2**nbits - 1
    tight = _fit(groups, low, high, top)
    wide = _fit(groups, low.clamp(max=0), high.clamp(min=0), top)
    take = tight.error < wide.error
    lost = ~torch.where(take, tight.error, wide.error).isfinite()
    if bool(lost.any()):
        index = int(lost.view(-1).to(torch.uint8).argmax())
        raise ValueError(
            f"expected groups whose scale fits float16, found weights from "
            f"{float(low[index, 0]):g} to {float(high[index, 0]):g}"
        )
    return Groups(
        torch.where(take, tight.codes, wide.codes).to(torch.uint8),
        torch.where(take, tight.scale, wide.scale),
        torch.where(take, tight.zero, wide.zero),
    )


def _fit(groups: Tensor, low: Tensor, high: Tensor, top: int) -> _Fit:
    """Fit groups to the codes 0 … top over low … high [G, 1].

    The error is infinite where float16 cannot hold the scale or the zero point, and where low and
    high are one number that is not 0, which no scale of 0 can stand for.
    """
    scale = to_float16((high - low) / torch.tensor(top, dtype=torch.float64))
    # A range that is too small for the dtype is not nothing: its smallest step may still do.
    scale = torch.where((scale == 0) & (high > low), SMALLEST_FLOAT16, scale)
    step = scale.to(torch.float64)
    empty = step == 0
    zero = to_float16(torch.where(empty, 0.0, 0 - low / step))
    offset = zero.to(torch.float64)
    codes = (torch.where(empty, 0.0, groups / step) + offset).round().clamp(0, top)
    error = ((codes - offset) * step - groups).abs().amax(dim=1, keepdim=True)
    usable = step.isfinite() & offset.isfinite() & (~empty | ((low == 0) & (high == 0)))
    return _Fit(codes, scale, zero, torch.where(usable, error, torch.inf))


def to_float16(values: Tensor) -> Tensor:
    """Round float64 to float16: to nearest, ties to even, once.

    A cast alone goes through float32 and rounds twice. Here float32 keeps in its last bit whether
    anything was cut off, so that the second rounding sees on which side of a tie the value was.
    """
    nearest = values.to(torch.float32)
    back = nearest.to(torch.float64)
    exact = (back == values) | values.isnan()
    too_far = ~exact & (back.abs() > values.abs())
    # One code less is one step towards zero, for both signs and from infinity too.
    truncated = nearest.view(torch.int32) - too_far.to(torch.int32)
    odd = torch.where(exact, truncated, truncated | 1)
    return odd.view(torch.float32).to(torch.float16)
