"""Weights to measure with, drawn at random."""

import torch
from nibblespec.optimized.benchmarks import shapes
from nibblespec.optimized.layout import DashqLayout, group_count, word_count
from torch import Tensor


def dashq_weight(
    rows: int, columns: int, group: int = shapes.DASHQ_GROUP, device: str = "cpu"
) -> tuple[tuple[Tensor, Tensor, Tensor], DashqLayout]:
    """Draw words, scale and zero of a packed weight of the example's width."""
    layout = DashqLayout(shapes.DASHQ_BITS, group, rows, columns, columns)
    count, groups = word_count(rows * columns, layout.nbits), group_count(layout)
    words = torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64, device=device)
    scale = (torch.rand(groups, 1, device=device) * 0.01).to(torch.float16)
    zero = (torch.rand(groups, 1, device=device) * 15).to(torch.float16)
    return (words.to(torch.int32), scale, zero), layout


def nested_weight(rows: int, columns: int, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Draw planes without the pairs that a package must not hold, and scales."""
    planes = torch.randint(0, 256, (2, rows, columns // 2), dtype=torch.uint8, device=device)
    groups = columns // shapes.NESTED_GROUP
    scale = (torch.rand(rows, groups, device=device) * 0.01).to(torch.float16)
    return planes[0].clone(), planes[1] | 0x88, scale


def activations(rows: int, columns: int, device: str = "cpu") -> Tensor:
    """Draw inputs of a layer, bfloat16 [M, K]."""
    return torch.randn(rows, columns, device=device).to(torch.bfloat16)
