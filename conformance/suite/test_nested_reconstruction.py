"""bitnest-package-v1, chapter 7: weights of the draft and of the target."""

import ml_dtypes
import numpy as np
from nibblespec.conformance.suite import exact
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_data import eight_bit, make_nested, with_codes
from nibblespec.conformance.suite.nested_domains import NestedCase, nested_weights
from nibblespec.conformance.suite.properties import for_all
from nibblespec.reference.nested import nested_reconstruct as reference
from nibblespec.reference.rounding import round_float32
from nibblespec.spec.operations import Array, Bytes, Capabilities, NestedReconstruct, Plane

GOLDEN = with_codes(
    np.array([[-8, -1, 0, 7, 3, -5]], np.int8),
    np.array([[5, -8, 7, -1, 0, 2]], np.int8),
    np.array([[0x2E66]], np.uint16).view(np.float16),
    group=6,
)
DRAFT = [0xBF4D, 0xBDCD, 0x0000, 0x3F33, 0x3E9A, 0xBF00]
TARGET = [0xBF45, 0xBE1A, 0x3D33, 0x3F32, 0x3E9A, 0xBEFA]
"""The worked example of the text, in bfloat16."""


@requirement("BN1-DRAFT-WEIGHT")
def test_golden_draft_weights(
    capabilities: Capabilities, nested_reconstruct: NestedReconstruct
) -> None:
    """The worked example of the text, read by the draft."""
    expect_golden(DRAFT, None, "draft", capabilities, nested_reconstruct)


@requirement("BN1-TARGET-WEIGHT")
def test_golden_target_weights(
    capabilities: Capabilities, nested_reconstruct: NestedReconstruct
) -> None:
    """The worked example of the text, read by the target."""
    expect_golden(TARGET, GOLDEN.lo, "target", capabilities, nested_reconstruct)


@requirement("BN1-DRAFT-WEIGHT")
@for_all(nested_weights)
def test_draft_weights_are_codes_times_scale(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """By rational arithmetic: ties, subnormal, overflowing and zero weights, signs of zeros."""
    found = nested_reconstruct(case.weight.hi, None, case.weight.scale, "draft", case.dtype)
    expect_exact(found, case, case.weight.q4, 1)


@requirement("BN1-TARGET-WEIGHT")
@for_all(nested_weights)
def test_target_weights_are_codes_times_a_sixteenth_of_the_scale(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """By rational arithmetic, the extreme codes -128 and 119 among them."""
    weight = case.weight
    found = nested_reconstruct(weight.hi, weight.lo, weight.scale, "target", case.dtype)
    expect_exact(found, case, eight_bit(weight), 16)


@requirement("BN1-WEIGHT-GROUPS")
@for_all(nested_weights)
def test_every_group_has_its_own_scale(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """The whole weight, whose neighbouring groups never have the same scale."""
    weight = case.weight
    lo = weight.lo if case.plane == "target" else None
    expected = reference(weight.hi, lo, weight.scale, case.plane, case.dtype)
    found = nested_reconstruct(weight.hi, lo, weight.scale, case.plane, case.dtype)
    expect_equal(f"nested_reconstruct, {case.plane}", found, expected)


@requirement("BN1-SCALE-SIXTEENTH")
@for_all(nested_weights)
def test_small_scales_are_divided_without_loss(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """Scales below 2**-10, of which float16 cannot hold a sixteenth."""
    shape = case.weight.scale.shape
    bits = 1 + (case.weight.seed + 37 * np.arange(np.prod(shape))) % 0x1400
    scale = bits.astype(np.uint16).view(np.float16).reshape(shape)
    weight = with_codes(case.weight.q4, case.weight.qr, scale, case.weight.group)
    found = nested_reconstruct(weight.hi, weight.lo, scale, "target", case.dtype)
    expected = reference(weight.hi, weight.lo, scale, "target", case.dtype)
    expect_equal("nested_reconstruct, target", found, expected)


@requirement("NUM-INVARIANT-DRAFT")
@for_all(nested_weights)
def test_the_draft_needs_no_low_plane(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """The draft weight is there without lo, and is that of a weight with other residuals."""
    weight = case.weight
    other = make_nested(weight.rows, weight.scale.shape[1], weight.group, weight.seed + 1)
    expected = reference(weight.hi, other.lo, weight.scale, "draft", case.dtype)
    found = nested_reconstruct(weight.hi, None, weight.scale, "draft", case.dtype)
    expect_equal("nested_reconstruct, draft", found, expected)


def expect_golden(
    bits: list[int],
    lo: Bytes | None,
    plane: Plane,
    capabilities: Capabilities,
    nested_reconstruct: NestedReconstruct,
) -> None:
    """Compare with bfloat16 numbers given by their bits."""
    claimed((GOLDEN.group,), capabilities.group_sizes, "a group of 6")
    claimed(("bfloat16",), capabilities.dtypes, "bfloat16")
    expected = np.array([bits], np.uint16).view(ml_dtypes.bfloat16)
    found = nested_reconstruct(GOLDEN.hi, lo, GOLDEN.scale, plane, "bfloat16")
    expect_equal(f"nested_reconstruct, {plane}", found, expected)


def expect_exact(found: Array, case: NestedCase, codes: Array, divisor: int) -> None:
    """Compare elements all over the weight with rational arithmetic."""
    weight = case.weight
    places = np.unique(np.linspace(0, found.size - 1, 64).astype(np.int64))
    rows, columns = np.divmod(places, weight.columns)
    scales = weight.scale[rows, columns // weight.group].tolist()
    values = [
        exact.rounded(exact.multiply(code, scale / divisor, "float32"), case.dtype)
        for code, scale in zip(codes[rows, columns].tolist(), scales, strict=True)
    ]
    expected = round_float32(np.array(values, np.float32), case.dtype)
    expect_equal("nested_reconstruct, some elements", found.reshape(-1)[places], expected)
