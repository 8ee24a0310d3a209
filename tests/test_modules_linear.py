"""The packed layers as modules: names, shapes, dtypes, planes, and the compiler."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from nibblespec.optimized.modules import DashQLinear, NestedLinear, select_plane
from nibblespec.optimized.pytorch import operations
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.reference.planes import pack_planes
from nibblespec.spec.bitnest_package.v1.manifest import Layer
from torch import Tensor, nn

ROWS, COLUMNS = 12, 48


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def dashq(*, bias: bool = False, padding: int = 0) -> DashQLinear:
    """Return a layer of 3 bits in groups of 16, linear_dtype bfloat16."""
    packed = encode_dashq(
        normal(ROWS, COLUMNS).numpy(), nbits=3, group_size=16, quant_in_features=COLUMNS + padding
    )
    layer = DashQLinear(packed.module, operations, bias=bias)
    state = {"W_q_packed": packed.words, "scale": packed.scale, "zero": packed.zero}
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    if bias:
        tensors["bias"] = normal(ROWS, seed=1).to(torch.bfloat16)
    layer.load_state_dict(tensors)
    return layer


def nested(*, bias: bool = False, **options: Any) -> NestedLinear:  # noqa: ANN401
    """Return a layer in groups of 16."""
    q4, qr, scale = encode_nested(normal(ROWS, COLUMNS).numpy(), 16)
    hi, lo = pack_planes(q4, qr)
    description = Layer(shape=[ROWS, COLUMNS], groups=3, has_bias=bias)
    layer = NestedLinear(description, operations, **options)
    tensors = {name: torch.from_numpy(x) for name, x in (("hi", hi), ("lo", lo), ("scale", scale))}
    if bias:
        tensors["bias"] = normal(ROWS, seed=1).to(torch.float16)
    layer.load_state_dict(tensors)
    return layer


def with_matrix() -> NestedLinear:
    """Return a layer with a transform of order 3, whose matrix is not symmetric, and A8 groups."""
    return nested(hadamard_order=3, had_k=normal(3, 3, seed=2), activation_group=24)


def inputs(*shape: int) -> Tensor:
    return normal(*shape, seed=3).to(torch.bfloat16)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "dashq": lambda: dashq(bias=True),
    "nested": lambda: nested(bias=True),
    "nested with R4": with_matrix,
}


def test_names_are_those_of_the_files() -> None:
    assert set(dashq().state_dict()) == {"W_q_packed", "scale", "zero"}
    assert set(dashq(bias=True).state_dict()) == {"W_q_packed", "scale", "zero", "bias"}
    assert set(with_matrix().state_dict()) == {"hi", "lo", "scale"}
    assert set(nested(bias=True).state_dict()) == {"hi", "lo", "scale", "bias"}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (2, 1, 3)])
def test_leading_axes_are_kept(name: str, shape: tuple[int, ...]) -> None:
    layer, x = LAYERS[name](), inputs(*shape, COLUMNS)
    y = layer(x)
    assert y.shape == (*shape, ROWS)
    assert torch.equal(y.reshape(-1, ROWS), layer(x.reshape(-1, COLUMNS)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", [0, 16])
def test_dashq_is_the_product_with_the_weight(bias: bool, padding: int) -> None:
    layer, x = dashq(bias=bias, padding=padding), inputs(7, COLUMNS)
    weight = operations.dashq_reconstruct(
        layer.W_q_packed, layer.scale, layer.zero, layer.layout, torch.float32
    )
    expected = x.double() @ weight.double().T
    if layer.bias is not None:
        expected = expected + layer.bias.double()
    assert torch.equal(layer(x), expected.to(torch.bfloat16))


def test_dashq_takes_its_linear_dtype_alone() -> None:
    with pytest.raises(TypeError, match="x: expected dtype bfloat16, found float32"):
        dashq()(normal(1, COLUMNS))


def test_dashq_takes_its_width_alone() -> None:
    with pytest.raises(ValueError, match=r"x: expected shape \[\.\.\., 48\], found \[1, 32\]"):
        dashq()(inputs(1, 32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nested_returns_the_dtype_of_x(dtype: torch.dtype) -> None:
    assert nested()(inputs(2, COLUMNS).to(dtype)).dtype == dtype


@pytest.mark.parametrize("plane", ["draft", "target"])
def test_nested_is_transform_quantization_and_product(plane: str) -> None:
    layer, x = with_matrix(), inputs(3, COLUMNS)
    layer.plane = plane
    turned = operations.hadamard(x, layer.had_k, torch.float32)
    codes, scales = operations.quantize_activations(turned, 24)
    lo = layer.lo if plane == "target" else None
    expected = operations.nested_linear(
        codes, scales, layer.hi, lo, layer.scale, None, plane, torch.bfloat16
    )
    assert torch.equal(layer(x), expected)


def test_transform_and_quantization_are_one_operation() -> None:
    layer = with_matrix()
    y = layer(inputs(3, COLUMNS))

    def refuse(*_: object) -> Any:  # noqa: ANN401  # what an operation returns
        raise AssertionError("the layer calls one of the two")

    layer.operations = replace(operations, hadamard=refuse, quantize_activations=refuse)
    assert torch.equal(layer(inputs(3, COLUMNS)), y)


def test_a_transform_of_order_one_has_no_matrix() -> None:
    layer = NestedLinear(
        Layer(shape=[2, 32], groups=2, has_bias=False), operations, hadamard_order=1
    )
    layer.load_state_dict(
        {
            "hi": torch.full((2, 16), 0x99, dtype=torch.uint8),
            "lo": torch.full((2, 16), 0x88, dtype=torch.uint8),
            "scale": torch.ones(2, 2, dtype=torch.float16),
        }
    )
    x = torch.zeros(1, 32)
    x[0, 0] = 1.0
    # Ones times the transform of a unit vector, all of whose elements are 1/√32.
    torch.testing.assert_close(layer(x), torch.full((1, 2), 32**0.5))


def test_a_draft_reads_no_low_plane() -> None:
    layer, x = nested(), inputs(2, COLUMNS)
    target = layer(x)
    select_plane(layer, "draft")
    before = layer(x)
    layer.lo.fill_(0xFF)
    assert torch.equal(layer(x), before)
    assert not torch.equal(before, target)


def test_the_plane_is_switched_in_all_layers_and_back() -> None:
    model, x = nn.Sequential(nested(), nn.Linear(ROWS, COLUMNS), nested()), normal(2, COLUMNS)
    target = model(x)
    select_plane(model, "draft")
    assert not torch.equal(model(x), target)
    select_plane(model, "target")
    assert torch.equal(model(x), target)


def test_a_plane_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="plane: expected draft or target, found 'hi'"):
        select_plane(nested(), "hi")


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compile_without_a_graph_break(name: str) -> None:
    layer = LAYERS[name]()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (1, 2, 5):
        assert torch.equal(compiled(inputs(rows, COLUMNS)), layer(inputs(rows, COLUMNS)))


def test_a_compiled_layer_follows_its_plane() -> None:
    layer, x = nested(), inputs(2, COLUMNS)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for plane in ("target", "draft", "target"):
        select_plane(layer, plane)
        assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_exported(name: str) -> None:
    layer, x = LAYERS[name](), inputs(3, COLUMNS)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: rows},))
    assert set(program.state_dict) == set(layer.state_dict())
    for other in (x, inputs(7, COLUMNS)):
        assert torch.equal(program.module()(other), layer(other))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_model_converted_to_another_dtype_keeps_what_is_packed(
    name: str, dtype: torch.dtype
) -> None:
    layer = LAYERS[name]()
    before = {key: tensor.clone() for key, tensor in layer.named_buffers()}
    nn.Sequential(layer).to(dtype)
    for key, tensor in layer.named_buffers():
        assert tensor.dtype == before[key].dtype
        assert torch.equal(tensor, before[key])


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_moved_to_another_device_takes_along_what_is_packed(name: str) -> None:
    layer = LAYERS[name]()
    dtypes = {key: tensor.dtype for key, tensor in layer.named_buffers()}
    nn.Sequential(layer).to("meta", torch.float32)
    assert {tensor.device.type for tensor in layer.buffers()} == {"meta"}
    assert {key: tensor.dtype for key, tensor in layer.named_buffers()} == dtypes
