"""dashq-packed-linear, chapter 8, and numerics, chapter 4: the linear layer."""

import numpy as np
from nibblespec.conformance.suite.block_domains import dashq_blocks
from nibblespec.conformance.suite.compare import expect_within
from nibblespec.conformance.suite.dashq_domains import DashqLayer, dashq_layers
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.properties import for_all
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.spec.operations import Array, Capabilities, DashqLinear


@requirement("DQ1-LINEAR-FORMULA", "DQ1-LINEAR-DTYPE")
@for_all(dashq_layers())
def test_outputs_are_sums_over_the_weight(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Every element of every shape, inside the bound and in the dtype of x."""
    expect_layer(case, capabilities, dashq_linear)


@requirement("DQ1-LINEAR-FORMULA")
@for_all(dashq_blocks)
def test_layers_of_every_size(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Rows, outputs and groups on both sides of where blocks and tuned ranges end."""
    expect_layer(case, capabilities, dashq_linear)


@requirement("DQ1-LINEAR-BIAS")
@for_all(dashq_layers(kinds=("ordinary", "sparse"), biases=("large", "small")))
def test_the_bias_is_added_before_the_rounding(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """A sum that was rounded before the bias is out of bounds where the two are far apart."""
    expect_layer(case, capabilities, dashq_linear)


@requirement("DQ1-LINEAR-PADDING")
@for_all(dashq_layers(kinds=("ordinary", "one-hot"), padded=True))
def test_padding_takes_no_part(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """X has in_features columns, although rows of the weight are longer."""
    expect_layer(case, capabilities, dashq_linear)


@requirement("NUM-LINEAR-DASHQ-ROUNDED")
@for_all(dashq_layers(kinds=("one-hot", "cancelling")))
def test_weights_are_rounded_before_the_product(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Where that is declared, the weight is the one that dashq_reconstruct returns."""
    require(capabilities.linear_weight_rounding == "rounded", "linear_weight_rounding rounded")
    expect_layer(case, capabilities, dashq_linear)


@requirement("NUM-LINEAR-DASHQ-UNROUNDED")
@for_all(dashq_layers(kinds=("one-hot", "cancelling")))
def test_weights_are_not_rounded_before_the_product(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Where that is declared, the weight is as exact as its parameters."""
    require(capabilities.linear_weight_rounding == "unrounded", "linear_weight_rounding unrounded")
    expect_layer(case, capabilities, dashq_linear)


@requirement("NUM-LINEAR-ACCUMULATE")
@for_all(dashq_layers(kinds=("cancelling", "outliers")))
def test_sums_are_at_least_float32(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Small sums of large terms: an accumulator of 16 bits loses them."""
    positive = np.full_like(case.weight.zero, -1)  # every weight is positive
    expect_layer(case, capabilities, dashq_linear, zero=positive)


def expect_layer(
    case: DashqLayer,
    capabilities: Capabilities,
    dashq_linear: DashqLinear,
    zero: Array | None = None,
) -> None:
    """Hold the layer to the bound of what the backend declares; `zero` replaces zero points."""
    weight = case.weight
    arguments = (
        case.x,
        weight.words,
        weight.scale,
        weight.zero if zero is None else zero,
        case.bias,
        weight.module,
    )
    bounded = dashq_linear_bounded(
        *arguments, capabilities.dashq_rounding, capabilities.linear_weight_rounding
    )
    expect_within("dashq_linear", dashq_linear(*arguments), bounded)
