"""Operations that check their arguments before they do anything.

Each function here is an operation with another one inside: it checks, and calls. Weights and
caches have to be contiguous, since a silent copy of a weight in every call would cost more than the
call; inputs need not be. Elements are not looked at: what a package may hold, the validator checks.
"""

import functools
from dataclasses import fields

import torch
from nibblespec.optimized import checks
from nibblespec.optimized.checks import FLOATS, check_tensor
from nibblespec.optimized.layout import DashqLayout, word_count
from nibblespec.optimized.operations import Operations
from torch import Tensor


def checked(operations: Operations) -> Operations:
    """Return the operations, each behind its checks."""
    return Operations(
        **{
            field.name: functools.partial(globals()[field.name], operations)
            for field in fields(Operations)
        }
    )


def pack_words(inner: Operations, codes: Tensor, nbits: int) -> Tensor:
    """Check and call `pack_words`."""
    checks.check_integer(nbits, "nbits", 1, 8)
    check_tensor(codes, "codes", torch.uint8, ("n",))
    return inner.pack_words(codes, nbits)


def unpack_words(inner: Operations, words: Tensor, nbits: int, count: int) -> Tensor:
    """Check and call `unpack_words`."""
    checks.check_integer(nbits, "nbits", 1, 8)
    checks.check_integer(count, "count", 0)
    check_tensor(words, "words", torch.int32, (word_count(count, nbits),))
    return inner.unpack_words(words, nbits, count)


def dashq_reconstruct(
    inner: Operations,
    words: Tensor,
    scale: Tensor,
    zero: Tensor,
    layout: DashqLayout,
    dtype: torch.dtype,
) -> Tensor:
    """Check and call `dashq_reconstruct`."""
    checks.check_dtype(dtype)
    checks.check_dashq_weight(words, scale, zero, layout)
    return inner.dashq_reconstruct(words, scale, zero, layout, dtype)


def dashq_linear(
    inner: Operations,
    x: Tensor,
    words: Tensor,
    scale: Tensor,
    zero: Tensor,
    bias: Tensor | None,
    layout: DashqLayout,
) -> Tensor:
    """Check and call `dashq_linear`."""
    checks.check_dashq_weight(words, scale, zero, layout)
    check_tensor(x, "x", FLOATS, ("M", layout.columns), words.device)
    if bias is not None:
        check_tensor(bias, "bias", x.dtype, (layout.rows,), words.device)
    return inner.dashq_linear(x, words, scale, zero, bias, layout)


def pack_planes(inner: Operations, q4: Tensor, qr: Tensor) -> tuple[Tensor, Tensor]:
    """Check and call `pack_planes`."""
    check_tensor(q4, "q4", torch.int8, ("N", "K"))
    check_tensor(qr, "qr", torch.int8, tuple(q4.shape), q4.device)
    checks.check_even(q4.shape[1], "q4")
    return inner.pack_planes(q4, qr)


def unpack_planes(inner: Operations, hi: Tensor, lo: Tensor) -> tuple[Tensor, Tensor]:
    """Check and call `unpack_planes`."""
    check_tensor(hi, "hi", torch.uint8, ("N", "K/2"))
    check_tensor(lo, "lo", torch.uint8, tuple(hi.shape), hi.device)
    return inner.unpack_planes(hi, lo)


def nested_reconstruct(
    inner: Operations,
    hi: Tensor,
    lo: Tensor | None,
    scale: Tensor,
    plane: str,
    dtype: torch.dtype,
) -> Tensor:
    """Check and call `nested_reconstruct`."""
    checks.check_dtype(dtype)
    lo = checks.check_nested_weight(hi, lo, scale, plane)
    return inner.nested_reconstruct(hi, lo, scale, plane, dtype)


