"""Checks of the bitnest kernels that the suite cannot make: they reach into the interpreter.

Each takes the operations to check, right ones or broken ones, and raises AssertionError.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from nibblespec.optimized import portable
from nibblespec.optimized.operations import Operations
from torch import Tensor

from tests.torch_samples import (
    Call,
    bounded_calls,
    exact_calls,
    generator,
    nested_scale,
    normal,
    planes,
    results,
    same_bits,
    signs,
    whole,
)
from tests.triton_checks import FAR, vast_zeros
from tests.triton_interpreter import guarded_outputs, only_the_last_program, programs_in_reverse

PLAIN = portable.OPERATIONS
TOKENS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Numbers on both sides of every border between launch configurations."""


def reading_planes_far_apart(operations: Operations) -> None:
    """Codes beyond 2**31 of them are unpacked, packed and multiplied by their scales."""
    rows = FAR // 1024 + 1
    hi, lo, scale = far_weight(rows, 1024, 8)
    with only_the_last_program():
        found = operations.nested_reconstruct(hi, lo, scale, "target", torch.bfloat16)
        q4, qr = operations.unpack_planes(hi, lo)
        again = operations.pack_planes(q4, qr)
    expected = PLAIN.nested_reconstruct(hi[-1:], lo[-1:], scale[-1:], "target", torch.bfloat16)
    assert same_bits(found[-1:], expected)
    assert same_bits((q4[-1:], qr[-1:]), PLAIN.unpack_planes(hi[-1:], lo[-1:]))
    assert same_bits(tuple(plane[-1:] for plane in again), (hi[-1:], lo[-1:]))


