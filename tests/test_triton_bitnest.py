"""The bitnest kernels of the Triton backend: launch configurations, slots, graphs, refusals."""

import warnings
from typing import Any

import pytest
import torch
from nibblespec.optimized import portable
from nibblespec.optimized.kernels import DEVICE, INTERPRETED
from nibblespec.optimized.kernels.configurations import NESTED_LINEAR, configuration
from nibblespec.optimized.kernels.hadamard import STRETCH
from nibblespec.optimized.kernels.implementation import OPERATIONS as KERNELS
from nibblespec.optimized.kernels.kv import kv_write
from nibblespec.optimized.kernels.nested_linear import part_groups, step_columns
from nibblespec.optimized.ops import operations
from torch import Tensor

from tests.torch_samples import (
    Call,
    bounded_calls,
    exact_calls,
    generator,
    nested_scale,
    normal,
    planes,
    same_bits,
    whole,
)
from tests.triton_bitnest_checks import CHECKS, OF_THE_FORMAT, expect_near

EXACT = [call for call in exact_calls() if call.operation in OF_THE_FORMAT]
BOUNDED = [call for call in bounded_calls() if call.operation in OF_THE_FORMAT]


def on_device(*arguments: Any) -> Any:  # noqa: ANN401  # what an operation takes
    return tuple(one.to(DEVICE) if isinstance(one, Tensor) else one for one in arguments)


def on_cpu(result: Any) -> Any:  # noqa: ANN401  # a tensor or several
    return result.cpu() if isinstance(result, Tensor) else tuple(one.cpu() for one in result)


@pytest.mark.skipif(not INTERPRETED, reason="reaches into the interpreter")
@pytest.mark.parametrize("name", CHECKS)
def test_kernels_pass_the_check_of(name: str) -> None:
    CHECKS[name](KERNELS)


@pytest.mark.parametrize("call", EXACT, ids=str)
def test_exact_results_are_those_of_plain_pytorch(call: Call) -> None:
    found = on_cpu(getattr(operations, call.operation)(*on_device(*call.arguments)))
    expected = getattr(portable.OPERATIONS, call.operation)(*call.arguments)
    if call.operation == "hadamard":  # where the sign of a zero does not matter
        found, expected = found + 0.0, expected + 0.0
    assert same_bits(found, expected)


@pytest.mark.parametrize("call", BOUNDED, ids=str)
def test_sums_are_near_those_of_plain_pytorch(call: Call) -> None:
    found = on_cpu(getattr(operations, call.operation)(*on_device(*call.arguments)))
    expect_near(call, found, getattr(portable.OPERATIONS, call.operation)(*call.arguments))


