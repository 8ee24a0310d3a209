"""The peers: what one writes without kernels of one's own."""

import torch
from torch import Tensor


def dashq_formula(words: Tensor, scale: Tensor, zero: Tensor, rows: int) -> Tensor:
    """Return a 4-bit weight, bfloat16 [N, K]: unpack to int, cast, subtract, multiply."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    codes = ((words[:, None] >> shifts) & 15).view(scale.shape[0], -1)
    weight = (codes.to(torch.float32) - zero.to(torch.float32)) * scale.to(torch.float32)
    return weight.to(torch.bfloat16).view(rows, -1)


def nested_formula(hi: Tensor, lo: Tensor | None, scale: Tensor) -> Tensor:
    """Return a nested weight, bfloat16 [N, K]: unpack to int, cast, multiply."""
    codes = torch.stack([hi & 15, hi >> 4], dim=-1).to(torch.int32) - 8
    step = scale.to(torch.float32)
    if lo is not None:
        codes = codes * 16 + torch.stack([lo & 15, lo >> 4], dim=-1).to(torch.int32) - 8
        step = step / 16
    weight = codes.view(*scale.shape, -1).to(torch.float32) * step[:, :, None]
    return weight.to(torch.bfloat16).view(hi.shape[0], -1)
