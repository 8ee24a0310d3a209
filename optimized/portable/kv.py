"""The nested KV cache: one float32 scale per token and head, two nibble planes along head_dim."""

import torch
from nibblespec.optimized.portable.activations import SMALLEST_SCALE
from nibblespec.optimized.portable.planes import pack_nibbles, read_codes
from nibblespec.optimized.portable.sums import constant
from torch import Tensor


def kv_quantize(x: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return hi and lo, uint8 [..., D/2], and scale, float32 [...].

    Implements BN1-KV-SCALE, BN1-KV-CODES, BN1-KV-RESIDUAL, BN1-KV-OFFSET, BN1-KV-WIDEN and
    BN1-KV-PLANES.
    """
    value = x.to(torch.float32)
    if offset is not None:
        value = value - offset.to(torch.float32)[:, None, :]
    largest = value.abs().amax(dim=-1)
    scale = (largest / constant(7.0, x)).clamp(min=SMALLEST_SCALE)
    step = scale[..., None]
    q4 = (value / step).round().clamp(-8, 7)
    product = q4 * step  # rounded to float32
    remainder = value - product  # rounded to float32, not fused with the product
    qr = (remainder / (step / 16)).round().clamp(-8, 7)
    qr = torch.where(q4 == -8, qr.clamp(min=0), qr)
    return pack_nibbles(q4.to(torch.int8)), pack_nibbles(qr.to(torch.int8)), scale


def kv_dequantize(hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str) -> Tensor:
    """Return what a reader of the cache sees, float32 [..., D].

    Implements BN1-KV-DRAFT and BN1-KV-TARGET.
    """
    step = scale if plane == "draft" else scale / 16
    return read_codes(hi, lo) * step[..., None]