def quantize_activations(inner: Operations, x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Check and call `quantize_activations`."""
    _check_quantizable(x, group)
    return inner.quantize_activations(x, group)


def _check_quantizable(x: Tensor, group: int) -> None:
    """Require tokens, and a group of their columns."""
    check_tensor(x, "x", FLOATS, ("M", "K"))
    checks.check_integer(x.shape[1], "columns of x", 1)
    checks.check_integer(group, "group", -1)
    if group != -1:
        checks.check_integer(group, "group", 1)
        checks.check_divides(group, x.shape[1], "group", "K")


def nested_linear(
    inner: Operations,
    xq: Tensor,
    sx: Tensor,
    hi: Tensor,
    lo: Tensor | None,
    scale: Tensor,
    bias: Tensor | None,
    plane: str,
    dtype: torch.dtype,
) -> Tensor:
    """Check and call `nested_linear`."""
    checks.check_dtype(dtype)
    lo = checks.check_nested_weight(hi, lo, scale, plane)
    columns = 2 * hi.shape[1]
    check_tensor(xq, "xq", torch.int8, ("M", columns), hi.device)
    check_tensor(sx, "sx", torch.float32, (xq.shape[0], "groups"), hi.device)
    checks.check_integer(sx.shape[1], "groups of sx", 1)
    checks.check_divides(sx.shape[1], columns, "groups of sx", "K")
    if bias is not None:
        check_tensor(bias, "bias", torch.float16, (hi.shape[0],), hi.device)
    return inner.nested_linear(xq, sx, hi, lo, scale, bias, plane, dtype)


def hadamard(inner: Operations, x: Tensor, had_k: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Check and call `hadamard`."""
    checks.check_dtype(dtype)
    checks.check_hadamard(x, had_k)
    return inner.hadamard(x, had_k, dtype)


def kv_quantize(
    inner: Operations, x: Tensor, offset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Check and call `kv_quantize`."""
    check_tensor(x, "x", FLOATS, ("...", "D"))
    checks.check_even(x.shape[-1], "x")
    if offset is not None:
        check_tensor(x, "x", FLOATS, ("...", "H", "L", "D"))
        check_tensor(offset, "offset", FLOATS, (x.shape[-3], x.shape[-1]), x.device)
    return inner.kv_quantize(x, offset)


def kv_dequantize(
    inner: Operations, hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str
) -> Tensor:
    """Check and call `kv_dequantize`."""
    lo = checks.check_planes(hi, lo, plane, ("...", "D/2"))
    check_tensor(scale, "scale", torch.float32, tuple(hi.shape[:-1]), hi.device, contiguous=True)
    return inner.kv_dequantize(hi, lo, scale, plane)


def kv_attention(
    inner: Operations,
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
    """Check and call `kv_attention`."""
    checks.check_dtype(dtype)
    check_tensor(q, "q", FLOATS, ("B", "Hq", "M", "D"))
    batch, heads, queries, width = q.shape
    checks.check_even(width, "q")
    k_lo = checks.check_planes(k_hi, k_lo, plane, (batch, "Hkv", "L", width // 2), "k_")
    v_lo = checks.check_planes(v_hi, v_lo, plane, tuple(k_hi.shape), "v_")
    cache = tuple(k_hi.shape[:3])
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        check_tensor(scale, name, torch.float32, cache, q.device, contiguous=True)
    for name, plane_bytes in (("k_hi", k_hi), ("v_hi", v_hi)):
        check_tensor(plane_bytes, name, torch.uint8, tuple(k_hi.shape), q.device)
    checks.check_integer(cache[1], "heads of the cache", 1)
    checks.check_divides(cache[1], heads, "heads of the cache", "Hq")
    if v_offset is not None:
        check_tensor(v_offset, "v_offset", FLOATS, (cache[1], width), q.device)
    checks.check_integer(position, "position", 0, cache[2] - queries)
    checks.check_scale(softmax_scale, "softmax_scale")
    return inner.kv_attention(
        q,
        k_hi,
        k_lo,
        k_scale,
        v_hi,
        v_lo,
        v_scale,
        v_offset,
        position,
        plane,
        float(softmax_scale),
        dtype,
    )


def quantize_transformed(
    inner: Operations, x: Tensor, had_k: Tensor | None, group: int
) -> tuple[Tensor, Tensor]:
    """Check and call `quantize_transformed`."""
    _check_quantizable(x, group)
    checks.check_hadamard(x, had_k)
    return inner.quantize_transformed(x, had_k, group)
