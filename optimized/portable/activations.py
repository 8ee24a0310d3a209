"""A8: int8 codes and one float32 scale for each group of a token's columns."""

import torch
from nibblespec.optimized.portable.sums import constant
from torch import Tensor

SMALLEST_SCALE = 1e-8


def quantize_activations(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return codes int8 [M, K] and scales float32 [M, K/group], or [M, 1] for group -1.

    Implements BN1-ACT-SCALE, BN1-ACT-CODES, BN1-ACT-GROUPS and BN1-ACT-WIDEN.
    """
    rows, columns = x.shape
    width = columns if group == -1 else group
    groups = x.to(torch.float32).reshape(rows, columns // width, width)
    largest = groups.abs().amax(dim=2)
    scale = (largest / constant(127.0, x)).clamp(min=SMALLEST_SCALE)
    codes = (groups / scale[:, :, None]).round().clamp(-128, 127)
    return codes.to(torch.int8).view(rows, columns), scale
