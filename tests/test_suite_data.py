"""The suite's data holds what it is there for: faults are met by construction, not by luck."""

import numpy as np
import pytest
from nibblespec.conformance.suite import exact
from nibblespec.conformance.suite.a8_data import make_a8
from nibblespec.conformance.suite.activation_data import make_activations
from nibblespec.conformance.suite.dashq_data import (
    edge_scales,
    edge_zeros,
    make_module,
    make_weight,
    pack,
    spare_bits,
)
from nibblespec.conformance.suite.dashq_rounding import make_rounding_weight
from nibblespec.conformance.suite.hadamard_domains import ORDERS, rotation, signs
from nibblespec.conformance.suite.kv_data import make_vectors
from nibblespec.conformance.suite.mirrored_data import make_mirrored_nested
from nibblespec.conformance.suite.nested_data import eight_bit, make_nested, make_tame_nested
from nibblespec.conformance.suite.nested_domains import layer_operands
from nibblespec.conformance.suite.packing_domains import make_codes
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.bounds import outside
from nibblespec.reference.bounds_nested import nested_linear_bounded
from nibblespec.reference.dashq import dashq_reconstruct
from nibblespec.reference.kv import kv_quantize
from nibblespec.reference.nested import nested_reconstruct
from nibblespec.reference.planes import unpack_nibbles
from nibblespec.reference.product import dense_product
from nibblespec.reference.rounding import round_float64
from nibblespec.spec.operations import FloatDtype

FLOAT16 = np.dtype(np.float16)
SEEDS = range(5)


@pytest.mark.parametrize("nbits", [1, 2, 4, 8])
def test_maximal_codes_set_bit_31_of_every_full_word(nbits: int) -> None:
    words = pack(make_codes(nbits, 64, "maximum", 0).codes, nbits)
    assert (words < 0).all()


@pytest.mark.parametrize("nbits", [3, 5, 6, 7])
def test_spare_bits_are_those_above_the_codes_and_behind_the_last(nbits: int) -> None:
    per_word = 32 // nbits
    full, tail = spare_bits(per_word + 1, nbits).view(np.uint32).tolist()
    assert full == 2**32 - 2 ** (nbits * per_word)
    assert tail == 2**32 - 2**nbits


def test_neighbouring_groups_differ_in_scale_and_zero_point() -> None:
    weight = make_weight(make_module(4, 7, 5, 8), "bfloat16", seed=1)
    for parameter in (weight.scale, weight.zero):
        assert (parameter[1:] != parameter[:-1]).all()


def test_scales_go_to_both_ends_of_their_dtype() -> None:
    scales = edge_scales(np.random.default_rng(0), np.arange(16), FLOAT16).astype(np.float64)
    assert 0 in scales
    assert 2.0**-24 in scales
    assert 65504 in scales


def test_zero_points_are_fractional_whole_and_beyond_the_codes() -> None:
    zeros = edge_zeros(np.random.default_rng(0), np.arange(28), 4, FLOAT16).astype(np.float64)
    assert 0 in zeros
    assert (zeros < -16).any()
    assert (zeros > 30).any()
    assert (zeros % 1 != 0).any()
    assert ((zeros % 1 == 0) & (zeros > 0) & (zeros < 16)).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("seed", SEEDS)
def test_ties_tell_half_to_even_from_half_away(dtype: FloatDtype, seed: int) -> None:
    weight = make_rounding_weight("ties", 4, 8, "float32", dtype, dtype, seed)
    zero, scale = weight.zero.astype(np.float64), weight.scale.astype(np.float64)
    value = (weight.codes - zero) * scale
    found = round_float64(value, dtype).astype(np.float64)
    ulp_up = round_float64(value * (1 + 2.0**-26), dtype).astype(np.float64)
    ulp_down = round_float64(value * (1 - 2.0**-26), dtype).astype(np.float64)
    ties = ulp_up != ulp_down
    assert (ties & (found == ulp_up) & (value > 0)).any()
    assert (ties & (found == ulp_down) & (value > 0)).any()
    assert (ties & (value < 0)).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_ties_tell_float32_from_float64(dtype: FloatDtype, seed: int) -> None:
    weight = make_rounding_weight("nearly ties", 4, 8, "float32", dtype, dtype, seed)
    codes, zero, scale = (
        array.astype(np.float64) for array in (weight.codes, weight.zero, weight.scale)
    )
    value = (codes - zero) * scale
    canonical = dashq_reconstruct(weight.words, weight.scale, weight.zero, weight.module, dtype)
    assert (round_float64(value, dtype) != canonical).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_just_beyond_ties_tell_one_rounding_from_two(seed: int) -> None:
    weight = make_rounding_weight("just beyond ties", 4, 8, "float32", "bfloat16", "bfloat16", seed)
    arguments = weight.words, weight.scale, weight.zero, weight.module
    once = dashq_reconstruct(*arguments, "bfloat16")
    twice = dashq_reconstruct(*arguments, "float16").astype(np.float32).astype(once.dtype)
    assert (once != twice).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_near_ties_tell_division_from_a_reciprocal(seed: int) -> None:
    case = make_a8("near ties", 3, 2, 128, "float32", seed, per_token=True)
    codes, scale = quantize_activations(case.x, -1)
    shortcut = np.rint(case.x * (np.float32(1) / scale)).astype(np.int8)
    assert (codes != shortcut).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("seed", SEEDS)
