"""The dashq kernels of Triton: every launch configuration, compiled graphs, what is refused."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.conformance.suite.compare import expect_within
from nibblespec.conformance.suite.dashq_data import make_module, make_tame_weight
from nibblespec.conformance.suite.dashq_domains import make_layer
from nibblespec.optimized import backend, portable
from nibblespec.optimized.kernels import DEVICE, INTERPRETED
from nibblespec.optimized.kernels.configurations import (
    DASHQ_LINEAR,
    DASHQ_LINEAR_GENERAL,
    Table,
    configuration,
)
from nibblespec.optimized.kernels.dashq_linear import part_steps, step_columns
from nibblespec.optimized.kernels.implementation import OPERATIONS as KERNELS
from nibblespec.optimized.kernels.launch import launch
from nibblespec.optimized.kernels.words import rows_are_aligned, unpack_words_kernel
from nibblespec.optimized.layout import DashqLayout, word_count
from nibblespec.optimized.ops import operations
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import FloatDtype
from torch import Tensor

from tests.torch_samples import Call, dashq_weight, exact_calls, generator, same_bits
from tests.triton_checks import CHECKS

LAYOUT = DashqLayout(4, 32, 40, 96, 96)
FAST = make_module(4, 130, 17, 32)
GENERAL = make_module(3, 130, 78, 7, 5, "float32")
WEIGHTS = [call for call in exact_calls() if call.operation == "dashq_reconstruct"]
BORDERS = (1, 16, 17, 64, 65, 128, 129)
"""Tokens on both sides of every border between launch configurations, and of a block."""


def on_device(*arguments: Any) -> Any:  # noqa: ANN401  # what an operation takes
    return tuple(one.to(DEVICE) if isinstance(one, Tensor) else one for one in arguments)


def expect_bound(module: Module, dtype: FloatDtype, tokens: int) -> None:
    """Hold a layer of large sums that cancel, with a bias, to the bound."""
    module = module.model_copy(update={"linear_dtype": dtype})
    layer = make_layer(make_tame_weight(module, dtype, 0), tokens, "cancelling", "small", 0)
    weight = layer.weight.words, layer.weight.scale, layer.weight.zero
    found = backend.dashq_linear(layer.x, *weight, layer.bias, module)
    bounded = dashq_linear_bounded(layer.x, *weight, layer.bias, module, "fused", "rounded")
    expect_within("dashq_linear", found, bounded)


@pytest.mark.skipif(not INTERPRETED, reason="reaches into the interpreter")
@pytest.mark.parametrize("name", CHECKS)
def test_kernels_pass_the_check_of(name: str) -> None:
    CHECKS[name](KERNELS)


@pytest.mark.parametrize("call", WEIGHTS, ids=str)
def test_weights_are_those_of_plain_pytorch(call: Call) -> None:
    found = operations.dashq_reconstruct(*on_device(*call.arguments))
    assert same_bits(found.cpu(), portable.OPERATIONS.dashq_reconstruct(*call.arguments))


@pytest.mark.parametrize("tokens", BORDERS)
@pytest.mark.parametrize("module", [FAST, GENERAL], ids=["fast", "general"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_launch_configuration_keeps_the_bound(
    tokens: int, module: Module, dtype: FloatDtype
) -> None:
    expect_bound(module, dtype, tokens)


@pytest.mark.skipif(not INTERPRETED, reason="a device has one configuration")
@pytest.mark.parametrize("device", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("tokens", [1, 17, 65])
@pytest.mark.parametrize("module", [FAST, GENERAL], ids=["fast", "general"])
def test_configurations_of_devices_keep_the_bound_too(
    device: str, tokens: int, module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nibblespec.optimized.kernels.dashq_linear.INTERPRETED", False)
    monkeypatch.setattr("nibblespec.optimized.kernels.configurations.device_name", lambda _: device)
    expect_bound(module, "bfloat16", tokens)


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 511, 512, 513, 1023, 1025, 8193])
def test_every_number_of_steps_and_parts_keeps_the_bound(columns: int) -> None:
    module = make_module(4, 3, columns, 1, 0, "bfloat16", "float32")
    layer = make_layer(make_tame_weight(module, "float32", 0), 2, "ordinary", "none", 0)
    weight = layer.weight.words, layer.weight.scale, layer.weight.zero
    found = backend.dashq_linear(layer.x, *weight, None, module)
    bounded = dashq_linear_bounded(layer.x, *weight, None, module, "fused", "rounded")
    expect_within("dashq_linear", found, bounded)


def test_samples_have_one_part_and_several_of_one_step_and_several() -> None:
    def steps_of_parts(columns: int) -> tuple[int, int]:
        layout = DashqLayout(4, 1, 3, columns, columns)
        steps = -(-columns // step_columns(layout, torch.float32))
        of_a_part = part_steps(layout, steps)
        return -(-steps // of_a_part), of_a_part

    assert steps_of_parts(32) == (1, 1)
    parts, steps = steps_of_parts(8193)
    assert parts > 1
    assert steps > 1


@pytest.mark.parametrize("table", [DASHQ_LINEAR, DASHQ_LINEAR_GENERAL], ids=["fast", "general"])
def test_tables_name_every_number_of_tokens_in_order(table: Table) -> None:
    for entries in table.values():
        most = [tokens for tokens, _ in entries]
        assert most == sorted(most)
        assert most[-1] == float("inf")
    tile = configuration(table, torch.device(DEVICE), 10**6)
    assert tile.m >= 64


def test_a_table_without_an_entry_for_the_device_has_a_default() -> None:
    other = {"default": DASHQ_LINEAR["default"]}
    assert configuration(other, torch.device(DEVICE), 16).m == 16


def test_compiled_graphs_and_exports_give_the_bits_of_eager_mode() -> None:
    weight = on_device(*dashq_weight(LAYOUT, torch.float16, 0))
    x = torch.randn(5, 96, generator=generator(0)).to(torch.bfloat16).to(DEVICE)

    def step(x: Tensor, words: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        again = operations.pack_words(operations.unpack_words(words, 4, 40 * 96), 4)
        dense = operations.dashq_reconstruct(again, scale, zero, LAYOUT, torch.float32)
        return operations.dashq_linear(x * 2, words, scale, zero, None, LAYOUT), dense

    class Step(torch.nn.Module):
        def forward(
            self, x: Tensor, words: Tensor, scale: Tensor, zero: Tensor
        ) -> tuple[Tensor, Tensor]:
            return step(x, words, scale, zero)

    expected = step(x, *weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch warns of itself
        compiled = torch.compile(step, fullgraph=True)
        assert same_bits(compiled(x, *weight), expected)
        assert same_bits(compiled(x[:3], *weight), (expected[0][:3], expected[1]))
        exported = torch.export.export(Step(), (x, *weight)).module()
        assert same_bits(exported(x, *weight), expected)


def replaced(place: int, value: Any) -> tuple[Any, ...]:  # noqa: ANN401  # any wrong argument
    """Return arguments of `dashq_linear` with one exchanged."""
    weight = on_device(*dashq_weight(LAYOUT, torch.float16, 0))
    x = torch.zeros(3, 96, dtype=torch.bfloat16, device=DEVICE)
    arguments: list[Any] = [x, *weight, None, LAYOUT]
    arguments[place] = value
    return tuple(arguments)


REFUSED: list[tuple[str, int, Any, type[Exception], str]] = [
    ("a dtype of x", 0, torch.zeros(3, 96, dtype=torch.float64), TypeError, "x: expected dtype"),
    ("a width of x", 0, torch.zeros(3, 95, dtype=torch.bfloat16), ValueError, "x: expected shape"),
    ("a rank of x", 0, torch.zeros(96, dtype=torch.bfloat16), ValueError, "x: expected shape"),
    ("an array", 0, np.zeros((3, 96), np.float32), TypeError, "x: expected a tensor"),
    ("too few words", 1, torch.zeros(479, dtype=torch.int32), ValueError, r"words: .* \[480\]"),
    ("a dtype of words", 1, torch.zeros(480, dtype=torch.int64), TypeError, "words: .* int32"),
    ("a gap in words", 1, torch.zeros(960, dtype=torch.int32)[::2], ValueError, "contiguous"),
    ("a shape of scale", 2, torch.zeros(120, dtype=torch.float16), ValueError, "scale: expected"),
    ("a dtype of zero", 3, torch.zeros(120, 1), TypeError, "zero: expected dtype float16"),
    ("a bias", 4, torch.zeros(39, dtype=torch.bfloat16), ValueError, "bias: expected shape"),
    ("nine bits", 5, LAYOUT._replace(nbits=9), ValueError, "nbits: expected 1 … 8"),
    ("a group size", 5, LAYOUT._replace(group_size=36), ValueError, "group_size: .* divisor"),
]


@pytest.mark.parametrize(
    ("place", "value", "error", "message"),
    [one[1:] for one in REFUSED],
    ids=[one[0] for one in REFUSED],
)
def test_wrong_arguments_are_refused_before_a_launch(
    place: int,
    value: Any,  # noqa: ANN401  # any wrong argument
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "nibblespec.optimized.kernels.dashq_linear.launch", lambda *_, **__: pytest.fail("launched")
    )
    (value,) = on_device(value)
    linear: Any = operations.dashq_linear
    with pytest.raises(error, match=message):
        linear(*replaced(place, value))


def test_tensors_on_another_device_are_refused_before_a_launch() -> None:
    elsewhere = torch.zeros(480, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match="expected a tensor on"):
        launch(
            unpack_words_kernel,
            1,
            torch.zeros(4, dtype=torch.int32, device=DEVICE),
            elsewhere,
            32,
            4,
            exact=True,
            NBITS=4,
            BLOCK=128,
        )
    with pytest.raises(ValueError, match=f"expected tensors on {DEVICE}"):
        KERNELS.unpack_words(elsewhere, 4, 480 * 8)


def test_a_grid_beyond_the_limit_is_refused() -> None:
    words = torch.zeros(4, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="grid: expected at most"):
        launch(unpack_words_kernel, 2**31, words, exact=True)


@pytest.mark.parametrize("nbits", range(1, 9))
def test_rows_are_aligned_where_words_hold_a_power_of_two_codes(nbits: int) -> None:
    per_word = 32 // nbits
    assert rows_are_aligned(5, 4 * per_word, nbits) == (nbits in (1, 2, 4, 8))
    assert not rows_are_aligned(5, 4 * per_word + 1, nbits)
    assert word_count(5 * 4 * per_word, nbits) == 20


def test_no_tokens_give_no_rows() -> None:
    words, scale, zero = on_device(*dashq_weight(LAYOUT, torch.float16, 0))
    x = torch.zeros(0, 96, dtype=torch.bfloat16, device=DEVICE)
    assert operations.dashq_linear(x, words, scale, zero, None, LAYOUT).shape == (0, 40)
