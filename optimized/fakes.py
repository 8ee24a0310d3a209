"""What each operation returns, without computing it: shapes and dtypes, for torch.compile."""

import torch
from nibblespec.optimized.layout import word_count
from torch import Tensor


def pack_words(codes: Tensor, nbits: int) -> Tensor:
    """See `Operations.pack_words`."""
    return codes.new_empty(word_count(codes.shape[0], nbits), dtype=torch.int32)


def unpack_words(words: Tensor, nbits: int, count: int) -> Tensor:
    """See `Operations.unpack_words`."""
    del nbits
    return words.new_empty(count, dtype=torch.uint8)


def dashq_reconstruct(
    words: Tensor, scale: Tensor, zero: Tensor, layout: list[int], dtype: torch.dtype
) -> Tensor:
    """See `Operations.dashq_reconstruct`."""
    del scale, zero
    _, _, rows, columns, _ = layout
    return words.new_empty(rows, columns, dtype=dtype)


def dashq_linear(
    x: Tensor, words: Tensor, scale: Tensor, zero: Tensor, bias: Tensor | None, layout: list[int]
) -> Tensor:
    """See `Operations.dashq_linear`."""
    del words, scale, zero, bias
    return x.new_empty(x.shape[0], layout[2])


def pack_planes(q4: Tensor, qr: Tensor) -> tuple[Tensor, Tensor]:
    """See `Operations.pack_planes`."""
    shape = (q4.shape[0], q4.shape[1] // 2)
    return q4.new_empty(shape, dtype=torch.uint8), qr.new_empty(shape, dtype=torch.uint8)


def unpack_planes(hi: Tensor, lo: Tensor) -> tuple[Tensor, Tensor]:
    """See `Operations.unpack_planes`."""
    shape = (hi.shape[0], hi.shape[1] * 2)
    return hi.new_empty(shape, dtype=torch.int8), lo.new_empty(shape, dtype=torch.int8)


def nested_reconstruct(
    hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str, dtype: torch.dtype
) -> Tensor:
    """See `Operations.nested_reconstruct`."""
    del lo, scale, plane
    return hi.new_empty(hi.shape[0], hi.shape[1] * 2, dtype=dtype)


def quantize_activations(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """See `Operations.quantize_activations`."""
    groups = 1 if group == -1 else x.shape[1] // group
    return (
        x.new_empty(x.shape, dtype=torch.int8),
        x.new_empty(x.shape[0], groups, dtype=torch.float32),
    )


def nested_linear(
    xq: Tensor,
    sx: Tensor,
    hi: Tensor,
    lo: Tensor | None,
    scale: Tensor,
    bias: Tensor | None,
    plane: str,
    dtype: torch.dtype,
) -> Tensor:
    """See `Operations.nested_linear`."""
    del sx, lo, scale, bias, plane
    return xq.new_empty(xq.shape[0], hi.shape[0], dtype=dtype)


def hadamard(x: Tensor, had_k: Tensor | None, dtype: torch.dtype) -> Tensor:
    """See `Operations.hadamard`."""
    del had_k
    return x.new_empty(x.shape, dtype=dtype)


def kv_quantize(x: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """See `Operations.kv_quantize`."""
    del offset
    plane = (*x.shape[:-1], x.shape[-1] // 2)
    return (
        x.new_empty(plane, dtype=torch.uint8),
        x.new_empty(plane, dtype=torch.uint8),
        x.new_empty(x.shape[:-1], dtype=torch.float32),
    )


def kv_dequantize(hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str) -> Tensor:
    """See `Operations.kv_dequantize`."""
    del lo, scale, plane
    return hi.new_empty((*hi.shape[:-1], hi.shape[-1] * 2), dtype=torch.float32)


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
    """See `Operations.kv_attention`."""
    del k_hi, k_lo, k_scale, v_hi, v_lo, v_scale, v_offset, position, plane, softmax_scale
    return q.new_empty(q.shape, dtype=dtype)


def quantize_transformed(x: Tensor, had_k: Tensor | None, group: int) -> tuple[Tensor, Tensor]:
    """See `Operations.quantize_transformed`."""
    del had_k
    return quantize_activations(x, group)
