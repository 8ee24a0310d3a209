"""bitnest-package-v1, chapter 9, and numerics, chapter 4: the nested linear layer."""

import numpy as np
from nibblespec.conformance.suite.a8_data import Activations
from nibblespec.conformance.suite.activation_domains import activations
from nibblespec.conformance.suite.block_domains import nested_blocks
from nibblespec.conformance.suite.compare import expect_equal, expect_within
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_data import eight_bit, make_tame_nested, with_codes
from nibblespec.conformance.suite.nested_domains import (
    ExactLayer,
    NestedLayer,
    exact_layers,
    layer_operands,
    nested_layers,
    prefill_layers,
)
from nibblespec.conformance.suite.properties import for_all
from nibblespec.conformance.suite.strategies import float_dtypes
from nibblespec.reference.activations import quantize_activations as reference_a8
from nibblespec.reference.bounds_nested import nested_linear_bounded, prefill_f16_bounded
from nibblespec.reference.rounding import round_float32
from nibblespec.spec.operations import (
    Array,
    Capabilities,
    NestedLinear,
    Plane,
    QuantizeActivations,
)

XQ = np.array([[1, -2, 3, 4, -5, 6]], np.int8)
SX = np.array([[0.5, 2]], np.float32)
GOLDEN = with_codes(
    np.array([[-8, -1, 0, 7, 3, -5]], np.int8),
    np.array([[5, -8, 7, -1, 0, 2]], np.int8),
    np.array([[1, 0.25, 4]], np.float16),
    group=2,
)
"""The worked example of the text: segments {0, 1}, {2}, {3}, {4, 5}."""


@requirement("BN1-LINEAR-SEGMENTS")
def test_golden_sum_of_the_draft(capabilities: Capabilities, nested_linear: NestedLinear) -> None:
    """Groups of two and of three columns: -3 + 0 + 14 - 360 + 0.5, by the draft."""
    expect_golden("draft", -348.5, capabilities, nested_linear)


@requirement("BN1-LINEAR-TARGET", "BN1-LINEAR-SEGMENTS")
def test_golden_sum_of_the_target(capabilities: Capabilities, nested_linear: NestedLinear) -> None:
    """The same by the target: codes 16 * q4 + qr with a sixteenth of the scale."""
    expect_golden("target", -341.8046875, capabilities, nested_linear)


@requirement("BN1-LINEAR-DOT")
@for_all(exact_layers)
def test_integer_products_are_exact(case: ExactLayer, nested_linear: NestedLinear) -> None:
    """One group, sx 1 and a power of two as scale: the result is the integer, scaled."""
    layer = case.layer
    weight = layer.weight
    codes = weight.q4 if layer.plane == "draft" else eight_bit(weight)
    dot = layer.xq.astype(np.int64) @ codes.T.astype(np.int64)
    unit = case.unit if layer.plane == "draft" else case.unit / 16
    expected = round_float32((dot * unit).astype(np.float32), layer.dtype)
    found = nested_linear(*layer_operands(layer), layer.dtype)
    # A sum of zeros has a sign that depends on its order: every zero becomes +0.
    positive = found + np.zeros(1, found.dtype)
    expect_equal(f"nested_linear, {layer.plane}, integer products", positive, expected)


