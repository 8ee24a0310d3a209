"""Nibble planes: byte j holds column 2j in its low and column 2j + 1 in its high four bits."""

import torch
from torch import Tensor


def pack_planes(q4: Tensor, qr: Tensor) -> tuple[Tensor, Tensor]:
    """Pack codes int8 [N, K] into hi and lo, uint8 [N, K/2].

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER. Raises ValueError for a
    code outside -8 … 7 and for a pair that BN1-CODES-INT8 forbids.
    """
    for name, codes in (("q4", q4), ("qr", qr)):
        if codes.numel() and not (int(codes.min()) >= -8 and int(codes.max()) <= 7):
            raise ValueError(
                f"{name}: expected codes in -8 … 7, found {int(codes.min())} … {int(codes.max())}"
            )
    if bool(((q4 == -8) & (qr < 0)).any()):
        raise ValueError("qr: expected no negative code where q4 is -8 (BN1-CODES-INT8)")
    return pack_nibbles(q4), pack_nibbles(qr)


def unpack_planes(hi: Tensor, lo: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack hi and lo, uint8 [N, K/2], into codes int8 [N, K].

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER.
    """
    return unpack_nibbles(hi), unpack_nibbles(lo)


def pack_nibbles(codes: Tensor) -> Tensor:
    """Pack codes in -8 … 7, int8 [..., K] with K even, into uint8 [..., K/2]."""
    excess = (codes + 8).to(torch.uint8)
    return excess[..., 0::2] | (excess[..., 1::2] << 4)


def unpack_nibbles(plane: Tensor) -> Tensor:
    """Unpack uint8 [..., K/2] into codes in -8 … 7, int8 [..., K]."""
    excess = torch.stack([plane & 15, plane >> 4], dim=-1).flatten(-2)
    return excess.to(torch.int8) - 8


def read_codes(hi: Tensor, lo: Tensor | None) -> Tensor:
    """Return the codes of a plane in float32 [..., K]: q4 (lo None) or 16·q4 + qr."""
    codes = unpack_nibbles(hi).to(torch.float32)
    return codes if lo is None else codes * 16 + unpack_nibbles(lo).to(torch.float32)
