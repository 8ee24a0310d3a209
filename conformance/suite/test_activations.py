"""bitnest-package-v1, chapter 8: activations."""

import numpy as np
from nibblespec.conformance.suite import exact
from nibblespec.conformance.suite.a8_data import Activations
from nibblespec.conformance.suite.activation_domains import activations
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.properties import for_all
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import float_dtypes
from nibblespec.reference.activations import quantize_activations as reference
from nibblespec.spec.operations import Capabilities, QuantizeActivations

GOLDEN = np.array([[127, 0.5, 1.5, -2.5, 3.25, 0]], np.float32)


@requirement("BN1-ACT-CODES", "BN1-ACT-SCALE")
def test_golden_codes_of_a_token(
    capabilities: Capabilities, quantize_activations: QuantizeActivations
) -> None:
    """The worked example of the text, one scale for the token."""
    x = GOLDEN.astype(DTYPES[float_dtypes(capabilities)[0]])
    codes, scale = quantize_activations(x, -1)
    expect_equal("quantize_activations, codes", codes, np.array([[127, 0, 2, -2, 3, 0]], np.int8))
    expect_equal("quantize_activations, scale", scale, np.ones((1, 1), np.float32))


@requirement("BN1-ACT-GROUPS")
def test_golden_codes_of_groups(
    capabilities: Capabilities, quantize_activations: QuantizeActivations
) -> None:
    """The worked example of the text, in two groups of three columns."""
    claimed((3,), capabilities.group_sizes, "a group of 3")
    x = GOLDEN.astype(DTYPES[float_dtypes(capabilities)[0]])
    codes, scale = quantize_activations(x, 3)
    bits = np.array([[0x3F800000, 0x3CD1A347]], np.uint32)
    expect_equal("quantize_activations, scale", scale, bits.view(np.float32))
    expect_equal(
        "quantize_activations, codes", codes, np.array([[127, 0, 2, -98, 127, 0]], np.int8)
    )


@requirement("BN1-ACT-SCALE")
@for_all(activations())
def test_scales_are_a_127th_of_the_largest_magnitude(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Correctly rounded, and never below 1e-8."""
    _, scale = quantize_activations(case.x, case.width)
    _, expected = reference(case.x, case.width)
    expect_equal("quantize_activations, scale", scale, expected)


@requirement("BN1-ACT-CODES")
@for_all(activations())
def test_codes_are_rounded_quotients(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Data of every kind, data far from zero and whole tokens of zeros among it."""
    codes, _ = quantize_activations(case.x, case.width)
    expected, _ = reference(case.x, case.width)
    expect_equal("quantize_activations, codes", codes, expected)


@requirement("BN1-ACT-CODES", "BN1-ACT-SCALE")
@for_all(activations("ties", "near ties", "floor"))
def test_ties_and_the_floor_by_rational_arithmetic(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Exact ties go to even; beside a tie, only the correctly rounded quotient is right."""
    codes, scale = quantize_activations(case.x, case.width)
    span = case.x.shape[1] if case.width == -1 else case.width
    some = slice(0, min(span, 40))
    for row, group in {(0, 0), (case.rows // 2, scale.shape[1] - 1)}:
        columns = slice(group * span, (group + 1) * span)
        wanted_codes, wanted_scale = exact.a8(case.x[row, columns].astype(np.float64).tolist())
        where = f"of row {row}, group {group}"
        expected = np.array([wanted_scale], np.float32)
        expect_equal(f"quantize_activations, scale {where}", scale[row, group, None], expected)
        expect_equal(
            f"quantize_activations, codes {where}",
            codes[row, columns][some],
            np.array(wanted_codes, np.int8)[some],
        )


@requirement("BN1-ACT-GROUPS")
@for_all(activations("magnitudes", "outliers", grouped=True))
def test_every_group_of_columns_has_its_own_scale(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Neighbouring groups and rows whose magnitudes differ by powers of two."""
    codes, scale = quantize_activations(case.x, case.width)
    expected_codes, expected_scale = reference(case.x, case.width)
    expect_equal("quantize_activations, scale", scale, expected_scale)
    expect_equal("quantize_activations, codes", codes, expected_codes)


@requirement("BN1-ACT-WIDEN")
@for_all(activations())
def test_narrow_activations_are_widened_first(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Codes and scales of 16-bit numbers are those of the same numbers in float32."""
    codes, scale = quantize_activations(case.x, case.width)
    expected_codes, expected_scale = reference(case.x.astype(np.float32), case.width)
    expect_equal("quantize_activations, scale", scale, expected_scale)
    expect_equal("quantize_activations, codes", codes, expected_codes)
