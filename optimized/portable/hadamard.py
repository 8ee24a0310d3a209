"""The online Hadamard transform in its canonical float32 evaluation."""

import math

import torch
from torch import Tensor


def hadamard(x: Tensor, had_k: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the transform of the last axis, dtype of x's shape.

    Implements BN1-HADAMARD-ORDER, BN1-HADAMARD-AXES, BN1-HADAMARD-MATRIX, BN1-HADAMARD-SCALE,
    BN1-HADAMARD-EXACT, BN1-HADAMARD-CANONICAL and BN1-HADAMARD-RANGE.
    """
    n = x.shape[-1]
    order = 1 if had_k is None else had_k.shape[0]
    rows = x.numel() // n
    y = walsh_hadamard(x.to(torch.float32).reshape(rows, order, n // order))
    if had_k is not None:
        y = multiply_by_matrix(had_k, y)
    return (y * (1 / math.sqrt(n))).to(dtype).view(x.shape)


def walsh_hadamard(x: Tensor) -> Tensor:
    """Return the unscaled transform of the last axis: by butterflies."""
    size = x.shape[-1]
    stride = 1
    while stride < size:
        a, b = x.view(*x.shape[:-1], size // (2 * stride), 2, stride).unbind(-2)
        x = torch.stack([a + b, a - b], dim=-2).view(x.shape)
        stride *= 2
    return x


def multiply_by_matrix(had_k: Tensor, x: Tensor) -> Tensor:
    """Return y[:, i] = Σ over l of had_k[i, l]·x[:, l], added in the order of l."""
    y = had_k[:, 0, None] * x[:, 0:1]
    for column in range(1, had_k.shape[1]):
        y = y + had_k[:, column, None] * x[:, column : column + 1]
    return y
