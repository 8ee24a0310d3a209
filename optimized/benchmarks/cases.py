"""What is measured on a CPU: operations on the layers of the examples, with their peers."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from nibblespec.optimized import portable
from nibblespec.optimized.benchmarks import operands, shapes
from nibblespec.optimized.benchmarks.case import (
    Case,
    Contestant,
    compiled,
    copies_of,
    rotating,
    size,
)
from nibblespec.optimized.benchmarks.formulas import dashq_formula, nested_formula
from nibblespec.optimized.benchmarks.operands import dashq_weight, nested_weight
from nibblespec.optimized.cpu.kernels import compiled as compiled_kernels
from nibblespec.optimized.cpu.library import library
from nibblespec.optimized.pytorch import operations
from torch import Tensor


def dashq_reconstruction(rows: int, columns: int) -> Case:
    """Reconstruct a packed weight in bfloat16."""
    weight, layout = dashq_weight(rows, columns)
    out = torch.empty(rows, columns, dtype=torch.bfloat16)
    ours, ours_into = _reconstructions("dashq_reconstruct", out, layout, torch.bfloat16)
    return _reconstruction_case(
        "dashq reconstruct",
        f"{rows}×{columns} INT4/g32",
        weight,
        out,
        (ours_into, ours, functools.partial(dashq_formula, rows=rows)),
    )


def nested_reconstruction(rows: int, columns: int, plane: str) -> Case:
    """Reconstruct a nested weight in bfloat16."""
    hi, lo, scale = nested_weight(rows, columns)
    out = torch.empty(rows, columns, dtype=torch.bfloat16)
    ours, ours_into = _reconstructions("nested_reconstruct", out, plane, torch.bfloat16)
    return _reconstruction_case(
        f"nested reconstruct, {plane}",
        f"{rows}×{columns} g128",
        (hi, lo if plane == "target" else None, scale),
        out,
        (ours_into, ours, nested_formula),
    )


def _reconstructions(
    operation: str,
    out: Tensor,
    *arguments: Any,  # noqa: ANN401  # those of the operation
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return our reconstruction into a new tensor, and into `out` where kernels are compiled."""
    function = getattr(operations, operation)
    kernels = library()
    into = (
        function
        if kernels is None
        else functools.partial(getattr(compiled_kernels(kernels), operation), out=out)
    )
    return (lambda *packed: function(*packed, *arguments)), (
        lambda *packed: into(*packed, *arguments)
    )


def _reconstruction_case(
    operation: str,
    shape: str,
    weight: tuple[Tensor | None, ...],
    out: Tensor,
    functions: tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]],
) -> Case:
    """Put our reconstruction beside the formula, both into the same memory and into new."""
    ours_into, ours, formula = functions
    compiled_formula = compiled(formula)
    compiled_into = compiled(lambda *packed: out.copy_(formula(*packed)))
    copies, traffic = copies_of(*weight), (size(*weight), out.nbytes)
    contestants = {
        "ours": ours_into,
        "formula compiled": compiled_into,
        "ours, new": ours,
        "compiled, new": compiled_formula,
        "formula, new": formula,
    }
    return Case(
        operation,
        shape,
        None,
        0,
        (
            *(
                Contestant(name, rotating(function, copies), *traffic)
                for name, function in contestants.items()
            ),
            # What it takes to write so much at all, where the system supplies the memory.
            Contestant("fill, new", functools.partial(_filled, out), 0, out.nbytes),
        ),
    )


def _filled(like: Tensor) -> Tensor:
    return torch.full_like(like, 1.0)


