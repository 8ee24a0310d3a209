"""The operations of `nibblespec.spec.operations` on torch tensors.

They compute what the operations of the specification compute, with two differences in form: dtypes
are `torch.dtype`, and a dashq module is given by its `DashqLayout`. One more is two of them in one.
Tensors of one call are on one device, and so is the result.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from nibblespec.optimized.layout import DashqLayout
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """One implementation of every operation.

    `register` makes a checked set of an unchecked one. In an unchecked set, arguments are what
    `checks` lets through; weights and caches are contiguous, and lo is None for the draft.
    """

    pack_words: Callable[[Tensor, int], Tensor]
    """(codes uint8 [n], nbits) → int32 [⌈n/P⌉]"""
    unpack_words: Callable[[Tensor, int, int], Tensor]
    """(words int32 [⌈count/P⌉], nbits, count) → uint8 [count]"""
    dashq_reconstruct: Callable[[Tensor, Tensor, Tensor, DashqLayout, torch.dtype], Tensor]
    """(words, scale [num_groups, 1], zero [num_groups, 1], layout, dtype) → dtype [N, K]"""
    dashq_linear: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None, DashqLayout], Tensor]
    """(x [M, K], words, scale, zero, bias [N] or None, layout) → x's dtype [M, N]"""
    pack_planes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """(q4, qr int8 [N, K]) → hi, lo uint8 [N, K/2]"""
    unpack_planes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """(hi, lo uint8 [N, K/2]) → q4, qr int8 [N, K]"""
    nested_reconstruct: Callable[[Tensor, Tensor | None, Tensor, str, torch.dtype], Tensor]
    """(hi, lo or None, scale float16 [N, G], plane, dtype) → dtype [N, K]"""
    quantize_activations: Callable[[Tensor, int], tuple[Tensor, Tensor]]
    """(x [M, K], group) → codes int8 [M, K], scales float32 [M, K/group or 1]"""
    nested_linear: Callable[
        [Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor | None, str, torch.dtype], Tensor
    ]
    """(xq, sx, hi, lo or None, scale, bias float16 [N] or None, plane, dtype) → dtype [M, N]"""
    hadamard: Callable[[Tensor, Tensor | None, torch.dtype], Tensor]
    """(x [..., K·2^k], had_k float32 [K, K] or None, dtype) → dtype of x's shape"""
    kv_quantize: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]
    """(x [..., H, L, D], offset [H, D] or None) → hi, lo uint8 [..., D/2], scale float32 [...]"""
    kv_dequantize: Callable[[Tensor, Tensor | None, Tensor, str], Tensor]
    """(hi, lo or None, scale, plane) → float32 [..., D]"""
    kv_attention: Callable[
        [
            Tensor,
            Tensor,
            Tensor | None,
            Tensor,
            Tensor,
            Tensor | None,
            Tensor,
            Tensor | None,
            int,
            str,
            float,
            torch.dtype,
        ],
        Tensor,
    ]
    """(q, k_hi, k_lo, k_scale, v_hi, v_lo, v_scale, v_offset, position, plane, softmax_scale,
    dtype) → dtype [B, Hq, M, D]"""
    quantize_transformed: Callable[[Tensor, Tensor | None, int], tuple[Tensor, Tensor]]
    """(x [M, K], had_k or None, group) → quantize_activations(hadamard(x, had_k, float32), group):
    the bits of the two operations, of this set"""


def one_after_the_other(
    hadamard: Callable[[Tensor, Tensor | None, torch.dtype], Tensor],
    quantize_activations: Callable[[Tensor, int], tuple[Tensor, Tensor]],
) -> Callable[[Tensor, Tensor | None, int], tuple[Tensor, Tensor]]:
    """Return `quantize_transformed` of an implementation that has nothing better."""

    def quantize_transformed(x: Tensor, had_k: Tensor | None, group: int) -> tuple[Tensor, Tensor]:
        return quantize_activations(hadamard(x, had_k, torch.float32), group)

    return quantize_transformed
