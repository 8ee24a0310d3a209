"""The nested KV cache: one float32 scale per token and head, two nibble planes along head_dim.

Written at once (`kv_quantize`) or into the slots of a cache that is there (`kv_write`), read whole
by `kv_dequantize`. `attention` reads planes without writing them out.
"""

import torch
import triton
import triton.language as tl
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.nested_reconstruct import dequantize
from nibblespec.optimized.kernels.planes import deinterleave, nibbles_to_bytes
from nibblespec.optimized.kernels.rounding import rint, to_float32
from nibblespec.optimized.kernels.tiles import FLAT_BLOCK


@triton.jit
def _clip(code: tl.tensor, lowest: tl.tensor) -> tl.tensor:
    return tl.minimum(tl.maximum(code, lowest), 7.0)


@triton.jit
def _residual(value: tl.tensor, q4: tl.tensor, step: tl.tensor) -> tl.tensor:
    """Return the codes of what q4 leaves: product and difference are each rounded."""
    remainder = value - q4 * step
    qr = rint(tl.div_rn(remainder, step * 0.0625))
    return _clip(qr, tl.where(q4 == -8.0, 0.0, -8.0))


@triton.jit
def kv_quantize_kernel(
    x: tl.tensor,
    offset: tl.tensor,
    slots: tl.tensor,
    hi: tl.tensor,
    lo: tl.tensor,
    scale: tl.tensor,
    rows: tl.tensor,
    tokens: tl.tensor,
    heads: tl.tensor,
    capacity: tl.tensor,
    WIDTH: tl.constexpr,
    OFFSET: tl.constexpr,
    SCATTER: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Quantize x [rows, WIDTH], rows being (…, head, token), ROWS rows per program.

    Token l of a head goes to row l, with SCATTER to row slots[l], of the `capacity` rows that each
    head has in hi, lo and scale. OFFSET: subtract offset [heads, WIDTH].
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    # Masked lanes are 0 and so widen no range.
    value = to_float32(tl.load(x + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0))
    above = row // tokens
    token = row - above * tokens
    if OFFSET:
        place = (above % heads)[:, None] * WIDTH + column[None, :]
        value = value - to_float32(tl.load(offset + place, mask=inside, other=0.0))
    largest = tl.max(tl.abs(value), axis=1)
    step = tl.maximum(tl.div_rn(largest, tl.full((ROWS,), 7.0, tl.float32)), 1e-8)
    even, odd = deinterleave(value)
    steps = tl.broadcast_to(step[:, None], even.shape)
    even_q4 = _clip(rint(tl.div_rn(even, steps)), -8.0)
    odd_q4 = _clip(rint(tl.div_rn(odd, steps)), -8.0)
    even_qr = _residual(even, even_q4, steps)
    odd_qr = _residual(odd, odd_q4, steps)
    if SCATTER:
        token = tl.load(slots + token, mask=row < rows, other=0)
    target = above * capacity + token
    byte = tl.arange(0, BLOCK // 2)
    place = target[:, None] * (WIDTH // 2) + byte[None, :]
    inside = (row < rows)[:, None] & (byte < WIDTH // 2)[None, :]
    tl.store(hi + place, nibbles_to_bytes(even_q4, odd_q4), mask=inside)
    tl.store(lo + place, nibbles_to_bytes(even_qr, odd_qr), mask=inside)
    tl.store(scale + target, step, mask=row < rows)


def kv_quantize(
    x: torch.Tensor, offset: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hi and lo, uint8 [..., H, L, D/2], and scale, float32 [..., H, L].

    x float16, bfloat16 or float32 [..., H, L, D], D even; offset [H, D] in any of these dtypes, or
    None, and then x may be any [..., D]. Implements BN1-KV-SCALE, BN1-KV-CODES, BN1-KV-RESIDUAL,
    BN1-KV-OFFSET, BN1-KV-WIDEN and BN1-KV-PLANES.
    """
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    hi, lo = (torch.empty(shape, dtype=torch.uint8, device=x.device) for _ in range(2))
    scale = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    _quantize(x, offset, None, hi, lo, scale)
    return hi, lo, scale


def kv_write(
    x: torch.Tensor,
    offset: torch.Tensor | None,
    hi: torch.Tensor,
    lo: torch.Tensor,
    scale: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Quantize x [B, H, L, D] into a cache: token l goes to position slots[l] of every head.

    hi, lo uint8 [B, H, capacity, D/2] and scale float32 [B, H, capacity] are contiguous and
    written in place; slots int64 [L] holds different positions below `capacity`. The rest is as in
    `kv_quantize`.
    """
    _quantize(x, offset, slots, hi, lo, scale)


def _quantize(
    x: torch.Tensor,
    offset: torch.Tensor | None,
    slots: torch.Tensor | None,
    hi: torch.Tensor,
    lo: torch.Tensor,
    scale: torch.Tensor,
) -> None:
    width = x.shape[-1]
    rows = x.numel() // width
    if rows == 0:
        return
    x = x.contiguous()
    block = max(2, triton.next_power_of_2(width))
    rows_per_program = max(1, min(FLAT_BLOCK // block // 4, triton.next_power_of_2(rows)))
    launch(
        kv_quantize_kernel,
        triton.cdiv(rows, rows_per_program),
        x,
        x if offset is None else offset.contiguous(),
        x if slots is None else slots,
        hi,
        lo,
        scale,
        rows,
        x.shape[-2] if x.ndim > 1 else 1,
        1 if offset is None else offset.shape[0],
        scale.shape[-1] if scale.ndim else 1,
        exact=True,
        WIDTH=width,
        OFFSET=offset is not None,
        SCATTER=slots is not None,
        ROWS=rows_per_program,
        BLOCK=block,
    )


def kv_dequantize(
    hi: torch.Tensor, lo: torch.Tensor | None, scale: torch.Tensor, plane: str
) -> torch.Tensor:
    """Return what a reader of the cache sees, float32 [..., D].

    hi, lo uint8 [..., D/2], lo None for the draft; scale float32 [...]. Implements BN1-KV-DRAFT and
    BN1-KV-TARGET.
    """
    shape = (*hi.shape[:-1], 2 * hi.shape[-1])
    out = torch.empty(shape, dtype=torch.float32, device=hi.device)
    return dequantize(hi, lo if plane == "target" else None, scale, out)