def dashq_layer(rows: int, columns: int, tokens: int) -> Case:
    """Apply a packed layer."""
    weight, layout = dashq_weight(rows, columns)
    x = operands.activations(tokens, columns)
    dense = dashq_formula(*weight, rows)
    small = size(x) + 2 * tokens * rows
    packed = copies_of(*weight)

    def ours(words: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return operations.dashq_linear(x, words, scale, zero, None, layout)

    return Case(
        "dashq linear",
        f"{rows}×{columns} INT4/g32",
        tokens,
        2 * tokens * rows * columns,
        (
            Contestant("ours", rotating(ours, packed), size(*weight) + small, 0),
            *_dense_peers(x, dense, packed, functools.partial(dashq_formula, rows=rows)),
        ),
    )


def nested_layer(rows: int, columns: int, tokens: int) -> Case:
    """Apply a nested layer to activations that are quantized already."""
    hi, lo, scale = nested_weight(rows, columns)
    x = operands.activations(tokens, columns)
    xq, sx = operations.quantize_activations(x, -1)
    dense = nested_formula(hi, lo, scale)
    small = size(xq, sx) + 2 * tokens * rows
    target, draft = copies_of(hi, lo, scale), copies_of(hi, None, scale)

    def apply(plane: str, hi: Tensor, lo: Tensor | None, scale: Tensor) -> Tensor:
        return operations.nested_linear(xq, sx, hi, lo, scale, None, plane, torch.bfloat16)

    return Case(
        "nested linear",
        f"{rows}×{columns} g128",
        tokens,
        2 * tokens * rows * columns,
        (
            Contestant(
                "ours, target",
                rotating(functools.partial(apply, "target"), target),
                size(hi, lo, scale) + small,
                0,
            ),
            Contestant(
                "ours, draft",
                rotating(functools.partial(apply, "draft"), draft),
                size(hi, scale) + small,
                0,
            ),
            *_dense_peers(x, dense, target, nested_formula),
        ),
    )


def _dense_peers(
    x: Tensor,
    dense: Tensor,
    packed: Sequence[tuple[Any, ...]],
    formula: Callable[..., Tensor],
) -> tuple[Contestant, ...]:
    """Return the dense layer in bfloat16, and the formula with that layer behind it."""
    linear = torch.nn.functional.linear
    compiled_formula = compiled(formula)
    small = size(x) + 2 * x.shape[0] * dense.shape[0]
    behind = size(*packed[0]) + 2 * size(dense) + small
    calls: dict[str, tuple[Callable[..., Tensor], Sequence[tuple[Any, ...]], int]] = {
        "bf16 F.linear": (lambda weight: linear(x, weight), copies_of(dense), size(dense) + small),
        "formula compiled": (lambda *given: linear(x, compiled_formula(*given)), packed, behind),
    }
    if x.shape[0] == 1:  # with more rows it takes as long
        calls["formula"] = (lambda *given: linear(x, formula(*given)), packed, behind)
    return tuple(
        Contestant(name, rotating(function, copies), traffic, 0)
        for name, (function, copies, traffic) in calls.items()
    )


def activations(columns: int, tokens: int) -> Case:
    """Quantize activations."""
    x = operands.activations(tokens, columns)
    return _against_portable(
        "A8", f"{columns}", tokens, "quantize_activations", (x, -1), 3 * x.numel()
    )


def transform(order: int, columns: int, tokens: int) -> Case:
    """Transform activations."""
    x = operands.activations(tokens, columns)
    arguments = (x, _matrix(order), torch.bfloat16)
    shape = f"{order}·{columns // order}"
    return _against_portable("Hadamard", shape, tokens, "hadamard", arguments, 4 * x.numel())


def transform_and_quantization(order: int, columns: int, tokens: int) -> Case:
    """Transform activations and quantize them: at once, and in two operations."""
    x, matrix = operands.activations(tokens, columns), _matrix(order)
    at_once = _against_portable(
        "Hadamard, then A8",
        f"{order}·{columns // order}",
        tokens,
        "quantize_transformed",
        (x, matrix, -1),
        3 * x.numel(),
    )

    def two() -> tuple[Tensor, Tensor]:
        return operations.quantize_activations(operations.hadamard(x, matrix, torch.float32), -1)

    # Between the two, float32 is written and read.
    both = Contestant("two operations", two, 11 * x.numel(), 0)
    return replace(at_once, contestants=(*at_once.contestants, both))


def _matrix(order: int) -> Tensor | None:
    return None if order == 1 else torch.randint(0, 2, (order, order)).to(torch.float32) * 2 - 1


def cache_writing(tokens: int) -> Case:
    """Quantize keys of one layer."""
    _, heads, width = shapes.HEADS
    x = torch.randn(1, heads, tokens, width).to(torch.bfloat16)
    return _against_portable(
        "KV quantize", f"{heads} heads of {width}", tokens, "kv_quantize", (x, None), 3 * x.numel()
    )


def attention(tokens: int, length: int) -> Case:
    """Attend to a nested cache, against attention over a dense one in bfloat16."""
    heads, stored, width = shapes.HEADS
    q = torch.randn(1, heads, tokens, width).to(torch.bfloat16)
    dense = torch.randn(2, 1, stored, length, width).to(torch.bfloat16)
    keys, values = (operations.kv_quantize(part, None) for part in dense)
    cache = (*keys, *values, None, length - tokens, "target", width**-0.5, torch.bfloat16)
    ours = functools.partial(operations.kv_attention, q, *cache)
    mask = torch.ones(tokens, length, dtype=torch.bool).tril(length - tokens)
    peer = functools.partial(
        torch.nn.functional.scaled_dot_product_attention,
        q,
        dense[0],
        dense[1],
        attn_mask=mask,
        enable_gqa=True,
    )
    return Case(
        "attention, target",
        f"{heads}/{stored} heads of {width}, {length} positions",
        tokens,
        4 * heads * tokens * length * width,
        (
            Contestant("ours", ours, size(*keys, *values) + 2 * size(q), 0),
            Contestant("bf16 SDPA", peer, size(dense) + 2 * size(q), 0),
        ),
    )


def _against_portable(
    name: str, shape: str, tokens: int, operation: str, arguments: tuple[Any, ...], traffic: int
) -> Case:
    """Compare with the same in plain PyTorch, which for many rows takes seconds."""
    ours = functools.partial(getattr(operations, operation), *arguments)
    plain = functools.partial(getattr(portable.OPERATIONS, operation), *arguments)
    contestants = [Contestant("ours", ours, traffic, 0)]
    if tokens <= 64:
        contestants.append(Contestant("plain PyTorch", plain, traffic, 0))
    return Case(name, shape, tokens, 0, tuple(contestants))


def all_cases(rows: Sequence[int]) -> Iterator[functools.partial[Case]]:
    """Yield makers of all cases: operands are made when their case's turn comes."""
    common = shapes.COMMON_SHAPE
    for shape in shapes.DASHQ_SHAPES:
        yield functools.partial(dashq_reconstruction, *shape)
    for shape in (*shapes.NESTED_SHAPES, common):
        for plane in ("target", "draft"):
            yield functools.partial(nested_reconstruction, *shape, plane)
    for shape, tokens in itertools.product(shapes.DASHQ_SHAPES, rows):
        yield functools.partial(dashq_layer, *shape, tokens)
    for shape, tokens in itertools.product((*shapes.NESTED_SHAPES, common), rows):
        yield functools.partial(nested_layer, *shape, tokens)
    for tokens in rows:
        yield functools.partial(activations, 8192, tokens)
        for order, columns in shapes.HADAMARD_WIDTHS:
            yield functools.partial(transform, order, columns, tokens)
            yield functools.partial(transform_and_quantization, order, columns, tokens)
        yield functools.partial(cache_writing, tokens)
        if tokens <= 64:
            yield functools.partial(attention, tokens, 4096)
