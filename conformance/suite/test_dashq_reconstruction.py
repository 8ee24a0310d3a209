"""dashq-packed-linear, chapter 7, and numerics, chapters 1 and 3: reconstruction."""

from typing import cast

import numpy as np
from nibblespec.conformance.suite import exact
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.dashq_data import (
    DashqWeight,
    make_module,
    make_weight,
    pack,
    to_dtype,
)
from nibblespec.conformance.suite.dashq_domains import (
    dashq_weights,
    every_dtype_weights,
    padded_weights,
    rounding_weights,
    straddling_modules,
)
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.conformance.suite.properties import for_all
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.reference.dashq import dashq_reconstruct as reference
from nibblespec.reference.rounding import round_float32
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    Array,
    Capabilities,
    DashqReconstruct,
    DashqRounding,
    FloatDtype,
)


@requirement("NUM-EVALUATION-FUSED")
@for_all(dashq_weights)
def test_fused_weights_have_their_bits(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Difference and product in float32, one rounding to the output dtype."""
    expect_evaluation("fused", case, capabilities, dashq_reconstruct)


@requirement("NUM-EVALUATION-STEPWISE")
@for_all(dashq_weights)
def test_stepwise_weights_have_their_bits(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Every operand and every result in the output dtype."""
    expect_evaluation("stepwise", case, capabilities, dashq_reconstruct)


@requirement("NUM-EVALUATION-BF16-PARAMS")
@for_all(dashq_weights)
def test_bf16_params_weights_have_their_bits(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Parameters rounded to bfloat16, then as fused."""
    expect_evaluation("bf16-params", case, capabilities, dashq_reconstruct)


@requirement("NUM-EVALUATION-ONE")
@for_all(dashq_weights)
def test_the_evaluation_is_the_same_for_many_shapes(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """A compiler that gives up after some shapes must not change the weights."""
    shape = case.module
    for extra in range(12):
        module = make_module(
            shape.nbits,
            1 + extra,
            1 + extra % 3,
            shape.group_size,
            0,
            shape.scale_zero_dtype,
            shape.linear_dtype,
        )
        expect_reference(make_weight(module, case.dtype, extra), capabilities, dashq_reconstruct)
    expect_reference(case, capabilities, dashq_reconstruct)


@requirement("NUM-EVALUATION-CANONICAL")
def test_the_declared_evaluation_is_the_canonical_one(
    capabilities: Capabilities,
    dashq_reconstruct: DashqReconstruct,  # noqa: ARG001  # claimed, or there is nothing to ask
) -> None:
    """Weights are exchanged between runtimes: fused is what they have in common."""
    if capabilities.dashq_rounding != "fused":
        raise Violation(
            f"dashq_reconstruct: expected dashq_rounding fused, found {capabilities.dashq_rounding}"
        )


@requirement("DQ1-RECONSTRUCT-FORMULA")
@for_all(dashq_weights)
def test_weights_are_codes_minus_zero_times_scale(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """(q - zero) * scale by rational arithmetic, at places all over the weight."""
    found = dashq_reconstruct(case.words, case.scale, case.zero, case.module, case.dtype)
    places = np.unique(np.linspace(0, found.size - 1, 40).astype(np.int64))
    expected = exact_weights(case, capabilities.dashq_rounding, places)
    expect_equal("dashq_reconstruct, some elements", found.reshape(-1)[places], expected)


@requirement("DQ1-RECONSTRUCT-GROUPS")
@for_all(dashq_weights)
def test_every_group_has_its_own_scale(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """With zero 0 and all codes 1, a weight is the scale of its group."""
    module = case.module
    scale = distinct_numbers(module.num_groups).astype(DTYPES[module.scale_zero_dtype])
    words = pack(np.ones(case.codes.size, np.uint8), module.nbits)
    expected = by_column(scale, module).astype(DTYPES[case.dtype])
    found = dashq_reconstruct(words, scale, np.zeros_like(scale), module, case.dtype)
    expect_equal("dashq_reconstruct of codes 1", found, expected)


@requirement("DQ1-RECONSTRUCT-GROUPS")
@for_all(dashq_weights)
def test_every_group_has_its_own_zero_point(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """With scale 1 and all codes 0, a weight is minus the zero point of its group."""
    module = case.module
    zero = distinct_numbers(module.num_groups).astype(DTYPES[module.scale_zero_dtype])
    words = pack(np.zeros(case.codes.size, np.uint8), module.nbits)
    expected = -by_column(zero, module).astype(DTYPES[case.dtype])
    found = dashq_reconstruct(words, np.ones_like(zero), zero, module, case.dtype)
    expect_equal("dashq_reconstruct of codes 0", found, expected)


@requirement("DQ1-RECONSTRUCT-ZERO-POINT")
@for_all(dashq_weights)
def test_zero_points_are_taken_as_they_are(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """With scale 1, a weight is q - zero: zero, fractional, negative, above all codes."""
    module = case.module
    over = float(2**module.nbits)
    values = np.array([0, 0.25, 1, -1.5, over, -0.5, 1.75, -over, 2.5, 2 * over], np.float32)
    cycle = values[np.arange(module.num_groups) % values.size].reshape(-1, 1)
    zero = to_dtype(cycle, DTYPES[module.scale_zero_dtype])
    q = case.codes[:, : module.in_features].astype(np.float32)
    expected = (q - by_column(zero, module)).astype(DTYPES[case.dtype])
    found = dashq_reconstruct(case.words, np.ones_like(zero), zero, module, case.dtype)
    expect_equal("dashq_reconstruct with scale 1", found, expected)


@requirement("DQ1-RECONSTRUCT-PARAMETERS", "DQ1-RECONSTRUCT-DTYPE")
@for_all(every_dtype_weights)
def test_every_combination_of_dtypes_has_its_bits(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Scale and zero as stored; the result as asked for, whatever linear_dtype is."""
    expect_reference(case, capabilities, dashq_reconstruct)


@requirement("DQ1-RECONSTRUCT-CROP")
@for_all(padded_weights)
def test_padding_columns_are_left_out(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """The weight is the first in_features columns of a row, not of the whole sequence."""
    expect_reference(case, capabilities, dashq_reconstruct)


@requirement("DQ1-PACKING-ROWS")
@for_all(straddling_modules)
def test_rows_follow_each_other_without_a_break(
    case: Module, dashq_reconstruct: DashqReconstruct
) -> None:
    """With zero 0 and scale 1, position-coded weights are their own positions."""
    count = case.out_features * case.quant_in_features
    codes = (np.arange(count) % 2**case.nbits).astype(np.uint8)
    one = np.ones((case.num_groups, 1), DTYPES[case.scale_zero_dtype])
    expected = codes.reshape(case.out_features, -1).astype(DTYPES[case.linear_dtype])
    words = pack(codes, case.nbits)
    dtype = cast(FloatDtype, case.linear_dtype)
    found = dashq_reconstruct(words, one, np.zeros_like(one), case, dtype)
    expect_equal("dashq_reconstruct of position codes", found, expected)


@requirement("NUM-ROUND-NEAREST")
@for_all(rounding_weights("ties"))
def test_ties_go_to_the_even_neighbour(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Weights midway between two numbers of the output dtype, of both signs."""
    expect_exact(case, capabilities, dashq_reconstruct)


@requirement("NUM-EVALUATION-FUSED")
@for_all(rounding_weights("nearly ties"))
def test_float32_roundings_of_fused_are_not_left_out(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """A difference that float32 cannot hold is rounded before it is multiplied."""
    require(capabilities.dashq_rounding == "fused", "evaluation fused")
    expect_exact(case, capabilities, dashq_reconstruct)


@requirement("NUM-ROUND-ONCE")
@for_all(rounding_weights("just beyond ties"))
def test_results_are_rounded_once(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Weights beside a tie, which a detour through another dtype would make a tie."""
    expect_exact(case, capabilities, dashq_reconstruct)


@requirement("NUM-ROUND-SUBNORMAL")
@for_all(rounding_weights("subnormal"))
def test_subnormal_numbers_keep_their_value(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Subnormal scales and subnormal weights are not flushed to zero."""
    expect_exact(case, capabilities, dashq_reconstruct)


@requirement("NUM-ROUND-OVERFLOW")
@for_all(rounding_weights("overflow"))
def test_overflow_gives_infinity(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """What rounds beyond the largest number is infinite; what does not is that number."""
    expect_exact(case, capabilities, dashq_reconstruct)


@requirement("NUM-ROUND-ZERO")
@for_all(rounding_weights("zeros"))
def test_zeros_have_the_sign_of_ieee_754(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """A product has the product of the signs, an equal difference is +0."""
    expect_exact(case, capabilities, dashq_reconstruct)


def expect_evaluation(
    evaluation: DashqRounding,
    case: DashqWeight,
    capabilities: Capabilities,
    dashq_reconstruct: DashqReconstruct,
) -> None:
    """Compare with the reference, where this evaluation is the declared one."""
    require(capabilities.dashq_rounding == evaluation, f"evaluation {evaluation}")
    expect_reference(case, capabilities, dashq_reconstruct)


def expect_reference(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Compare the whole weight with the reference in the declared evaluation."""
    arguments = case.words, case.scale, case.zero, case.module, case.dtype
    expected = reference(*arguments, capabilities.dashq_rounding)
    expect_equal("dashq_reconstruct", dashq_reconstruct(*arguments), expected)


def expect_exact(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """Compare the whole weight with rational arithmetic in the declared evaluation."""
    found = dashq_reconstruct(case.words, case.scale, case.zero, case.module, case.dtype)
    expected = exact_weights(case, capabilities.dashq_rounding, np.arange(found.size))
    expect_equal("dashq_reconstruct", found, expected.reshape(found.shape))


def exact_weights(case: DashqWeight, evaluation: str, places: Array) -> Array:
    """Return the weights at flat indices of [N, K], by rational arithmetic."""
    module = case.module
    rows, columns = np.divmod(places, module.in_features)
    groups = rows * (module.quant_in_features // module.group_size) + columns // module.group_size
    known: dict[tuple[int, int], float] = {}
    values = []
    for code, group in zip(case.codes[rows, columns].tolist(), groups.tolist(), strict=True):
        if (code, group) not in known:
            zero, scale = float(case.zero[group, 0]), float(case.scale[group, 0])
            known[code, group] = exact.dashq_weight(code, zero, scale, evaluation, case.dtype)
        values.append(known[code, group])
    return round_float32(np.array(values, np.float32), case.dtype)


def by_column(parameter: Array, module: Module) -> Array:
    """Repeat one number per group [num_groups, 1] over its columns: float32 [N, in_features]."""
    by_row = parameter.astype(np.float32).reshape(module.out_features, -1)
    return np.repeat(by_row, module.group_size, axis=1)[:, : module.in_features]


def distinct_numbers(count: int) -> Array:
    """Return [count, 1] numbers that differ from their neighbours and fit every dtype."""
    place = np.arange(count)
    numbers = 2.0 ** (place % 7 - 2) * (1 + place // 7 % 4 / 4)
    return numbers.astype(np.float32).reshape(-1, 1)
