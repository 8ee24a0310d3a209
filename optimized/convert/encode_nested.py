"""Encoder of nested codes: a residual on top of codes that were rounded to nearest.

    scale = float16(amax|w| / 7)          of each group
    q4 = clip(rint(w / s), −8, 7)         s: the scale as stored, widened to float32
    qr = clip(rint((w − q4·s) / (s/16)), −8, 7), at least 0 where q4 = −8

Each step is a float32 operation, rounded to nearest even. Where s is zero, so are both codes.
"""

import torch
from nibblespec.optimized.portable.sums import constant
from torch import Tensor


def encode_nested(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return q4 and qr, int8 [N, K] each, and scale, float16 [N, K/group_size].

    Raises ValueError for a weight that is not finite, or a group whose scale would overflow
    float16.
    """
    rows, columns = weight.shape
    groups = weight.to(torch.float32).reshape(rows, columns // group_size, group_size)
    if not bool(groups.isfinite().all()):
        raise ValueError("expected finite weights, found an infinity or a NaN")
    largest = groups.abs().amax(dim=2)
    scale = (largest / constant(7, groups)).to(torch.float16)
    if not bool(scale.isfinite().all()):
        raise ValueError(
            f"expected magnitudes whose seventh fits float16 (at most 65504), "
            f"found {float(largest.max()):g}"
        )
    step = scale.to(torch.float32)[:, :, None]
    q4 = _divide_and_round(groups, step).clamp(-8, 7)
    remainder = groups - q4 * step  # the product is exact
    qr = _divide_and_round(remainder, step / constant(16, step)).clamp(-8, 7)
    qr = torch.where(q4 == -8, qr.clamp(min=0), qr)
    return q4.to(torch.int8).view(rows, columns), qr.to(torch.int8).view(rows, columns), scale


def _divide_and_round(values: Tensor, step: Tensor) -> Tensor:
    """Return rint(values / step), 0 where the step is 0."""
    return torch.where(step == 0, 0.0, values / step).round()
