"""What is measured on a CUDA device: the Triton kernels, with their peers."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from nibblespec.optimized.benchmarks import gemlite, operands, shapes
from nibblespec.optimized.benchmarks.case import Case, Contestant, compiled, size
from nibblespec.optimized.benchmarks.formulas import dashq_formula, nested_formula
from nibblespec.optimized.benchmarks.measure import Call
from nibblespec.optimized.ops import operations
from torch import Tensor

GROUPS = (32, 64, 128)
FEW_ROWS = 16
"""Most rows that gemlite is compared on."""


def dashq_layer(rows: int, columns: int, group: int, tokens: int, device: str = "cuda") -> Case:
    """Apply a packed layer."""
    weight, layout = operands.dashq_weight(rows, columns, group, device)
    x = operands.activations(tokens, columns, device)
    dense = operations.dashq_reconstruct(*weight, layout, torch.bfloat16)
    small = size(x) + 2 * tokens * rows
    ours = functools.partial(operations.dashq_linear, x, *weight, None, layout)
    contestants = [
        Contestant("ours", ours, size(*weight) + small, 0),
        _dense_peer(x, dense, small),
    ]
    if gemlite.is_installed() and tokens <= FEW_ROWS:
        codes = operations.unpack_words(weight[0], layout.nbits, rows * columns)
        peer = functools.partial(
            gemlite.gemlite_linear(codes, *weight[1:], layout), x.to(torch.float16)
        )
        contestants.append(Contestant("gemlite", peer, size(*weight) + small, 0))
    return Case(
        "dashq linear",
        f"{rows}×{columns} INT4/g{group}",
        tokens,
        2 * tokens * rows * columns,
        tuple(contestants),
    )


def nested_layer(rows: int, columns: int, tokens: int, device: str = "cuda") -> Case:
    """Apply a nested layer to activations that are quantized already."""
    hi, lo, scale = operands.nested_weight(rows, columns, device)
    x = operands.activations(tokens, columns, device)
    xq, sx = operations.quantize_activations(x, -1)
    dense = operations.nested_reconstruct(hi, lo, scale, "target", torch.bfloat16)
    small = size(xq, sx) + 2 * tokens * rows
    calls = [
        functools.partial(
            operations.nested_linear, xq, sx, hi, low, scale, None, plane, torch.bfloat16
        )
        for low, plane in ((lo, "target"), (None, "draft"))
    ]
    return Case(
        "nested linear",
        f"{rows}×{columns} g128",
        tokens,
        2 * tokens * rows * columns,
        (
            Contestant("ours, target", calls[0], size(hi, lo, scale) + small, 0),
            Contestant("ours, draft", calls[1], size(hi, scale) + small, 0),
            _dense_peer(x, dense, size(x) + 2 * tokens * rows),
        ),
    )


def _dense_peer(x: Tensor, dense: Tensor, small: int) -> Contestant:
    call = functools.partial(torch.nn.functional.linear, x, dense)
    return Contestant("bf16 F.linear", call, size(dense) + small, 0)


def step(counts: dict[tuple[int, int], int], device: str = "cuda") -> Case:
    """Apply all nested layers that one token passes, each with a weight of its own."""
    layers = [
        (operands.nested_weight(*shape, device), operands.activations(1, shape[1], device))
        for shape, count in counts.items()
        for _ in range(count)
    ]
    quantized = [operations.quantize_activations(x, -1) for _, x in layers]

    def apply(plane: str) -> list[Tensor]:
        return [
            operations.nested_linear(
                *tokens, hi, lo if plane == "target" else None, scale, None, plane, torch.bfloat16
            )
            for ((hi, lo, scale), _), tokens in zip(layers, quantized, strict=True)
        ]

    small = sum(size(*tokens) for tokens in quantized)
    small += 2 * sum(rows * count for (rows, _), count in counts.items())
    draft = small + sum(size(hi, scale) for (hi, _, scale), _ in layers)
    target = draft + sum(size(lo) for (_, lo, _), _ in layers)
    return Case(
        "all layers of a step",
        f"{len(layers)} layers, g128",
        1,
        2 * sum(rows * columns * count for (rows, columns), count in counts.items()),
        (
            Contestant("ours, target", functools.partial(apply, "target"), target, 0),
            Contestant("ours, draft", functools.partial(apply, "draft"), draft, 0),
        ),
    )


def dashq_reconstruction(rows: int, columns: int, device: str = "cuda") -> Case:
    """Reconstruct a packed weight in bfloat16."""
    weight, layout = operands.dashq_weight(rows, columns, device=device)
    ours = functools.partial(operations.dashq_reconstruct, *weight, layout, torch.bfloat16)
    formula = functools.partial(dashq_formula, rows=rows)
    return _reconstruction("dashq reconstruct", f"{rows}×{columns} INT4/g32", weight, ours, formula)


def nested_reconstruction(rows: int, columns: int, plane: str, device: str = "cuda") -> Case:
    """Reconstruct a nested weight in bfloat16."""
    hi, lo, scale = operands.nested_weight(rows, columns, device)
    weight = (hi, lo if plane == "target" else None, scale)
    ours = functools.partial(operations.nested_reconstruct, *weight, plane, torch.bfloat16)
    name = f"nested reconstruct, {plane}"
    return _reconstruction(name, f"{rows}×{columns} g128", weight, ours, nested_formula)


def _reconstruction(
    name: str,
    shape: str,
    weight: tuple[Tensor | None, ...],
    ours: Callable[[], Tensor],
    formula: Callable[..., Tensor],
) -> Case:
    written = ours().nbytes
    contestants: dict[str, Call] = {
        "ours": ours,
        "formula compiled": functools.partial(compiled(formula), *weight),
        "formula": functools.partial(formula, *weight),
    }
    return Case(
        name,
        shape,
        None,
        0,
        tuple(Contestant(of, call, size(*weight), written) for of, call in contestants.items()),
    )


def quantization(columns: int, tokens: int, device: str = "cuda") -> Case:
    """Quantize activations."""
    x = operands.activations(tokens, columns, device)
    ours = functools.partial(operations.quantize_activations, x, -1)
    return Case("A8", f"{columns}", tokens, 0, (Contestant("ours", ours, 3 * x.numel(), 0),))


def transform(order: int, columns: int, tokens: int, device: str = "cuda") -> Case:
    """Transform activations."""
    x = operands.activations(tokens, columns, device)
    signs = torch.randint(0, 2, (order, order), device=device).to(torch.float32) * 2 - 1
    ours = functools.partial(operations.hadamard, x, None if order == 1 else signs, torch.bfloat16)
    shape = f"{order}·{columns // order}"
    return Case("Hadamard", shape, tokens, 0, (Contestant("ours", ours, 2 * size(x), 0),))


def attention(tokens: int, length: int, device: str = "cuda") -> Case:
    """Attend to a nested cache, target and draft, against a dense one in bfloat16."""
    heads, stored, width = shapes.HEADS
    q = operands.activations(heads * tokens, width, device).view(1, heads, tokens, width)
    dense = operands.activations(2 * stored * length, width, device)
    dense = dense.view(2, 1, stored, length, width)
    keys, values = (operations.kv_quantize(part, None) for part in dense)
    target = (*keys, *values)
    draft = tuple(None if part is keys[1] or part is values[1] else part for part in target)
    calls: list[Call] = []
    for read, plane in ((target, "target"), (draft, "draft")):
        rest = (None, length - tokens, plane, width**-0.5, torch.bfloat16)
        arguments: tuple[Any, ...] = (q, *read, *rest)
        calls.append(functools.partial(operations.kv_attention, *arguments))
    # One token sees all positions, and a mask would keep PyTorch from its flash kernel.
    mask = torch.ones(tokens, length, dtype=torch.bool, device=device).tril(length - tokens)
    peer = functools.partial(
        torch.nn.functional.scaled_dot_product_attention,
        q,
        dense[0],
        dense[1],
        attn_mask=None if tokens == 1 else mask,
        enable_gqa=True,
    )
    small = 2 * size(q)
    return Case(
        "attention",
        f"{heads}/{stored} heads of {width}, {length} positions",
        tokens,
        4 * heads * tokens * length * width,
        (
            Contestant("ours, target", calls[0], size(*target) + small, 0),
            Contestant("ours, draft", calls[1], size(*draft) + small, 0),
            Contestant("bf16 SDPA", peer, size(dense) + small, 0),
        ),
    )


def all_cases(rows: Sequence[int]) -> Iterator[functools.partial[Case]]:
    """Yield makers of all cases, first those that the goals speak of: time may run out."""
    few = [tokens for tokens in rows if tokens <= FEW_ROWS]
    vocabulary = shapes.NESTED_SHAPES[0]
    yield functools.partial(step, shapes.STEP)
    for tokens, group, shape in itertools.product(few, GROUPS, shapes.LARGE_SHAPES):
        yield functools.partial(dashq_layer, *shape, group, tokens)
    large = (*shapes.LARGE_SHAPES, vocabulary, shapes.COMMON_SHAPE)
    for tokens, (height, width) in itertools.product(rows, large):
        yield functools.partial(nested_layer, height, width, tokens)
    for shape in (shapes.COMMON_SHAPE, *shapes.LARGE_SHAPES):
        yield functools.partial(dashq_reconstruction, *shape)
        for plane in ("target", "draft"):
            yield functools.partial(nested_reconstruction, *shape, plane)
    for tokens in rows:
        if tokens <= 64:
            yield functools.partial(attention, tokens, 4096)
        yield functools.partial(quantization, 8192, tokens)
        for order, columns in shapes.HADAMARD_WIDTHS:
            yield functools.partial(transform, order, columns, tokens)
    for tokens, shape in itertools.product(rows, shapes.DASHQ_SHAPES):
        yield functools.partial(dashq_layer, *shape, shapes.DASHQ_GROUP, tokens)
    for tokens, (height, width) in itertools.product(rows, shapes.NESTED_SHAPES[1:]):
        yield functools.partial(nested_layer, height, width, tokens)
