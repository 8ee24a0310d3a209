"""Calls of the operations on tensors, of many shapes, to compare implementations on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from nibblespec.optimized.layout import DashqLayout, group_count, word_count
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SCALES = (*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operation."""

    operation: str
    arguments: tuple[Any, ...]
    note: str

    def __str__(self) -> str:
        return f"{self.operation}, {self.note}"


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw numbers of many magnitudes in each row, float16 subnormals and zeros among them."""
    drawn = torch.randn(shape, generator=generator(seed))
    powers = torch.randint(-26, 4, shape, generator=generator(seed + 1))
    kept = torch.rand(shape, generator=generator(seed + 2)) < 0.9
    return (drawn * torch.pow(2.0, powers) * kept).to(dtype)


def whole(shape: tuple[int, ...], low: int, high: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Draw whole numbers in low … high."""
    return torch.randint(low, high + 1, shape, generator=generator(seed)).to(dtype)


def words(count: int, seed: int) -> Tensor:
    return torch.randint(-(2**31), 2**31, (count,), generator=generator(seed)).to(torch.int32)


def dashq_weight(
    layout: DashqLayout, dtype: torch.dtype, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw words, all bits of them, scales and zero points."""
    groups = group_count(layout)
    scale = torch.rand(groups, 1, generator=generator(seed)) + 0.01
    scale[::7] *= 1e-7  # subnormal in float16
    zero = torch.randn(groups, 1, generator=generator(seed + 1)) * 2**layout.nbits
    count = word_count(layout.rows * layout.stored_columns, layout.nbits)
    return words(count, seed + 2), scale.to(dtype), zero.to(dtype)


def planes(shape: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Draw hi and lo, uint8, with no negative residual where q4 is -8."""
    hi = whole(shape, 0, 255, seed, torch.uint8)
    lo = whole(shape, 0, 255, seed + 1, torch.uint8)
    for shift in (0, 4):
        lowest = ((hi >> shift) & 15) == 0
        lo = torch.where(lowest, lo | (8 << shift), lo)
    return hi, lo


def nested_scale(shape: tuple[int, ...], seed: int) -> Tensor:
    scale = torch.rand(shape, generator=generator(seed)) * 0.1
    scale[:, ::5] *= 1e-6  # subnormal, or zero
    return scale.to(torch.float16)


LAYOUTS = (
    DashqLayout(1, 32, 7, 160, 160),
    DashqLayout(2, 64, 3, 58, 128),
    DashqLayout(3, 3, 33, 20, 21),
    DashqLayout(4, 32, 5, 96, 96),
    DashqLayout(5, 128, 1, 128, 256),
    DashqLayout(6, 24, 9, 61, 72),
    DashqLayout(7, 1, 3, 50, 50),
    DashqLayout(8, 48, 4, 139, 144),
    DashqLayout(4, 32, 6, 70, 96),
    DashqLayout(4, 16, 5, 80, 80),
    DashqLayout(4, 5, 4, 15, 15),
    DashqLayout(4, 32, 1, 1, 32),
    DashqLayout(4, 96, 3, 192, 192),
)
"""Every width; groups that are multiples of 32, of 16, of neither; padding; words across rows."""


def exact_calls() -> Iterator[Call]:
    """Yield calls whose result is defined bit by bit."""
    for seed, layout in enumerate(LAYOUTS):
        for dtype in FLOATS:
            scale_dtype = SCALES[(seed + len(str(dtype))) % len(SCALES)]
            weight = dashq_weight(layout, scale_dtype, seed)
            yield Call("dashq_reconstruct", (*weight, layout, dtype), f"{layout} {dtype}")
    for seed, (rows, columns, groups) in enumerate(
        ((1, 2, 1), (3, 64, 2), (7, 66, 3), (33, 256, 2), (5, 100, 10), (2, 384, 4), (4, 34, 1))
    ):
        hi, lo = planes((rows, columns // 2), seed)
        scale = nested_scale((rows, groups), seed)
        for dtype in FLOATS:
            for plane, low in (("draft", None), ("target", lo)):
                note = f"[{rows}, {columns}] {groups} groups {plane} {dtype}"
                yield Call("nested_reconstruct", (hi, low, scale, plane, dtype), note)
    for seed, (rows, columns, group) in enumerate(
        ((1, 1, -1), (3, 7, -1), (5, 96, 32), (33, 40, 5), (2, 1001, -1), (7, 64, 1))
    ):
        for dtype in FLOATS:
            x = normal((rows, columns), seed, dtype)
            yield Call("quantize_activations", (x, group), f"[{rows}, {columns}] {group} {dtype}")
    for seed, width in enumerate((2, 10, 64, 80, 96, 128, 192, 256)):
        for dtype in FLOATS:
            x = normal((2, 3, 5, width), seed, dtype)
            offset = normal((3, width), seed + 9, dtype) if seed % 2 else None
            yield Call("kv_quantize", (x, offset), f"{width} {dtype}")
        hi, lo = planes((2, 3, width // 2), seed)
        scale = torch.rand(2, 3, generator=generator(seed))
        yield Call("kv_dequantize", (hi, None, scale, "draft"), f"{width} draft")
        yield Call("kv_dequantize", (hi, lo, scale, "target"), f"{width} target")
    for seed, (order, columns) in enumerate(
        ((1, 1), (1, 2), (1, 8), (1, 16), (1, 512), (2, 1), (2, 4), (4, 64), (12, 32), (20, 2))
    ):
        matrix = None if order == 1 else signs(order, seed)
        for dtype in FLOATS:
            x = normal((2, 3, order * columns), seed, dtype)
            yield Call("hadamard", (x, matrix, dtype), f"{order}·{columns} {dtype}")
    for seed, (order, columns, group) in enumerate(
        ((1, 1, -1), (1, 256, 32), (1, 512, -1), (2, 4, -1), (12, 32, -1), (20, 8, 4), (4, 16, 32))
    ):
        matrix = None if order == 1 else signs(order, seed)
        for dtype in FLOATS:
            x = normal((5, order * columns), seed, dtype)
            note = f"{order}·{columns} {group} {dtype}"
            yield Call("quantize_transformed", (x, matrix, group), note)
    for seed, (rows, outputs, columns) in enumerate(((1, 3, 64), (5, 33, 130), (9, 2, 1024))):
        hi, lo = planes((outputs, columns // 2), seed)
        xq = whole((rows, columns), -128, 127, seed, torch.int8)
        ones = torch.ones(rows, 1), torch.full((outputs, 1), 0.5, dtype=torch.float16)
        for plane, low in (("draft", None), ("target", lo)):
            arguments = (xq, ones[0], hi, low, ones[1], None, plane, torch.float32)
            yield Call("nested_linear", arguments, f"[{rows}, {outputs}, {columns}] {plane}")


def empty_calls() -> Iterator[Call]:
    """Yield calls with no rows, tokens or queries."""
    layout = DashqLayout(4, 32, 3, 64, 64)
    weight = dashq_weight(layout, torch.float16, 0)
    hi, lo = planes((3, 32), 0)
    scale = nested_scale((3, 2), 0)
    none = torch.zeros(0, 64)
    cache = (hi.view(1, 1, 3, 32), lo.view(1, 1, 3, 32), torch.ones(1, 1, 3))
    yield Call("pack_words", (none.flatten().to(torch.uint8), 3), "")
    yield Call("unpack_words", (none.flatten().to(torch.int32), 3, 0), "")
    yield Call("dashq_linear", (none, *weight, None, layout), "")
    yield Call("quantize_activations", (none, 32), "")
    codes = none.to(torch.int8)
    yield Call(
        "nested_linear",
        (codes, none[:, :1], hi, lo, scale, None, "target", torch.float32),
        "",
    )
    yield Call("hadamard", (none, None, torch.float16), "")
    yield Call("hadamard", (none, signs(2, 0), torch.float16), "matrix")
    yield Call("quantize_transformed", (none, None, 32), "")
    yield Call("quantize_transformed", (none, signs(2, 0), -1), "matrix")
    yield Call("kv_quantize", (none.view(2, 0, 64), None), "")
    yield Call("kv_dequantize", (hi[:0], None, none[:, 0], "draft"), "")
    queries = torch.zeros(1, 2, 0, 64)
    yield Call("kv_attention", (queries, *cache, *cache, None, 3, "target", 1.0, torch.float32), "")


def signs(order: int, seed: int) -> Tensor:
    """Draw a matrix of ±1: the canonical evaluation is defined for it, orthogonal or not."""
    return whole((order, order), 0, 1, seed, torch.float32) * 2 - 1


def bounded_calls() -> Iterator[Call]:
    """Yield calls whose result may be summed in any order."""
    for seed, layout in enumerate(LAYOUTS):
        dtype = FLOATS[seed % 3]
        weight = dashq_weight(layout, SCALES[seed % 5], seed)
        x = torch.randn(1 + 4 * seed, layout.columns, generator=generator(seed)).to(dtype)
        bias = torch.randn(layout.rows, generator=generator(seed)).to(dtype) if seed % 2 else None
        yield Call("dashq_linear", (x, *weight, bias, layout), f"{len(x)} {layout} {dtype}")
    for seed, (rows, outputs, columns, x_groups, groups) in enumerate(
        (
            (1, 7, 384, 1, 3),
            (6, 33, 384, 3, 6),
            (3, 5, 192, 6, 1),
            (17, 3, 30, 3, 5),
            (4, 2, 2300, 1, 1),
            (2, 20, 4224, 33, 33),
        )
    ):
        hi, lo = planes((outputs, columns // 2), seed)
        xq = whole((rows, columns), -128, 127, seed, torch.int8)
        sx = torch.rand(rows, x_groups, generator=generator(seed))
        bias = normal((outputs,), seed, torch.float16) if seed % 2 else None
        for plane, low in (("draft", None), ("target", lo)):
            scale = nested_scale((outputs, groups), seed)
            arguments = (xq, sx, hi, low, scale, bias, plane, FLOATS[seed % 3])
            yield Call("nested_linear", arguments, f"{rows} {outputs} {columns} {plane}")
    for seed, (heads, shared, queries, length, width) in enumerate(
        ((1, 1, 1, 1, 2), (2, 3, 5, 40, 80), (3, 2, 20, 33, 64), (1, 4, 2, 300, 96))
    ):
        key, value = (planes((2, heads, length, width // 2), seed + i) for i in (0, 5))
        scales = [torch.rand(2, heads, length, generator=generator(seed + i)) for i in (0, 1)]
        q = torch.randn(2, heads * shared, queries, width, generator=generator(seed))
        offset = normal((heads, width), seed) if seed % 2 else None
        for plane in ("draft", "target"):
            k_lo, v_lo = (None, None) if plane == "draft" else (key[1], value[1])
            cache = (key[0], k_lo, scales[0], value[0], v_lo, scales[1])
            position = length - queries
            rest = (offset, position, plane, 1 / math.sqrt(width), torch.float32)
            note = f"{heads} {shared} {queries} {length} {width} {plane}"
            yield Call("kv_attention", (q, *cache, *rest), note)
    for seed, (order, columns) in enumerate(((3, 8), (12, 64), (148, 2))):
        matrix = torch.randn(order, order, generator=generator(seed))
        x = torch.randn(3, order * columns, generator=generator(seed))
        yield Call("hadamard", (x, matrix, torch.float32), f"{order}·{columns}")


def results(answer: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def same_bits(a: Tensor | tuple[Tensor, ...], b: Tensor | tuple[Tensor, ...]) -> bool:
    """Say whether two answers are the same, bit for bit."""
    pairs = zip(results(a), results(b), strict=True)
    return all(
        x.dtype == y.dtype
        and x.shape == y.shape
        and torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8))
        for x, y in pairs
    )
