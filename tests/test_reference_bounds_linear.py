"""Bounds of dashq_linear: every honest computation is inside, one wrong code is outside."""

import numpy as np
import pytest
from nibblespec.reference.bounds import Bounded, outside
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.reference.dashq import dashq_linear, dashq_reconstruct
from nibblespec.reference.rounding import FLOAT_DTYPES, Array
from nibblespec.spec.operations import DashqRounding, FloatDtype, LinearWeightRounding

from tests.dashq_modules import Packed, describe, packed, random_packed
from tests.summation import HONEST, Dot, draw, in_order, product

EVALUATIONS: tuple[DashqRounding, ...] = ("fused", "stepwise", "bf16-params")
WEIGHT_ROUNDINGS: tuple[LinearWeightRounding, ...] = ("rounded", "unrounded")


def bounded(
    x: Array,
    example: Packed,
    bias: Array | None = None,
    evaluation: DashqRounding = "fused",
    weight_rounding: LinearWeightRounding = "rounded",
) -> Bounded:
    tensors = (example.words, example.scale, example.zero)
    return dashq_linear_bounded(x, *tensors, bias, example.module, evaluation, weight_rounding)


def linear(
    x: Array,
    example: Packed,
    bias: Array | None = None,
    evaluation: DashqRounding = "fused",
    weight_rounding: LinearWeightRounding = "rounded",
) -> Array:
    tensors = (example.words, example.scale, example.zero)
    return dashq_linear(x, *tensors, bias, example.module, evaluation, weight_rounding)


@pytest.mark.parametrize("weight_rounding", WEIGHT_ROUNDINGS)
@pytest.mark.parametrize("evaluation", EVALUATIONS)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("columns", [1, 33, 520])
def test_the_reference_is_inside_its_own_bound(
    columns: int,
    dtype: FloatDtype,
    evaluation: DashqRounding,
    weight_rounding: LinearWeightRounding,
) -> None:
    module = describe(9, columns, group_size=columns, linear_dtype=dtype)
    example = random_packed(module)
    x, bias = draw(3, columns, dtype=dtype, mean=3), draw(9, dtype=dtype)
    y = linear(x, example, bias, evaluation, weight_rounding)
    assert not outside(y, bounded(x, example, bias, evaluation, weight_rounding)).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("mean", [0.0, 30.0])
@pytest.mark.parametrize("dot", HONEST, ids=lambda dot: dot.__name__)
def test_every_order_of_summation_is_inside(dot: Dot, mean: float, dtype: FloatDtype) -> None:
    example = random_packed(describe(4, 130, group_size=13, linear_dtype=dtype))
    x = draw(3, 130, dtype=dtype, mean=mean)
    weight = dashq_reconstruct(example.words, example.scale, example.zero, example.module, dtype)
    assert not outside(product(x, weight, dot, dtype), bounded(x, example)).any()


def test_scaling_once_for_a_whole_group_is_inside_the_packed_bound() -> None:
    example = random_packed(describe(5, 96, group_size=32, linear_dtype="float32"))
    x = draw(3, 96, mean=2)
    q = example.codes.reshape(5, 3, 32).astype(np.float32)
    zero = example.zero.astype(np.float32).reshape(5, 3, 1)
    scale = example.scale.astype(np.float32).reshape(5, 3)
    y = np.zeros((3, 5), np.float32)
    for m in range(3):
        for n in range(5):
            for g in range(3):
                group = in_order(x[m, 32 * g : 32 * g + 32], q[n, g] - zero[n, g])
                y[m, n] += group * scale[n, g]
    assert not outside(y, bounded(x, example, weight_rounding="unrounded")).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("weight_rounding", WEIGHT_ROUNDINGS)
def test_any_one_wrong_code_is_outside(
    dtype: FloatDtype, weight_rounding: LinearWeightRounding
) -> None:
    example = random_packed(describe(2, 64, group_size=32, linear_dtype=dtype))
    x = draw(8, 64, dtype=dtype)
    bound = bounded(x, example, weight_rounding=weight_rounding)
    for n in range(2):
        for k in range(64):
            codes = example.codes.copy()
            codes[n, k] ^= 1
            wrong = packed(codes, example.scale, example.zero, example.module)
            y = linear(x, wrong, weight_rounding=weight_rounding)
            assert outside(y, bound)[:, n].any(), f"code ({n}, {k})"
            assert not outside(y, bound)[:, 1 - n].any()


@pytest.mark.parametrize("weight_rounding", WEIGHT_ROUNDINGS)
def test_one_wrong_code_is_outside_in_a_wide_layer_of_whole_numbers(
    weight_rounding: LinearWeightRounding,
) -> None:
    module = describe(1, 4096, group_size=64, linear_dtype="float32")
    codes = random_packed(module).codes
    scale, zero = np.full((64, 1), 0.25, np.float16), np.full((64, 1), 7.5, np.float16)
    x = np.random.default_rng(0).integers(-9, 10, (8, 4096)).astype(np.float32)
    example = packed(codes, scale, zero, module)
    bound = bounded(x, example, weight_rounding=weight_rounding)
    assert not outside(linear(x, example, weight_rounding=weight_rounding), bound).any()
    for k in range(0, 4096, 97):
        codes = example.codes.copy()
        codes[0, k] ^= 1
        y = linear(x, packed(codes, scale, zero, module), weight_rounding=weight_rounding)
        assert outside(y, bound).tolist() == (x[:, k : k + 1] != 0).tolist()


def test_rounded_weights_are_outside_the_packed_bound() -> None:
    example = random_packed(describe(6, 64, group_size=32))
    x = draw(4, 64, dtype="bfloat16")
    rounded, unrounded = (
        linear(x, example, weight_rounding=weight_rounding) for weight_rounding in WEIGHT_ROUNDINGS
    )
    assert outside(rounded, bounded(x, example, weight_rounding="unrounded")).any()
    assert outside(unrounded, bounded(x, example)).any()


def test_another_evaluation_is_outside() -> None:
    example = random_packed(describe(6, 64, group_size=32))
    x = draw(4, 64, dtype="bfloat16")
    for one in EVALUATIONS:
        for other in EVALUATIONS:
            conforms = not outside(
                linear(x, example, None, one), bounded(x, example, None, other)
            ).any()
            assert conforms == (one == other), f"{one} within the bound of {other}"


def test_a_bias_added_after_the_rounding_is_outside() -> None:
    example = random_packed(describe(64, 64, group_size=32))
    x, bias = draw(4, 64, dtype="bfloat16"), draw(64, dtype="bfloat16")
    late = linear(x, example) + bias
    assert outside(late, bounded(x, example, bias)).any()


def test_arguments_of_dashq_linear_are_checked() -> None:
    example = random_packed(describe(2, 8))
    x = draw(1, 8, dtype="bfloat16")
    with pytest.raises(ValueError, match="evaluation: expected one of"):
        bounded(x, example, None, "eager")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="weight_rounding: expected one of"):
        bounded(x, example, None, "fused", "maybe")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match="x: expected dtype bfloat16, found float32"):
        bounded(draw(1, 8), example)
