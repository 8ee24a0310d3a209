"""Nibble planes: two codes a byte, packed, unpacked, and read by other kernels.

Byte j of a row holds column 2j in its low and column 2j + 1 in its high four bits, each code q as
q + 8. Rows of an even number of columns follow each other without a gap, so that a plane is one
long row.

Arguments are what `nibblespec.optimized.checks` lets through; only the device is looked at again.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.tiles import flat_block


@triton.jit
def load_codes(
    hi: tl.tensor, lo: tl.tensor, place: tl.tensor, inside: tl.tensor, TARGET: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Load bytes and return the codes of even and of odd columns, uint8, in excess of 8 or 136.

    TARGET: 16·q4 + qr, 136 more than it is; otherwise q4, 8 more, for which `lo` is not looked at.
    Outside, codes are 0.
    """
    high = tl.load(hi + place, mask=inside, other=0x88)
    low = tl.load(lo + place, mask=inside, other=0x88) if TARGET else high
    return codes_of_bytes(high, low, TARGET)


@triton.jit
def codes_of_bytes(
    high: tl.tensor, low: tl.tensor, TARGET: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return the codes of the even and odd columns of bytes, as `load_codes` does."""
    if TARGET:
        return (high << 4) | (low & 15), (high & 0xF0) | (low >> 4)
    else:
        return high & 15, high >> 4


@triton.jit
def excess_to_int8(code: tl.tensor, TARGET: tl.constexpr) -> tl.tensor:
    """Return what `load_codes` gave without the excess, int8 in -128 … 119 or -8 … 7."""
    if TARGET:
        return (code + 120).to(tl.int8, bitcast=True)  # less 136, in eight bits
    else:
        return (code + 248).to(tl.int8, bitcast=True)  # less 8


@triton.jit
def excess_to_float32(code: tl.tensor, TARGET: tl.constexpr) -> tl.tensor:
    """Return what `load_codes` gave without the excess, in float32: exact, and no zero is -0.

    As the mantissa of 2**23 + code: an `or` and a subtraction, where GPUs convert integers slowly.
    """
    shifted = (code.to(tl.uint32) | 0x4B000000).to(tl.float32, bitcast=True)
    if TARGET:
        return shifted - 8388744.0  # 2**23 + 136
    else:
        return shifted - 8388616.0  # 2**23 + 8


@triton.jit
def interleave(even: tl.tensor, odd: tl.tensor) -> tl.tensor:
    """Return [R, 2·C] from the even and the odd columns, [R, C] each."""
    return tl.reshape(tl.join(even, odd), (even.shape[0], 2 * even.shape[1]))


@triton.jit
def deinterleave(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return the even and the odd columns, [R, C] each, of [R, 2·C]."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@triton.jit
def nibbles_to_bytes(even: tl.tensor, odd: tl.tensor) -> tl.tensor:
    """Return the bytes, uint8, of codes in -8 … 7, int8 or float32, of even and odd columns."""
    low = (even.to(tl.int8) + 8).to(tl.uint8, bitcast=True)
    high = (odd.to(tl.int8) + 8).to(tl.uint8, bitcast=True)
    return low | (high << 4)


@triton.jit
def pack_planes_kernel(
    q4: tl.tensor,
    qr: tl.tensor,
    hi: tl.tensor,
    lo: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Write uint8 hi and lo [size] of int8 codes [2·size], BLOCK codes per program."""
    count = tl.cast(size, tl.int64) * 2
    first = tl.program_id(0).to(tl.int64) * BLOCK
    place = first + tl.arange(0, BLOCK)[None, :]
    byte = first // 2 + tl.arange(0, BLOCK // 2)[None, :]
    even, odd = deinterleave(tl.load(q4 + place, mask=place < count, other=0))
    tl.store(hi + byte, nibbles_to_bytes(even, odd), mask=byte < size)
    even, odd = deinterleave(tl.load(qr + place, mask=place < count, other=0))
    tl.store(lo + byte, nibbles_to_bytes(even, odd), mask=byte < size)


@triton.jit
def unpack_planes_kernel(
    hi: tl.tensor,
    lo: tl.tensor,
    q4: tl.tensor,
    qr: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Write int8 q4 and qr [2·size] of uint8 planes [size], BLOCK codes per program."""
    count = tl.cast(size, tl.int64) * 2
    first = tl.program_id(0).to(tl.int64) * BLOCK
    place = first + tl.arange(0, BLOCK)[None, :]
    byte = first // 2 + tl.arange(0, BLOCK // 2)[None, :]
    inside = byte < size
    even, odd = load_codes(hi, lo, byte, inside, False)
    code = excess_to_int8(interleave(even, odd), False)
    tl.store(q4 + place, code, mask=place < count)
    even, odd = load_codes(lo, lo, byte, inside, False)
    code = excess_to_int8(interleave(even, odd), False)
    tl.store(qr + place, code, mask=place < count)


def pack_planes(q4: torch.Tensor, qr: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack codes int8 [N, K], K even, into hi and lo, uint8 [N, K/2].

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER. That codes are in range is
    not checked: it would read them twice.
    """
    shape = (q4.shape[0], q4.shape[1] // 2)
    hi, lo = (torch.empty(shape, dtype=torch.uint8, device=q4.device) for _ in range(2))
    block = flat_block(q4.numel())
    launch(
        pack_planes_kernel,
        triton.cdiv(q4.numel(), block),
        q4.contiguous(),
        qr.contiguous(),
        hi,
        lo,
        hi.numel(),
        exact=True,
        BLOCK=block,
    )
    return hi, lo


def unpack_planes(hi: torch.Tensor, lo: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Unpack hi and lo, uint8 [N, K/2], into codes int8 [N, K].

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER.
    """
    shape = (hi.shape[0], 2 * hi.shape[1])
    q4, qr = (torch.empty(shape, dtype=torch.int8, device=hi.device) for _ in range(2))
    block = flat_block(q4.numel())
    launch(
        unpack_planes_kernel,
        triton.cdiv(q4.numel(), block),
        hi.contiguous(),
        lo.contiguous(),
        q4,
        qr,
        hi.numel(),
        exact=True,
        BLOCK=block,
    )
    return q4, qr