@requirement("NUM-LINEAR-NESTED")
@for_all(nested_layers(biases=("none", "small")))
def test_outputs_are_scaled_sums_of_products(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """Every element of every shape, both planes, inside the bound."""
    expect_layer(case, nested_linear)


@requirement("NUM-LINEAR-NESTED")
@for_all(nested_blocks)
def test_layers_of_every_size(case: NestedLayer, nested_linear: NestedLinear) -> None:
    """Rows, outputs and groups on both sides of where blocks and tuned ranges end."""
    expect_layer(case, nested_linear)


@requirement("BN1-LINEAR-SEGMENTS")
@for_all(nested_layers(kinds=("random", "one-hot"), mixed_groups=True))
def test_segments_are_where_both_scales_are_constant(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """Activation groups wider and narrower than weight groups, and neither dividing the other."""
    expect_layer(case, nested_linear)


@requirement("BN1-LINEAR-TARGET")
@for_all(nested_layers(kinds=("one-hot", "position")))
def test_each_plane_has_its_codes_and_scale(case: NestedLayer, nested_linear: NestedLinear) -> None:
    """One column at a time, so that nothing hides a wrong residual."""
    expect_layer(case, nested_linear)


@requirement("BN1-LINEAR-BIAS")
@for_all(nested_layers(kinds=("random",), biases=("large", "small")))
def test_the_bias_is_added_before_the_rounding(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """A sum that was rounded before the bias is out of bounds where the two are far apart."""
    expect_layer(case, nested_linear)


@requirement("NUM-LINEAR-ACCUMULATE")
@for_all(nested_layers(kinds=("all positive", "extreme")))
def test_sums_are_at_least_float32(case: NestedLayer, nested_linear: NestedLinear) -> None:
    """Long sums of large products: an accumulator of 16 bits loses them."""
    expect_layer(case, nested_linear)


@requirement("BN1-LINEAR-DOT")
@for_all(activations("outliers"))
def test_the_layer_multiplies_quantized_activations(
    case: Activations,
    capabilities: Capabilities,
    quantize_activations: QuantizeActivations,
    nested_linear: NestedLinear,
) -> None:
    """Outliers make eight-bit codes coarse: W4A8 and W4A16 differ, and W4A8 is meant."""
    rows = rows_below_prefill(case.x, capabilities)
    columns = rows.shape[1]
    group = columns // case.groups
    if columns % 2:
        rows, columns, group = np.repeat(rows, 2, axis=1), 2 * columns, columns
    claimed((group,), capabilities.group_sizes, f"a group of {group}")
    weight = make_tame_nested(7, columns // group, group, case.seed)
    xq, sx = quantize_activations(rows, -1)
    found = nested_linear(xq, sx, weight.hi, None, weight.scale, None, "draft", case.dtype)
    wanted_xq, wanted_sx = reference_a8(rows, -1)
    bounded = nested_linear_bounded(
        wanted_xq, wanted_sx, weight.hi, None, weight.scale, None, "draft"
    )
    expect_within("nested_linear of quantize_activations", found, bounded)


@requirement("BN1-LINEAR-PREFILL", "NUM-LINEAR-PREFILL-F16")
@for_all(prefill_layers)
def test_prefill_f16_is_a_product_of_float16_numbers(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """From the declared number of rows on, weights and activations are rounded to float16."""
    operands = layer_operands(case)
    found = nested_linear(*operands, case.dtype)
    expect_within("nested_linear, prefill-f16", found, prefill_f16_bounded(*operands))


def expect_golden(
    plane: Plane, expected: float, capabilities: Capabilities, nested_linear: NestedLinear
) -> None:
    """Compare the worked example, whose every step is exact, in one claimed dtype."""
    for group in (2, 3):
        claimed((group,), capabilities.group_sizes, f"a group of {group}")
    rows_below_prefill(XQ, capabilities)
    dtype = float_dtypes(capabilities)[-1]
    lo = GOLDEN.lo if plane == "target" else None
    bias = np.array([0.5], np.float16)
    found = nested_linear(XQ, SX, GOLDEN.hi, lo, GOLDEN.scale, bias, plane, dtype)
    wanted = round_float32(np.array([[expected]], np.float32), dtype)
    expect_equal(f"nested_linear, {plane}", found, wanted)


def expect_layer(case: NestedLayer, nested_linear: NestedLinear) -> None:
    """Hold a layer to the bound of the integer sum."""
    operands = layer_operands(case)
    found = nested_linear(*operands, case.dtype)
    expect_within(f"nested_linear, {case.plane}", found, nested_linear_bounded(*operands))


def rows_below_prefill(x: Array, capabilities: Capabilities) -> Array:
    """Return as many rows as the mode of integer sums takes, all of them as a rule."""
    first = capabilities.prefill_f16_from
    claimed((1,), None if first is None or first > 1 else (), "the mode of integer sums")
    return x if first is None else x[: first - 1]