@pytest.mark.parametrize("columns", [2, 6, 254, 256, 258])
def test_planes_are_unpacked_and_packed_again(columns: int) -> None:
    hi, lo = planes((3, columns // 2), columns)
    unpacked = operations.unpack_planes(*on_device(hi, lo))
    assert same_bits(on_cpu(unpacked), portable.OPERATIONS.unpack_planes(hi, lo))
    assert same_bits(on_cpu(operations.pack_planes(*unpacked)), (hi, lo))


@pytest.mark.parametrize("length", [STRETCH // 2, STRETCH, 2 * STRETCH, 4 * STRETCH])
def test_a_transform_takes_as_many_passes_as_it_needs(length: int) -> None:
    x = normal((2, length), 0)
    found = operations.hadamard(*on_device(x, None, torch.float32))
    expected = portable.OPERATIONS.hadamard(x, None, torch.float32)
    assert same_bits(found.cpu() + 0.0, expected + 0.0)


@pytest.mark.parametrize("plane", ["draft", "target"])
@pytest.mark.parametrize(("columns", "groups", "x_groups"), [(256, 2, 1), (512, 1, 1), (90, 15, 6)])
@pytest.mark.parametrize("tokens", [1, 16, 17, 64, 65, 129])
def test_every_launch_configuration_gives_the_layer(
    tokens: int, columns: int, groups: int, x_groups: int, plane: str
) -> None:
    hi, lo = planes((5, columns // 2), 0)
    xq = whole((tokens, columns), -127, 127, 1, torch.int8)
    sx = torch.rand(tokens, x_groups, generator=generator(2))
    bias = normal((5,), 3, torch.float16)
    low = None if plane == "draft" else lo
    arguments = (xq, sx, hi, low, nested_scale((5, groups), 4), bias, plane, torch.float32)
    found = operations.nested_linear(*on_device(*arguments))
    expect_near(None, found.cpu(), portable.OPERATIONS.nested_linear(*arguments))


def test_samples_cover_one_part_and_several_and_both_kinds_of_step() -> None:
    assert part_groups(5, 1) == 1
    assert part_groups(5, 15) < 15
    assert step_columns(256, 128) == (128, True)
    assert step_columns(4096, 512) == (128, True)
    assert step_columns(15, 6) == (32, False)


def test_only_a_layer_of_few_rows_is_cut_into_parts() -> None:
    assert part_groups(16, 32) < 32
    assert part_groups(1 << 20, 32) == 32


def test_a_table_names_every_number_of_tokens_in_order() -> None:
    for entries in NESTED_LINEAR.values():
        most = [tokens for tokens, _ in entries]
        assert most == sorted(most)
        assert most[-1] == float("inf")
    assert configuration(NESTED_LINEAR, torch.device(DEVICE), 10**6).m >= 64


@pytest.mark.parametrize("width", [6, 64, 96])
def test_tokens_are_written_to_their_slots_and_nowhere_else(width: int) -> None:
    x = normal((2, 3, 4, width), 0, torch.bfloat16)
    offset = normal((3, width), 1, torch.float16)
    slots = torch.tensor([7, 0, 3, 8])
    hi, lo = (torch.full((2, 3, 9, width // 2), 0x11, dtype=torch.uint8) for _ in range(2))
    scale = torch.full((2, 3, 9), -1.0)
    cache = on_device(hi, lo, scale)
    kv_write(*on_device(x, offset), *cache, *on_device(slots))
    for before, after, row in zip(
        (hi, lo, scale), cache, portable.OPERATIONS.kv_quantize(x, offset), strict=True
    ):
        before[:, :, slots] = row
        assert same_bits(after.cpu(), before)


def test_a_draft_gives_the_same_bits_whatever_the_low_plane_is() -> None:
    hi, lo = planes((4, 32), 0)
    scale = nested_scale((4, 2), 0)
    alone = KERNELS.nested_reconstruct(*on_device(hi, None, scale, "draft", torch.float32))
    both = KERNELS.nested_reconstruct(*on_device(hi, lo, scale, "draft", torch.float32))
    assert same_bits(alone, both)


def test_inputs_with_gaps_are_accepted() -> None:
    x = normal((2, 3, 5, 32), 0).transpose(1, 2)
    q = torch.randn(1, 5, 2, 32, generator=generator(1)).transpose(1, 2)
    hi, lo = planes((1, 1, 9, 16), 2)
    scale = torch.rand(1, 1, 9, generator=generator(3))
    cache = (hi, lo, scale, hi, lo, scale, None, 4, "target", 0.2, torch.float32)
    assert same_bits(
        on_cpu(operations.kv_quantize(*on_device(x, None))),
        portable.OPERATIONS.kv_quantize(x, None),
    )
    found = operations.kv_attention(*on_device(q, *cache))
    assert same_bits(found, operations.kv_attention(*on_device(q.contiguous(), *cache)))


def test_weights_and_caches_with_gaps_are_refused() -> None:
    hi, lo = planes((4, 32), 0)
    scale = nested_scale((4, 2), 0)
    with pytest.raises(ValueError, match="hi: expected a contiguous tensor"):
        operations.nested_reconstruct(
            *on_device(hi.T.contiguous().T, lo, scale, "target", torch.float32)
        )


def test_compiled_graphs_give_the_bits_of_eager_mode() -> None:
    hi, lo = on_device(*planes((8, 32), 0))
    scale, x = on_device(nested_scale((8, 2), 0), normal((3, 64), 1, torch.bfloat16))

    def step(x: Tensor) -> Tensor:
        rotated = operations.hadamard(x * 2, None, torch.bfloat16)
        xq, sx = operations.quantize_activations(rotated, -1)
        dense = operations.nested_reconstruct(hi, lo, scale, "draft", torch.bfloat16)
        y = operations.nested_linear(xq, sx, hi, lo, scale, None, "target", torch.bfloat16)
        return y + dense.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch warns of itself
        compiled = torch.compile(step, fullgraph=True)
        assert same_bits(compiled(x), step(x))
        assert same_bits(compiled(x[:2]), step(x[:2]))
