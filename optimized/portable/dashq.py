"""dashq: the weight of a packed module, in the evaluation `fused`, and the layer."""

import torch
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.portable.words import unpack_words
from torch import Tensor


def dashq_reconstruct(
    words: Tensor, scale: Tensor, zero: Tensor, layout: DashqLayout, dtype: torch.dtype
) -> Tensor:
    """Return the weight, dtype [N, K].

    Implements NUM-EVALUATION-FUSED and chapter 7 of the specification.
    """
    rows, stored = layout.rows, layout.stored_columns
    weight = unpack_words(words, layout.nbits, rows * stored).to(torch.float32)
    groups = weight.view(-1, layout.group_size)
    groups -= zero.to(torch.float32)
    groups *= scale.to(torch.float32)
    return weight.view(rows, stored)[:, : layout.columns].to(dtype).contiguous()


def dashq_linear(
    x: Tensor,
    words: Tensor,
    scale: Tensor,
    zero: Tensor,
    bias: Tensor | None,
    layout: DashqLayout,
) -> Tensor:
    """Return x·weightᵀ + bias, [M, N] in x's dtype, the weight not rounded to it.

    Implements NUM-LINEAR-DASHQ-UNROUNDED and chapter 8 of the specification. The product is in
    float64: PyTorch's settings for float32 products (TF32, bfloat16) do not reach it.
    """
    weight = dashq_reconstruct(words, scale, zero, layout, torch.float32)
    y = x.to(torch.float64) @ weight.to(torch.float64).T
    if bias is not None:
        y += bias.to(torch.float64)
    return y.to(torch.float32).to(x.dtype)
