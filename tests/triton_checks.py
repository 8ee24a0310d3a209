"""Checks of kernels that the suite cannot make: they reach into memory and into the interpreter.

Each takes the operations to check, right ones or broken ones, and raises AssertionError.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from nibblespec.optimized import portable
from nibblespec.optimized.layout import DashqLayout, codes_per_word, word_count
from nibblespec.optimized.operations import Operations
from torch import Tensor

from tests.torch_samples import dashq_weight, exact_calls, generator, same_bits
from tests.triton_interpreter import guarded_outputs, only_the_last_program, programs_in_reverse

FAR = 2**31
"""Elements beyond which 32 bits do not count."""

LAYER = DashqLayout(4, 32, 133, 1200, 1216)
"""Rows, columns and padding that no block divides, and parts of K that are added up."""


def packing_words_far_apart(operations: Operations) -> None:
    """Words and codes beyond 2**31 of them are found and written."""
    count = FAR + 77
    codes = vast_zeros((count,), torch.uint8)
    codes[-100:] = torch.arange(100)
    with only_the_last_program():
        packed = operations.pack_words(codes, 8)
        expected = portable.OPERATIONS.pack_words(codes[-101:], 8)
        assert same_bits(packed[-10:], expected[-10:])
        unpacked = operations.unpack_words(packed, 8, count)
        assert same_bits(unpacked[-40:], codes[-40:])


def reconstructing_far_rows(operations: Operations) -> None:
    """Weights beyond 2**31 of them, with padding and without, from words across rows."""
    for columns in (1024, 1023):
        layout = DashqLayout(3, 64, FAR // 1024 + 3, columns, 1024)
        weight = far_weight(layout)
        with only_the_last_program():
            found = operations.dashq_reconstruct(*weight, layout, torch.bfloat16)
        expected = far_rows(weight, layout, torch.bfloat16)
        assert same_bits(found[-1, -500:], expected[-1, -500:]), columns


def multiplying_far_tokens(operations: Operations) -> None:
    """Elements of x and of y beyond 2**31 of them."""
    layout = DashqLayout(4, 32, 1024, 1024, 1024)
    weight = dashq_weight(layout, torch.float16, 0)
    x = vast_zeros((FAR // 1024 + 1, 1024), torch.bfloat16)
    x[-1] = torch.randn(1024, generator=generator(0))
    with only_the_last_program():
        found = operations.dashq_linear(x, *weight, None, layout)
    expected = operations.dashq_linear(x[-65:], *weight, None, layout)
    assert same_bits(found[-1, -100:], expected[-1, -100:])


def multiplying_far_rows(operations: Operations) -> None:
    """Codes beyond 2**31 of them, in rows that share words."""
    layout = DashqLayout(3, 64, FAR // 1024 + 3, 1024, 1024)
    weight = far_weight(layout)
    x = torch.zeros(1, 1024, dtype=torch.bfloat16)
    x[0, -7] = 1
    with only_the_last_program():
        found = operations.dashq_linear(x, *weight, None, layout)
    assert same_bits(found[0, -1], far_rows(weight, layout, torch.bfloat16)[-1, -7])


def writing_everything_and_nothing_else(operations: Operations) -> None:
    """Fill outputs with NaN before, and look at what is around them behind."""
    for call in exact_calls():
        if call.operation == "dashq_reconstruct":
            with guarded_outputs():
                found = operations.dashq_reconstruct(*call.arguments)
            assert same_bits(found, portable.OPERATIONS.dashq_reconstruct(*call.arguments)), call
    for nbits in range(1, 9):
        count = 100 * codes_per_word(nbits) - 1
        words = dashq_weight(DashqLayout(nbits, 1, 1, count, count), torch.float16, 0)[0]
        with guarded_outputs():
            codes = operations.unpack_words(words, nbits, count)
            again = operations.pack_words(codes, nbits)
        assert same_bits(codes, portable.OPERATIONS.unpack_words(words, nbits, count)), nbits
        assert same_bits(operations.unpack_words(again, nbits, count), codes), nbits
    for tokens in (1, 65):
        weight, x, bias = layer(tokens, torch.bfloat16)
        with guarded_outputs():
            found = operations.dashq_linear(x, *weight, bias, LAYER)
        expected = portable.OPERATIONS.dashq_linear(x, *weight, bias, LAYER)
        assert bool((found - expected).abs().max() <= expected.abs().max() / 64)


def running_programs_in_any_order(operations: Operations) -> None:
    """No program reads what another one writes."""
    for tokens in (3, 70):
        weight, x, bias = layer(tokens, torch.float16)
        expected = operations.dashq_linear(x, *weight, bias, LAYER)
        with programs_in_reverse():
            assert same_bits(operations.dashq_linear(x, *weight, bias, LAYER), expected), tokens


def depending_on_no_other_token(operations: Operations) -> None:
    """Tokens have the same bits on both sides of the borders between launch configurations."""
    weight, x, bias = layer(130, torch.float32)  # a last rounding would hide the order of sums
    expected = operations.dashq_linear(x, *weight, bias, LAYER)
    for tokens in (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129):
        found = operations.dashq_linear(x[:tokens], *weight, bias, LAYER)
        assert same_bits(found, expected[:tokens]), tokens


CHECKS: Mapping[str, Callable[[Operations], None]] = {
    check.__name__: check
    for check in (
        packing_words_far_apart,
        reconstructing_far_rows,
        multiplying_far_tokens,
        multiplying_far_rows,
        writing_everything_and_nothing_else,
        running_programs_in_any_order,
        depending_on_no_other_token,
    )
}


def layer(tokens: int, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """Return weight, input and bias of LAYER."""
    x = torch.randn(tokens, LAYER.columns, generator=generator(0)).to(dtype)
    bias = torch.randn(LAYER.rows, generator=generator(1)).to(dtype)
    return dashq_weight(LAYER, torch.float16, 2), x, bias


def vast_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros that take memory only where they are written to; torch.zeros writes them all."""
    size = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)


def far_weight(layout: DashqLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight that is zero but for its last row, whose codes and parameters are drawn."""
    groups = layout.stored_columns // layout.group_size
    one_row = layout._replace(rows=1)
    words, scale, zero = dashq_weight(one_row, torch.float16, 0)
    count = word_count(layout.rows * layout.stored_columns, layout.nbits)
    far_words = vast_zeros((count,), torch.int32)
    far_words[-len(words) + 1 :] = words[1:]
    parameters = []
    for drawn in (scale, zero):
        far = vast_zeros((layout.rows * groups, 1), drawn.dtype)
        far[-groups:] = drawn
        parameters.append(far)
    return far_words, parameters[0], parameters[1]


def far_rows(
    weight: tuple[Tensor, Tensor, Tensor], layout: DashqLayout, dtype: torch.dtype
) -> Tensor:
    """Return the last two rows of a weight, with all their stored columns.

    Two rows or more, so that they begin where a word does.
    """
    rows = next(
        rows
        for rows in range(2, 64)
        if (layout.rows - rows) * layout.stored_columns % codes_per_word(layout.nbits) == 0
    )
    words, scale, zero = weight
    part = layout._replace(rows=rows)
    groups = rows * layout.stored_columns // layout.group_size
    count = word_count(rows * layout.stored_columns, layout.nbits)
    return portable.OPERATIONS.dashq_reconstruct(
        words[-count:], scale[-groups:], zero[-groups:], part, dtype
    )
