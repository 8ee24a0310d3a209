"""Operations on tensors: compiling changes nothing, strides neither; what sums rest on."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.optimized import portable
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.portable.attention import exponential
from nibblespec.optimized.portable.sums import tree_sum
from nibblespec.optimized.pytorch import NAMESPACE, operations
from nibblespec.optimized.registration import SCHEMAS
from nibblespec.spec.operations import OPERATIONS
from torch import Tensor

from tests.torch_samples import (
    Call,
    bounded_calls,
    dashq_weight,
    empty_calls,
    exact_calls,
    nested_scale,
    planes,
    results,
    same_bits,
    whole,
    words,
)


def sample(operation: str) -> tuple[Any, ...]:
    """Return arguments of an operation, of some size."""
    if operation == "pack_words":
        return whole((100,), 0, 7, 0, torch.uint8), 3
    if operation == "unpack_words":
        return words(10, 0), 3, 95
    if operation == "pack_planes":
        return whole((5, 64), -7, 7, 0, torch.int8), whole((5, 64), -8, 7, 1, torch.int8)
    if operation == "unpack_planes":
        return planes((5, 32), 0)
    calls = [call for call in (*exact_calls(), *bounded_calls()) if call.operation == operation]
    return calls[len(calls) // 2].arguments


@pytest.mark.parametrize("operation", SCHEMAS)
def test_an_operation_is_one_node_of_a_compiled_graph(operation: str) -> None:
    arguments = sample(operation)
    names: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compiler.reset()
    function = getattr(operations, operation)
    call_compiled: Callable[..., Any] = torch.compile(function, backend=backend, fullgraph=True)
    assert same_bits(call_compiled(*arguments), function(*arguments))
    assert sum(name.startswith(NAMESPACE) for name in names) == 1


@pytest.mark.parametrize("operation", SCHEMAS)
def test_shapes_are_known_without_computing(operation: str) -> None:
    arguments = tuple(
        list(value)
        if isinstance(value, DashqLayout)
        else value.to(torch.float32)  # opcheck has no arithmetic for less
        if isinstance(value, Tensor) and value.dtype == torch.float8_e5m2
        else value
        for value in sample(operation)
    )
    torch.library.opcheck(
        getattr(getattr(torch.ops, NAMESPACE), operation).default,
        arguments,
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
    )


def test_every_operation_has_a_schema() -> None:
    assert tuple(SCHEMAS) == (*OPERATIONS, "quantize_transformed")


def nested_step(x: Tensor, hi: Tensor, lo: Tensor, scale: Tensor) -> Tensor:
    """Compute a nested layer behind a transform, and quantize what comes out."""
    xq, sx = operations.quantize_activations(operations.hadamard(x, None, x.dtype), -1)
    y = operations.nested_linear(xq, sx, hi, lo, scale, None, "target", torch.float32) * 1.5
    return operations.kv_dequantize(*operations.kv_quantize(y, None), "target")


def test_inductor_and_export_agree_with_eager_mode() -> None:
    hi, lo = planes((64, 32), 0)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    arguments = (x, hi, lo, nested_scale((64, 2), 0))
    expected = nested_step(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch warns of itself
        compiled = torch.compile(nested_step, fullgraph=True)
        assert same_bits(compiled(*arguments), expected)

        class Step(torch.nn.Module):
            def forward(self, *given: Tensor) -> Tensor:
                return nested_step(*given)

        exported = torch.export.export(Step(), arguments).module()
        assert same_bits(exported(*arguments), expected)


def scattered(tensor: Tensor) -> Tensor:
    """Return the same numbers with other strides."""
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


INPUTS = {
    "dashq_linear": (0, 4),
    "quantize_activations": (0,),
    "nested_linear": (0, 1, 5),
    "hadamard": (0,),
    "quantize_transformed": (0,),
    "kv_quantize": (0, 1),
    "kv_attention": (0, 7),
    "pack_words": (0,),
    "unpack_words": (0,),
    "pack_planes": (0, 1),
    "unpack_planes": (0, 1),
}
"""Places of the arguments that may have any strides; weights and caches may not."""


@pytest.mark.parametrize("operation", INPUTS)
def test_strides_of_inputs_change_no_bit(operation: str) -> None:
    arguments = sample(operation)
    other = tuple(
        scattered(value) if place in INPUTS[operation] and value is not None else value
        for place, value in enumerate(arguments)
    )
    assert not other[0].is_contiguous()
    function = getattr(operations, operation)
    assert same_bits(function(*other), function(*arguments))


@pytest.mark.parametrize("operation", ["dashq_reconstruct", "nested_reconstruct", "kv_dequantize"])
def test_a_weight_with_other_strides_is_refused(operation: str) -> None:
    first, *others = sample(operation)
    with pytest.raises(ValueError, match=r"contiguous tensor, found strides .*call \.contiguous"):
        getattr(operations, operation)(scattered(first), *others)


def test_zeros_at_the_end_do_not_change_a_tree_sum() -> None:
    terms = torch.randn(37, 5, generator=torch.Generator().manual_seed(0))
    expected = tree_sum(terms)
    for more in (1, 2, 27, 100):
        assert same_bits(tree_sum(torch.cat([terms, torch.zeros(more, 5)])), expected)


def test_a_tree_sum_adds_neighbours_first() -> None:
    terms = torch.tensor([1.0, 2.0**-24, 2.0**-24, 2.0**-24])
    assert float(tree_sum(terms)) == float(np.float32(1) + np.float32(2.0**-23))


def test_the_exponential_is_as_accurate_as_the_text_demands() -> None:
    a = -torch.cat([torch.linspace(0, 90, 20001), torch.logspace(-12, 1, 2001)])
    found = exponential(a).to(torch.float64)
    exact = a.to(torch.float64).exp()
    allowed = torch.maximum((4 + 2 * a.abs().double()) * 2.0**-23 * exact, torch.tensor(2.0**-126))
    assert bool(((found - exact).abs() <= allowed).all())
    assert float(exponential(torch.zeros(1))) == 1.0


def test_large_calls_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [
        call for call in bounded_calls() if call.operation in ("nested_linear", "kv_attention")
    ]
    expected = [getattr(portable.OPERATIONS, call.operation)(*call.arguments) for call in calls]
    monkeypatch.setattr("nibblespec.optimized.portable.sums.PART_ELEMENTS", 1)
    for call, whole_result in zip(calls, expected, strict=True):
        found = getattr(portable.OPERATIONS, call.operation)(*call.arguments)
        assert same_bits(found, whole_result), call


@pytest.mark.parametrize("setting", ["medium", "high"])
def test_settings_of_float32_products_do_not_reach_the_layer(setting: str) -> None:
    layout = DashqLayout(4, 32, 480, 64, 64)
    weight = dashq_weight(layout, torch.float16, 0)
    x = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    expected = portable.OPERATIONS.dashq_linear(x, *weight, None, layout)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        found = operations.dashq_linear(x, *weight, None, layout)
    finally:
        torch.set_float32_matmul_precision(before)
    size = float(expected.abs().max())
    assert float((found - expected).abs().max()) < 1e-6 * size * math.sqrt(64)


@pytest.mark.parametrize("call", list(empty_calls()), ids=str)
def test_a_call_without_rows_gives_none(call: Call) -> None:
    for implementation in (operations, portable.OPERATIONS):
        answer = getattr(implementation, call.operation)(*call.arguments)
        assert all(part.numel() == 0 for part in results(answer))


def test_samples_are_valid_calls() -> None:
    def accepted(call: Call) -> bool:
        getattr(operations, call.operation)(*call.arguments)
        return True

    assert all(accepted(call) for call in (*exact_calls(), *bounded_calls()))