def test_ties_of_activations_are_exact_in_both_signs(dtype: FloatDtype, seed: int) -> None:
    case = make_a8("ties", 3, 2, 64, dtype, seed, per_token=False)
    codes, scale = quantize_activations(case.x, 64)
    quotients = case.x.astype(np.float64) / np.repeat(scale, 64, axis=1)
    ties = np.abs(quotients % 1) == 0.5
    assert (ties & (quotients > 0)).any()
    assert (ties & (quotients < 0)).any()
    assert (np.sign(quotients) * np.floor(np.abs(quotients) + 0.5) != codes).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_outliers_tell_w4a8_from_w4a16(seed: int) -> None:
    x = make_activations("outliers", 3, 128, "bfloat16", seed)
    weight = make_tame_nested(7, 2, 64, seed)
    w4a8 = nested_linear_bounded(
        *quantize_activations(x, -1), weight.hi, None, weight.scale, None, "draft"
    )
    exact_weight = nested_reconstruct(weight.hi, None, weight.scale, "draft", "float32")
    assert outside(dense_product(x, exact_weight, None, "bfloat16"), w4a8).any()


def test_nested_codes_reach_both_ends() -> None:
    weight = make_nested(7, 5, 8, seed=0)
    codes = eight_bit(weight)
    assert codes.min() == -128
    assert codes.max() == 119
    assert not ((weight.q4 == -8) & (weight.qr < 0)).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("seed", SEEDS)
def test_contraction_tells_two_roundings_from_a_fused_one(dtype: FloatDtype, seed: int) -> None:
    case = make_vectors("contraction", (2, 3, 64), dtype, None, seed)
    hi, lo, scale = kv_quantize(case.x, None)
    step = scale[..., np.newaxis]
    exact_rest = case.x.astype(np.float64) - unpack_nibbles(hi) * step.astype(np.float64)
    fused = exact_rest.astype(np.float32) / (step / np.float32(16))
    assert (np.clip(np.rint(fused), -8, 7) != unpack_nibbles(lo)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_ties_of_the_cache_are_ties_of_code_and_residual(seed: int) -> None:
    case = make_vectors("ties", (1, 4, 64), "bfloat16", None, seed)
    hi, _, scale = kv_quantize(case.x, None)
    quotient = case.x.astype(np.float64) / scale[..., np.newaxis]
    rest = 16 * (quotient - unpack_nibbles(hi))
    assert (np.abs(quotient % 1) == 0.5).any()
    assert (np.abs(rest % 1) == 0.5).any()


@pytest.mark.parametrize("order", ORDERS)
def test_matrices_are_hadamard_and_not_symmetric(order: int) -> None:
    for seed in SEEDS:
        matrix = signs(order, seed)
        assert (matrix @ matrix.T == order * np.eye(order)).all()
        assert (matrix != matrix.T).any()


def test_rotations_are_orthogonal_and_have_other_entries_than_signs() -> None:
    matrix = rotation(28, 0)
    assert np.allclose(matrix @ matrix.T, 28 * np.eye(28), atol=1e-4)
    assert (np.abs(np.abs(matrix) - 1) > 0.01).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_mirrored_sums_show_the_order_of_summation(seed: int) -> None:
    case = make_mirrored_nested(2, 3, 9, 8, "target", "bfloat16", seed)
    bounded = nested_linear_bounded(*layer_operands(case))
    assert np.abs(bounded.value).max() <= bounded.error.max()


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1 + 2.0**-8, "bfloat16", 1.0),
        (1 + 3 * 2.0**-8, "bfloat16", 1 + 2.0**-6),
        (65519.99, "float16", 65504.0),
        (65520.0, "float16", float("inf")),
        (2.0**-25, "float16", 0.0),
        (3 * 2.0**-25, "float16", 2.0**-23),
        (-(2.0**-150), "float32", -0.0),
    ],
)
def test_exact_rounding_is_ieee_s(value: float, dtype: str, expected: float) -> None:
    found = exact.rounded(value, dtype)
    assert np.float64(found).tobytes() == np.float64(expected).tobytes()
