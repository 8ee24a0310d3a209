"""bitnest-package-v1, chapter 10, and numerics, chapter 5: the online Hadamard transform."""

import math

import numpy as np
from nibblespec.conformance.suite.compare import expect_equal, expect_within
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.hadamard_domains import FLOAT_KINDS, Transform, transforms
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.properties import for_all
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import float_dtypes
from nibblespec.reference.bounds import Bounded
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.hadamard import hadamard as reference
from nibblespec.reference.rounding import round_float32
from nibblespec.spec.operations import Array, Capabilities, Float32, Hadamard


@requirement("BN1-HADAMARD-ORDER")
def test_golden_transform_without_a_matrix(capabilities: Capabilities, hadamard: Hadamard) -> None:
    """The worked example of the text: 1, 2, 3, 4 becomes 5, -1, -2, 0."""
    expect_golden(None, [5, -1, -2, 0], capabilities, hadamard)


@requirement("BN1-HADAMARD-MATRIX")
def test_golden_transform_with_a_matrix(capabilities: Capabilities, hadamard: Hadamard) -> None:
    """The worked example whose matrix is not symmetric: transposed, it gives -2, 0, 5, -1."""
    claimed((2,), capabilities.hadamard_orders, "order 2 of had_K")
    had_k = np.array([[1, 1], [-1, 1]], np.float32)
    expect_golden(had_k, [5, -1, 2, 0], capabilities, hadamard)


@requirement("BN1-HADAMARD-ORDER", "BN1-HADAMARD-AXES")
@for_all(transforms("units", exact=True, largest=256))
def test_every_unit_vector_has_its_column(case: Transform, hadamard: Hadamard) -> None:
    """The transform of the identity is the matrix itself, exactly: order and axes of every sign."""
    found = hadamard(case.x, case.had_k, case.dtype)
    expect_equal("hadamard of unit vectors", no_signed_zeros(found), exact_transform(case))


@requirement("BN1-HADAMARD-EXACT")
@for_all(transforms("integers", exact=True))
def test_transforms_of_integers_are_exact(case: Transform, hadamard: Hadamard) -> None:
    """Sums of integers and a power of two as scale: only the last rounding is left."""
    found = hadamard(case.x, case.had_k, case.dtype)
    expect_equal("hadamard of integers", no_signed_zeros(found), exact_transform(case))


@requirement("BN1-HADAMARD-MATRIX")
@for_all(transforms("one-hot", "ordinary", matrices=("signs", "rotation"), matrix_only=True))
def test_the_matrix_is_not_transposed(case: Transform, hadamard: Hadamard) -> None:
    """Matrices that are not symmetric, of every order, ±1 and not."""
    expect_bound(case, hadamard)


@requirement("BN1-HADAMARD-SCALE")
@for_all(transforms("one-hot", "sparse"))
def test_the_transform_is_scaled_for_every_width(case: Transform, hadamard: Hadamard) -> None:
    """1/√n with n = K * m: neither 1/√m nor 1/n nor 1."""
    expect_bound(case, hadamard)


@requirement("BN1-HADAMARD-SCALE")
@for_all(transforms(*FLOAT_KINDS, largest=4096))
def test_twice_the_transform_is_the_identity(
    case: Transform, capabilities: Capabilities, hadamard: Hadamard
) -> None:
    """Without a matrix the transform is its own inverse, up to the bounds of both runs."""
    x = case.x
    claimed(("float32",), capabilities.dtypes, "float32")
    width = 2 ** (x.shape[-1].bit_length() - 1)
    x = np.ascontiguousarray(x[..., :width])
    once = hadamard(x, None, "float32")
    twice = hadamard(once, None, "float32")
    first, second = hadamard_bounded(x, None), hadamard_bounded(once, None)
    # Half a unit in the last place of float32 comes on top of the first bound.
    error = first.error + 2.0**-24 * np.abs(first.value) + 2.0**-149
    spread = error.sum(axis=-1, keepdims=True) / math.sqrt(width)
    bounded = Bounded(value=x.astype(np.float64), error=second.error + spread)
    expect_within("hadamard of hadamard", twice, bounded)


@requirement("NUM-HADAMARD-BOUND")
@for_all(transforms(*FLOAT_KINDS, "integers", matrices=("signs", "rotation")))
def test_transforms_are_inside_their_bound(case: Transform, hadamard: Hadamard) -> None:
    """Every order and width, outliers and data far from zero among the inputs."""
    expect_bound(case, hadamard)


@requirement("BN1-HADAMARD-RANGE")
@for_all(transforms("far from zero", "outliers"))
def test_no_intermediate_overflows_16_bits(case: Transform, hadamard: Hadamard) -> None:
    """Sums beyond 65504 on the way to a result that float16 holds."""
    expect_bound(case, hadamard)


@requirement("BN1-HADAMARD-CANONICAL")
@for_all(transforms(*FLOAT_KINDS, "integers"))
def test_transforms_have_the_bits_of_the_canonical_evaluation(
    case: Transform, hadamard: Hadamard
) -> None:
    """Strides 1, 2, 4 …, the sum over K in order, then float32(1/√n)."""
    expected = reference(case.x, case.had_k, case.dtype)
    found = hadamard(case.x, case.had_k, case.dtype)
    expect_equal("hadamard, canonical", no_signed_zeros(found), no_signed_zeros(expected))


def expect_golden(
    had_k: Float32 | None, expected: list[int], capabilities: Capabilities, hadamard: Hadamard
) -> None:
    """Transform 1, 2, 3, 4."""
    dtype = float_dtypes(capabilities)[0]
    x = np.array([1, 2, 3, 4], np.float32).astype(DTYPES[dtype])
    found = hadamard(x, had_k, dtype)
    wanted = np.array(expected, np.float32).astype(DTYPES[dtype])
    expect_equal("hadamard of 1, 2, 3, 4", no_signed_zeros(found), wanted)


def expect_bound(case: Transform, hadamard: Hadamard) -> None:
    """Hold a transform to its bound."""
    bounded = hadamard_bounded(case.x, case.had_k)
    expect_within("hadamard", hadamard(case.x, case.had_k, case.dtype), bounded)


def exact_transform(case: Transform) -> Array:
    """Return the transform of integers by its definition: signs by counting bits, sums exact.

    Where the matrix of signs would be large, the float64 evaluation is as exact.
    """
    if case.columns > 1024:
        value = hadamard_bounded(case.x, case.had_k).value
        return no_signed_zeros(round_float32(value.astype(np.float32), case.dtype))
    a = np.arange(case.columns)
    sylvester = 1 - 2 * (np.bitwise_count(a[:, np.newaxis] & a).astype(np.float64) % 2)
    rows = case.x.astype(np.float64).reshape(-1, case.order, case.columns)
    y = rows @ sylvester
    if case.had_k is not None:
        y = np.einsum("il,rlj->rij", case.had_k.astype(np.float64), y)
    y = y / math.sqrt(case.order * case.columns)
    return no_signed_zeros(round_float32(y.astype(np.float32), case.dtype).reshape(case.x.shape))


def no_signed_zeros(values: Array) -> Array:
    """Return the array with +0 for -0: the sign of a zero is not significant here."""
    return np.where(values == 0, np.zeros_like(values), values)
