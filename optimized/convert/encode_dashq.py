"""Round-to-nearest encoder of dashq: scale, zero point and codes of each group, in float64.

Two ranges are tried for each group, the one that its weights span and that one extended to include
0; the one whose largest error is smaller is kept. Codes are fitted to the scale and the zero point
as they are stored, in float16.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_FLOAT16 = 2.0**-24

NARROWER = tuple(part / 20 for part in range(19, 5, -1))
"""Parts of the whole range that are tried where columns have an importance."""

LEAST_IMPORTANCE = 1e-3
"""Of a column, as a fraction of the mean."""


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
    """Codes float64 [G, group_size], parameters float16 [G, 1], errors float64 [G, 1]."""

    codes: Tensor
    scale: Tensor
    zero: Tensor
    error: Tensor


def encode_groups(
    weight: Tensor, nbits: int, group_size: int, importance: Tensor | None = None
) -> Groups:
    """Quantize the groups of a weight [N, K] (float16, bfloat16 or float32, finite), row by row.

    importance: of each column, float64 [K], not negative. With it, narrower ranges are tried as
    well, and the sum of squared errors counts, each times the importance of its column. A group of
    zeros gets scale, zero point and codes 0. Raises ValueError for a weight that is not finite, or
    a group whose scale float16 cannot hold.
    """
    groups = weight.to(torch.float64).reshape(-1, group_size)
    if not bool(groups.isfinite().all()):
        raise ValueError("expected finite weights, found an infinity or a NaN")
    low, high = groups.aminmax(dim=1, keepdim=True)
    down, up = low.clamp(max=0), high.clamp(min=0)
    ranges = [(low, high)]
    weights = None
    if importance is not None:
        ranges += [(down * part, up * part) for part in NARROWER]
        # The floor lets columns count that the text never used.
        floored = importance.clamp(min=LEAST_IMPORTANCE * float(importance.mean()))
        weights = floored.expand(weight.shape).reshape(-1, group_size)
    top = 2**nbits - 1
    best = _fit(groups, down, up, top, weights)
    for other in ranges:
        best = _better(_fit(groups, *other, top, weights), best)
    lost = ~best.error.isfinite()
    if bool(lost.any()):
        index = int(lost.view(-1).to(torch.uint8).argmax())
        raise ValueError(
            f"expected groups whose scale fits float16, found weights from "
            f"{float(low[index, 0]):g} to {float(high[index, 0]):g}"
        )
    return Groups(best.codes.to(torch.uint8), best.scale, best.zero)


def _better(first: _Fit, second: _Fit) -> _Fit:
    """Take each group from the first fit where its error is smaller."""
    take = first.error < second.error
    return _Fit(
        torch.where(take, first.codes, second.codes),
        torch.where(take, first.scale, second.scale),
        torch.where(take, first.zero, second.zero),
        torch.where(take, first.error, second.error),
    )


def _fit(groups: Tensor, low: Tensor, high: Tensor, top: int, weights: Tensor | None) -> _Fit:
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
    errors = (codes - offset) * step - groups
    if weights is None:
        error = errors.abs().amax(dim=1, keepdim=True)
    else:
        error = (errors.square() * weights).sum(dim=1, keepdim=True)
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