def multiplying_far_rows_and_tokens(operations: Operations) -> None:
    """Bytes of the weight and elements of the input beyond 2**31 of them."""
    hi, lo, scale = far_weight(FAR // 512 + 1, 1024, 8)
    scale[-1] = 1  # sums are exact: the order of parts depends on the number of rows
    xq = whole((1, 1024), -127, 127, 0, torch.int8)
    sx = torch.ones(1, 1)
    with only_the_last_program():
        found = operations.nested_linear(xq, sx, hi, lo, scale, None, "target", torch.float32)
    near = hi[-1:], lo[-1:], scale[-1:]
    expected = operations.nested_linear(xq, sx, *near, None, "target", torch.float32)
    assert same_bits(found[:, -1:], expected)

    hi, lo = planes((1024, 512), 1)
    scale = nested_scale((1024, 8), 1)
    far = vast_zeros((FAR // 1024 + 1, 1024), torch.int8)
    far[-1] = xq[0]
    steps = vast_zeros((len(far), 1), torch.float32)
    steps[-1] = 1
    with only_the_last_program():
        found = operations.nested_linear(far, steps, hi, lo, scale, None, "target", torch.float32)
    expected = operations.nested_linear(xq, sx, hi, lo, scale, None, "target", torch.float32)
    assert same_bits(found[-1:, -16:], expected[:, -16:])


def transforming_far_rows(operations: Operations) -> None:
    """Elements beyond 2**31 of them, with a matrix and without."""
    x = vast_zeros((FAR // 1024 + 1, 1024), torch.bfloat16)
    x[-1] = normal((1024,), 0, torch.bfloat16)
    for matrix in (None, torch.randn(4, 4, generator=generator(0))):
        expected = operations.hadamard(x[-1:], matrix, torch.bfloat16)
        with only_the_last_program():
            found = operations.hadamard(x, matrix, torch.bfloat16)
        assert same_bits(found[-1:], expected)
    with only_the_last_program():
        codes, scale = operations.quantize_activations(x, 256)
    expected_codes = PLAIN.quantize_activations(x[-1:], 256)
    assert same_bits((codes[-1:], scale[-1:]), expected_codes)


def quantizing_transforms_of_far_rows(operations: Operations) -> None:
    """Elements beyond 2**31 of them are transformed and quantized at once."""
    x = vast_zeros((FAR // 1024 + 1, 1024), torch.bfloat16)
    x[-1] = normal((1024,), 0, torch.bfloat16)
    for matrix in (None, signs(4, 0)):
        expected = PLAIN.quantize_transformed(x[-1:], matrix, 256)
        with only_the_last_program():
            codes, scale = operations.quantize_transformed(x, matrix, 256)
        assert same_bits((codes[-1:], scale[-1:]), expected)


def quantizing_transforms_at_once(operations: Operations) -> None:
    """Codes and scales are those of the two operations, whatever shares a program or a scale."""
    for seed, (tokens, order, columns, group) in enumerate(
        ((5, 1, 256, -1), (3, 1, 64, 16), (3, 12, 32, -1), (2, 12, 32, 8), (1, 28, 16, -1))
    ):
        x = normal((tokens, order * columns), seed, torch.bfloat16)
        x[-1] *= 100  # scales differ from token to token,
        x[:, : order * columns // 3] *= 10  # and from group to group
        matrix = None if order == 1 else signs(order, seed)
        with guarded_outputs():
            found = operations.quantize_transformed(x, matrix, group)
        expected = PLAIN.quantize_transformed(x, matrix, group)
        assert same_bits(found, expected), (tokens, order, columns, group)
        with programs_in_reverse():
            found = operations.quantize_transformed(x, matrix, group)
        assert same_bits(found, expected), (tokens, order, columns, group)


def caching_far_tokens(operations: Operations) -> None:
    """Elements of the cache beyond 2**31 of them are written and attended to."""
    x = vast_zeros((2, FAR // 256 + 1, 128), torch.bfloat16)
    x[-1, -3:] = normal((3, 128), 0, torch.bfloat16)
    with only_the_last_program():
        found = operations.kv_quantize(x, None)
    near = PLAIN.kv_quantize(x[-1:, -3:], None)
    assert same_bits(tuple(one[-1, -1] for one in found), tuple(one[-1, -1] for one in near))

    length = FAR // 64 + 1
    hi = vast_zeros((1, 2, length, 64), torch.uint8)
    hi[0, 1, :3] = near[0]
    steps = vast_zeros((1, 2, length), torch.float32)
    steps[0, 1, :3] = near[2]
    q = torch.randn(1, 2, 1, 128, generator=generator(1))
    far = hi, None, steps
    cut = hi[:, :, :3].contiguous(), None, steps[:, :, :3].contiguous()
    rest: Any = (None, 2, "draft", 0.1, torch.float32)
    expected = operations.kv_attention(q, *cut, *cut, *rest)
    with only_the_last_program():
        seen = operations.kv_attention(q, *far, *far, *rest)
    assert same_bits(seen[:, 1], expected[:, 1])


def adding_wide_segments_exactly(operations: Operations) -> None:
    """Add up 2^17 columns of the largest products: just more than 32 bits hold."""
    columns = 1 << 17
    hi = torch.zeros(1, columns // 2, dtype=torch.uint8)
    lo = torch.full_like(hi, 0x88)
    xq = torch.full((1, columns), -128, dtype=torch.int8)
    ones = torch.ones(1, 1), torch.full((1, 1), 16.0, dtype=torch.float16)
    found = operations.nested_linear(xq, ones[0], hi, lo, ones[1], None, "target", torch.float32)
    assert found.item() == 2.0**31


def quantizing_rows_of_many_blocks(operations: Operations) -> None:
    """Scale a row that is wider than any block by its largest element, wherever that is."""
    for place in (0, 100_000, 199_999):
        x = torch.ones(1, 200_000)
        x[0, place] = 50
        assert same_bits(operations.quantize_activations(x, -1), PLAIN.quantize_activations(x, -1))


def writing_bitnest_outputs_and_nothing_else(operations: Operations) -> None:
    """Fill outputs with NaN before, and look at what is around them behind."""
    for call in list(exact_calls())[::3]:
        if call.operation in OF_THE_FORMAT:
            with guarded_outputs():
                found = getattr(operations, call.operation)(*call.arguments)
            expected = getattr(PLAIN, call.operation)(*call.arguments)
            if call.operation == "hadamard":  # where the sign of a zero does not matter
                found, expected = found + 0.0, expected + 0.0
            assert same_bits(found, expected), call
            assert not any(one.isnan().any() for one in results(found)), call
    for call in list(bounded_calls())[::3]:
        if call.operation in OF_THE_FORMAT:
            with guarded_outputs():
                found = getattr(operations, call.operation)(*call.arguments)
            expected = getattr(PLAIN, call.operation)(*call.arguments)
            expect_near(call, found, expected)


def running_bitnest_programs_in_any_order(operations: Operations) -> None:
    """No program reads what another one of its launch writes."""
    for call in [*exact_calls(), *bounded_calls()][::5]:
        if call.operation in OF_THE_FORMAT:
            operation = getattr(operations, call.operation)
            expected = operation(*call.arguments)
            with programs_in_reverse():
                assert same_bits(operation(*call.arguments), expected), call


def depending_on_no_other_row(operations: Operations) -> None:
    """Tokens have the same bits on both sides of the borders between launch configurations."""
    for columns, groups, x_groups, dtype in (
        (1024, 8, 1, torch.float32),
        (1024, 8, 1, torch.bfloat16),
        (120, 12, 8, torch.float32),
    ):
        hi, lo = planes((70, columns // 2), 0)
        scale = torch.rand(70, groups, generator=generator(0)).to(torch.float16)
        xq = whole((129, columns), -127, 127, 1, torch.int8)
        sx = torch.rand(129, x_groups, generator=generator(2))
        bias = 1000 * torch.rand(70, generator=generator(3)).to(torch.float16)
        rest = hi, lo, scale, bias, "target", dtype
        expected = operations.nested_linear(xq, sx, *rest)
        expect_near(None, expected, PLAIN.nested_linear(xq, sx, *rest))
        for tokens in TOKENS:
            found = operations.nested_linear(xq[:tokens], sx[:tokens], *rest)
            assert same_bits(found, expected[:tokens]), (columns, tokens)


def depending_on_no_other_query(operations: Operations) -> None:
    """Give a query the same bits at borders of blocks and splits, alone and among others."""
    length = 600
    key, value = (planes((1, 1, length, 16), seed) for seed in (0, 1))
    k_scale, v_scale = (torch.rand(1, 1, length, generator=generator(seed)) for seed in (2, 3))
    q = torch.randn(1, 2, 20, 32, generator=generator(4))
    cache = (*key, k_scale, *value, v_scale, None)
    for position in (0, 50, 246, 505):
        together = operations.kv_attention(q, *cache, position, "target", 0.2, torch.float32)
        expected = PLAIN.kv_attention(q, *cache, position, "target", 0.2, torch.float32)
        expect_near(None, together, expected)
        for query in range(0, 20, 3):
            alone = operations.kv_attention(
                q[:, :, query : query + 1], *cache, position + query, "target", 0.2, torch.float32
            )
            assert same_bits(alone, together[:, :, query : query + 1]), (position, query)


OF_THE_FORMAT = {
    "nested_reconstruct",
    "quantize_activations",
    "nested_linear",
    "hadamard",
    "quantize_transformed",
    "kv_quantize",
    "kv_dequantize",
    "kv_attention",
}

CHECKS: Mapping[str, Callable[[Operations], None]] = {
    check.__name__: check
    for check in (
        reading_planes_far_apart,
        multiplying_far_rows_and_tokens,
        transforming_far_rows,
        quantizing_transforms_of_far_rows,
        quantizing_transforms_at_once,
        caching_far_tokens,
        adding_wide_segments_exactly,
        quantizing_rows_of_many_blocks,
        writing_bitnest_outputs_and_nothing_else,
        running_bitnest_programs_in_any_order,
        depending_on_no_other_row,
        depending_on_no_other_query,
    )
}


def expect_near(call: Call | None, found: Tensor, expected: Tensor) -> None:
    """Require that results differ by what roundings explain; the suite has the bounds proper."""
    size = expected.to(torch.float64).abs().max()
    accuracy = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-16}
    difference = (found.to(torch.float64) - expected.to(torch.float64)).abs().max()
    assert bool(difference <= accuracy[expected.dtype] * size), (call, difference, size)


def far_weight(rows: int, columns: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return planes and scale that are zero but for the last row, which is drawn."""
    hi, lo = planes((1, columns // 2), 0)
    far_hi, far_lo = (vast_zeros((rows, columns // 2), torch.uint8) for _ in range(2))
    far_hi[-1:], far_lo[-1:] = hi, lo
    scale = vast_zeros((rows, groups), torch.float16)
    scale[-1] = torch.rand(groups, generator=generator(0)).to(torch.float16)
    return far_hi, far_lo, scale
