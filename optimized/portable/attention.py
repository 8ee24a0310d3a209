"""Attention over the nested cache, with sums that no other query and no unseen key reorders."""

import torch
from nibblespec.optimized.portable.planes import read_codes
from nibblespec.optimized.portable.sums import rows_of_a_part, tree_sum
from torch import Tensor


def kv_attention(
    q: Tensor,
    k_hi: Tensor,
    k_lo: Tensor | None,
    k_scale: Tensor,
    v_hi: Tensor,
    v_lo: Tensor | None,
    v_scale: Tensor,
    v_offset: Tensor | None,
    position: int,
    plane: str,
    softmax_scale: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return dtype [B, Hq, M, D]; query m sees the keys 0 … position + m.

    Implements BN1-ATTENTION-CAUSAL, BN1-ATTENTION-HEADS, BN1-ATTENTION-OFFSET,
    BN1-ATTENTION-PLANE, BN1-ATTENTION-WIDEN and NUM-ATTENTION-EXP; with `tree_sum` over keys,
    NUM-INVARIANT-ROWS.
    """
    batch, heads, queries, width = q.shape
    stored = k_hi.shape[1]
    length = position + queries
    unit = 1.0 if plane == "draft" else 1 / 16
    k_step, v_step = (scale[:, :, :length] * unit for scale in (k_scale, v_scale))
    keys = _codes(k_hi, k_lo, length)  # [B, Hkv, L, D]
    values = _codes(v_hi, v_lo, length)
    # [B, Hkv, r·M, D]
    by_head = q.to(torch.float32).reshape(batch, stored, heads // stored * queries, width)
    result = torch.empty_like(by_head, dtype=dtype)
    place = torch.arange(by_head.shape[2], device=q.device) % queries + position
    step = rows_of_a_part(batch * stored * length * width)
    for first in range(0, by_head.shape[2], step):
        part = slice(first, first + step)
        seen = torch.arange(length, device=q.device) <= place[part, None]  # [m, L]
        products = by_head[:, :, part, None, :] * keys[:, :, None, :, :]
        score = tree_sum(products.movedim(-1, 0)) * k_step[:, :, None, :] * softmax_scale
        score = score.masked_fill(~seen, float("-inf"))
        weight = exponential(score - score.amax(dim=-1, keepdim=True))
        # Where a key is not seen the weight is 0, and the value is not looked at.
        steps = torch.where(seen, v_step[:, :, None, :], 0)
        terms = (weight * steps)[..., None] * torch.where(seen[..., None], values[:, :, None], 0)
        y = tree_sum(terms.movedim(-2, 0)) / tree_sum(weight.movedim(-1, 0))[..., None]
        if v_offset is not None:
            y = y + v_offset.to(torch.float32)[:, None, :]
        result[:, :, part] = y.to(dtype)
    return result.view(q.shape)


def _codes(hi: Tensor, lo: Tensor | None, length: int) -> Tensor:
    """Return the codes of the first positions, float32 [B, H, length, D]."""
    return read_codes(hi[:, :, :length], None if lo is None else lo[:, :, :length])


def exponential(a: Tensor) -> Tensor:
    """Return e^a for float32 a ≤ 0, in elementary operations: the same bits wherever a stands.

    Libraries take another path for the last elements of an array than for the rest. 2^n·p(r) with
    r = a - n·ln 2 in two parts and p the Taylor polynomial of degree 7; below 2^-126 it is 0.
    """
    a = a.clamp(min=-104.0)
    n = (a * 1.44269504).round()
    # 0.693359375 has nine bits, so that its product with n is exact.
    r = (a - n * 0.693359375) - n * -2.12194440e-4
    p = torch.full_like(r, 1 / 5040)
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        p = p * r + coefficient
    exponent = n.clamp(min=-126).to(torch.int32) + 127
    power = (exponent << 23).view(torch.float32)
    return torch.where(n < -126, 0, p * power)
