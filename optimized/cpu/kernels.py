"""The operations on CPU tensors, through the compiled kernels."""

import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from nibblespec.optimized import portable
from nibblespec.optimized.checks import check_tensor
from nibblespec.optimized.cpu.library import Library
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.operations import Operations
from torch import Tensor

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""dtypes as library.cpp numbers them."""

LANES = 16
"""float32 numbers that the library takes at a time."""


def compiled(kernels: Library) -> Operations:
    """Return the operations that the library computes; the rest is portable.

    Words and planes are packed by plain PyTorch: nobody packs while a model runs.
    """
    functions: tuple[Callable[..., Any], ...] = (
        dashq_reconstruct,
        dashq_linear,
        nested_reconstruct,
        quantize_activations,
        nested_linear,
        hadamard,
        kv_quantize,
        kv_dequantize,
        kv_attention,
        quantize_transformed,
    )
    return replace(
        portable.OPERATIONS,
        **{function.__name__: functools.partial(function, kernels) for function in functions},
    )


def dashq_reconstruct(
    kernels: Library,
    words: Tensor,
    scale: Tensor,
    zero: Tensor,
    layout: DashqLayout,
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """See `Operations.dashq_reconstruct`. A contiguous `out`, dtype [N, K], is written to.

    Raises TypeError or ValueError for another `out`.
    """
    out = _output(out, words, (layout.rows, layout.columns), dtype)
    scale, zero = known(scale), known(zero)
    kernels.call(
        "dashq_reconstruct",
        sizes(layout),
        words.data_ptr(),
        DTYPES[scale.dtype],
        scale.data_ptr(),
        zero.data_ptr(),
        DTYPES[dtype],
        out.data_ptr(),
    )
    return out


def dashq_linear(
    kernels: Library,
    x: Tensor,
    words: Tensor,
    scale: Tensor,
    zero: Tensor,
    bias: Tensor | None,
    layout: DashqLayout,
) -> Tensor:
    """See `Operations.dashq_linear`."""
    padding = (0, -layout.columns % LANES)
    tokens = torch.nn.functional.pad(x.to(torch.float32), padding).contiguous()
    wide_bias = None if bias is None else bias.to(torch.float32).contiguous()
    out = x.new_empty(x.shape[0], layout.rows)
    scale, zero = known(scale), known(zero)
    kernels.call(
        "dashq_linear",
        sizes(layout),
        tokens.data_ptr(),
        *tokens.shape,
        words.data_ptr(),
        DTYPES[scale.dtype],
        scale.data_ptr(),
        zero.data_ptr(),
        address(wide_bias),
        DTYPES[x.dtype],
        out.data_ptr(),
    )
    return out


def nested_reconstruct(
    kernels: Library,
    hi: Tensor,
    lo: Tensor | None,
    scale: Tensor,
    plane: str,
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """See `Operations.nested_reconstruct`; `out` as in `dashq_reconstruct`."""
    del plane
    out = _output(out, hi, (hi.shape[0], 2 * hi.shape[1]), dtype)
    reconstruct_planes(kernels, hi, lo, scale, scale.shape[1], out)
    return out


def kv_dequantize(
    kernels: Library, hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str
) -> Tensor:
    """See `Operations.kv_dequantize`."""
    del plane
    out = hi.new_empty(*hi.shape[:-1], 2 * hi.shape[-1], dtype=torch.float32)
    reconstruct_planes(kernels, hi, lo, scale, 1, out)
    return out


def quantize_activations(kernels: Library, x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """See `Operations.quantize_activations`."""
    x = x.contiguous()
    width, codes, scale = _codes_and_scale(x, group)
    kernels.call(
        "quantize_activations",
        scale.numel(),
        width,
        DTYPES[x.dtype],
        x.data_ptr(),
        codes.data_ptr(),
        scale.data_ptr(),
    )
    return codes, scale


def nested_linear(
    kernels: Library,
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
    del plane
    rows, columns = hi.shape[0], 2 * hi.shape[1]
    xq, sx = xq.contiguous(), sx.contiguous()
    bias = None if bias is None else bias.contiguous()
    out = xq.new_empty(xq.shape[0], rows, dtype=dtype)
    kernels.call(
        "nested_linear",
        xq.shape[0],
        rows,
        columns,
        columns // sx.shape[1],
        columns // scale.shape[1],
        xq.data_ptr(),
        sx.data_ptr(),
        hi.data_ptr(),
        address(lo),
        scale.data_ptr(),
        address(bias),
        DTYPES[dtype],
        out.data_ptr(),
    )
    return out


def hadamard(kernels: Library, x: Tensor, had_k: Tensor | None, dtype: torch.dtype) -> Tensor:
    """See `Operations.hadamard`."""
    x = x.contiguous()
    n = x.shape[-1]
    order = 1 if had_k is None else had_k.shape[0]
    out = torch.empty_like(x, dtype=dtype)
    kernels.call(
        "hadamard",
        x.numel() // n,
        order,
        n // order,
        DTYPES[x.dtype],
        x.data_ptr(),
        address(had_k),
        1 / math.sqrt(n),
        DTYPES[dtype],
        out.data_ptr(),
    )
    return out


def quantize_transformed(
    kernels: Library, x: Tensor, had_k: Tensor | None, group: int
) -> tuple[Tensor, Tensor]:
    """See `Operations.quantize_transformed`."""
    x = x.contiguous()
    tokens, n = x.shape
    order = 1 if had_k is None else had_k.shape[0]
    width, codes, scale = _codes_and_scale(x, group)
    kernels.call(
        "quantize_transformed",
        tokens,
        order,
        n // order,
        width,
        DTYPES[x.dtype],
        x.data_ptr(),
        address(had_k),
        1 / math.sqrt(n),
        codes.data_ptr(),
        scale.data_ptr(),
    )
    return codes, scale


def kv_quantize(
    kernels: Library, x: Tensor, offset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """See `Operations.kv_quantize`."""
    x = x.contiguous()
    wide_offset = None if offset is None else offset.to(torch.float32).contiguous()
    width = x.shape[-1]
    hi = x.new_empty(*x.shape[:-1], width // 2, dtype=torch.uint8)
    lo = torch.empty_like(hi)
    scale = x.new_empty(x.shape[:-1], dtype=torch.float32)
    kernels.call(
        "kv_quantize",
        scale.numel(),
        width,
        DTYPES[x.dtype],
        x.data_ptr(),
        address(wide_offset),
        *((1, 1) if wide_offset is None else x.shape[-3:-1]),
        hi.data_ptr(),
        lo.data_ptr(),
        scale.data_ptr(),
    )
    return hi, lo, scale


def kv_attention(
    kernels: Library,
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
    del plane
    batch, heads, queries, width = q.shape
    stored, length = k_hi.shape[1:3]
    wide = q.to(torch.float32).contiguous()
    offset = None if v_offset is None else v_offset.to(torch.float32).contiguous()
    out = q.new_empty(q.shape, dtype=dtype)
    kernels.call(
        "kv_attention",
        batch * stored,
        stored,
        heads // stored,
        queries,
        width,
        position,
        length,
        wide.data_ptr(),
        k_hi.data_ptr(),
        address(k_lo),
        k_scale.data_ptr(),
        v_hi.data_ptr(),
        address(v_lo),
        v_scale.data_ptr(),
        address(offset),
        softmax_scale,
        DTYPES[dtype],
        out.data_ptr(),
    )
    return out


def reconstruct_planes(
    kernels: Library, hi: Tensor, lo: Tensor | None, scale: Tensor, groups: int, out: Tensor
) -> None:
    """Write codes times scales; every row of the planes has that many groups."""
    columns = 2 * hi.shape[-1]
    kernels.call(
        "nested_reconstruct",
        hi.numel() // hi.shape[-1],
        columns,
        columns // groups,
        hi.data_ptr(),
        address(lo),
        DTYPES[scale.dtype],
        scale.data_ptr(),
        DTYPES[out.dtype],
        out.data_ptr(),
    )


def _codes_and_scale(x: Tensor, group: int) -> tuple[int, Tensor, Tensor]:
    """Return the columns of a group of tokens x, and memory for codes and scales."""
    width = x.shape[1] if group == -1 else group
    codes = torch.empty_like(x, dtype=torch.int8)
    return width, codes, x.new_empty(x.shape[0], x.shape[1] // width, dtype=torch.float32)


def _output(out: Tensor | None, like: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return a new tensor, or the one that is given, if it fits."""
    if out is None:
        return like.new_empty(shape, dtype=dtype)
    check_tensor(out, "out", dtype, shape, like.device, contiguous=True)
    return out


def known(parameter: Tensor) -> Tensor:
    """Return a dashq parameter in a dtype of the library: float8 becomes float16, exactly."""
    return parameter if parameter.dtype in DTYPES else parameter.to(torch.float16)


def sizes(layout: DashqLayout) -> ctypes.Array[ctypes.c_int64]:
    """Return a layout as the library takes it."""
    return (ctypes.c_int64 * len(layout))(*layout)


def address(tensor: Tensor | None) -> int | None:
    """Return where a tensor's elements are, None for none."""
    return None if tensor is None else tensor.data_ptr()
