"""Reconstruction and linear layer of the reference, against the formulas one code at a time."""

from typing import Any

import numpy as np
import pytest
from nibblespec.reference.dashq import dashq_linear, dashq_reconstruct
from nibblespec.reference.product import dense_product
from nibblespec.reference.rounding import (
    DTYPES,
    FLOAT_DTYPES,
    SCALE_ZERO_DTYPES,
    Array,
    round_float32,
)
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import DashqRounding, FloatDtype, LinearWeightRounding

from tests.dashq_modules import Packed, describe, packed, random_packed

EVALUATIONS: tuple[DashqRounding, ...] = ("fused", "stepwise", "bf16-params")


def reconstruct(
    example: Packed, dtype: FloatDtype = "float32", evaluation: DashqRounding = "fused"
) -> Array:
    return dashq_reconstruct(
        example.words, example.scale, example.zero, example.module, dtype, evaluation
    )


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def one_weight(q: int, zero: float, scale: float, dtype: str, evaluation: str) -> float:
    """Evaluate one code with scalars: every rounding is a call."""

    def to(value: np.floating[Any] | float, name: str) -> float:
        return float(round_float32(np.array([value], np.float32), name)[0])

    if evaluation == "stepwise":
        difference = to(np.float32(q) - np.float32(to(zero, dtype)), dtype)
        return to(np.float32(difference) * np.float32(to(scale, dtype)), dtype)
    if evaluation == "bf16-params":
        zero, scale = to(zero, "bfloat16"), to(scale, "bfloat16")
    return to((np.float32(q) - np.float32(zero)) * np.float32(scale), dtype)


@pytest.mark.parametrize("nbits", range(1, 9))
@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_every_code_gets_the_parameters_of_its_group(nbits: int, evaluation: DashqRounding) -> None:
    module = describe(rows=3, columns=21, nbits=nbits, group_size=7)
    example = random_packed(module)
    weight = reconstruct(example, "bfloat16", evaluation)
    for n in range(3):
        for k in range(21):
            group = n * 3 + k // 7
            zero, scale = float(example.zero[group, 0]), float(example.scale[group, 0])
            code = int(example.codes[n, k])
            assert float(weight[n, k]) == one_weight(code, zero, scale, "bfloat16", evaluation)


@pytest.mark.parametrize("parameter_dtype", SCALE_ZERO_DTYPES)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_every_parameter_dtype_reconstructs_to_every_output_dtype(
    parameter_dtype: str, dtype: FloatDtype, evaluation: DashqRounding
) -> None:
    module = describe(rows=2, columns=8, scale_zero_dtype=parameter_dtype, group_size=4)
    example = random_packed(module, seed=3)
    weight = reconstruct(example, dtype, evaluation)
    assert weight.dtype == DTYPES[dtype]
    zero, scale = float(example.zero[3, 0]), float(example.scale[3, 0])
    expected = [one_weight(int(q), zero, scale, dtype, evaluation) for q in example.codes[1, 4:]]
    assert weight[1, 4:].astype(np.float64).tolist() == expected


@pytest.mark.parametrize("zero", [0.0, -7.25, 300.5, 0.5])
def test_the_zero_point_is_used_as_stored(zero: float) -> None:
    module = describe(rows=1, columns=16, group_size=16)
    codes = np.arange(16, dtype=np.uint8).reshape(1, 16)
    parameters = np.ones((1, 1), np.float16), np.full((1, 1), zero, np.float16)
    weight = reconstruct(packed(codes, *parameters, module))
    assert weight.tolist() == [[q - zero for q in range(16)]]


def test_a_width_of_one_group_of_one_column() -> None:
    module = describe(rows=3, columns=1, group_size=1)
    weight = reconstruct(random_packed(module))
    assert weight.shape == (3, 1)


def test_padding_is_cropped_and_never_matters() -> None:
    module = describe(rows=3, columns=10, group_size=4, quant_columns=16)
    example = random_packed(module)
    codes, scale, zero = example.codes.copy(), example.scale.copy(), example.zero.copy()
    codes[:, 10:] = 15 - codes[:, 10:]
    scale[3::4], zero[3::4] = 9.0, -4.0  # the last group of a row is padding alone
    changed = packed(codes, scale, zero, module)
    assert reconstruct(example).shape == (3, 10)
    assert same_bits(reconstruct(example), reconstruct(changed))


def test_a_product_that_vanishes_keeps_its_sign() -> None:
    module = describe(rows=1, columns=4, group_size=4)
    codes = np.array([[0, 1, 2, 3]], np.uint8)
    parameters = np.zeros((1, 1), np.float16), np.full((1, 1), 2, np.float16)
    weight = reconstruct(packed(codes, *parameters, module))
    assert np.signbit(weight).tolist() == [[True, True, False, False]]


def test_stepwise_overflow_of_a_parameter_gives_nan_without_a_warning() -> None:
    module = describe(rows=1, columns=2, group_size=2, scale_zero_dtype="float32")
    codes = np.array([[0, 1]], np.uint8)
    scale, zero = np.full((1, 1), 1e6, np.float32), np.zeros((1, 1), np.float32)
    weight = reconstruct(packed(codes, scale, zero, module), "float16", "stepwise")
    assert np.isnan(weight[0, 0])
    assert np.isposinf(weight[0, 1])


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_doubling_a_scale_doubles_its_group_exactly(evaluation: DashqRounding) -> None:
    example = random_packed(describe(rows=2, columns=16, group_size=8))
    scale = example.scale.copy()
    scale[1] *= 2
    doubled = packed(example.codes, scale, example.zero, example.module)
    expected = reconstruct(example, "bfloat16", evaluation).astype(np.float64)
    expected[0, 8:] *= 2
    assert reconstruct(doubled, "bfloat16", evaluation).astype(np.float64).tolist() == (
        expected.tolist()
    )


def linear(
    x: Array,
    example: Packed,
    bias: Array | None = None,
    evaluation: DashqRounding = "fused",
    weight_rounding: LinearWeightRounding = "rounded",
) -> Array:
    return dashq_linear(
        x,
        example.words,
        example.scale,
        example.zero,
        bias,
        example.module,
        evaluation,
        weight_rounding,
    )


def random_input(module: Module, rows: int, seed: int = 1) -> Array:
    x = np.random.default_rng(seed).standard_normal((rows, module.in_features), np.float32)
    return x.astype(DTYPES[module.linear_dtype])


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_linear_multiplies_by_the_reconstructed_weight_and_adds_the_bias(dtype: FloatDtype) -> None:
    module = describe(rows=5, columns=16, linear_dtype=dtype)
    example = random_packed(module)
    x = random_input(module, 3)
    bias = random_input(describe(1, 5, group_size=1, linear_dtype=dtype), 1)[0]
    weight = reconstruct(example, dtype).astype(np.float64)
    expected = np.zeros((3, 5))
    for k in range(16):  # in the order of columns, so that float64 rounds alike
        expected += np.outer(x[:, k].astype(np.float64), weight[:, k])
    expected += bias.astype(np.float64)
    y = linear(x, example, bias)
    assert y.dtype == DTYPES[dtype]
    if dtype == "float16":
        assert same_bits(y, expected.astype(np.float16))
    else:
        assert np.allclose(y.astype(np.float64), expected, rtol=2**-8)


def test_the_bias_is_added_before_the_one_rounding() -> None:
    module = describe(rows=1, columns=2, group_size=2)
    codes = np.array([[1, 1]], np.uint8)
    one, zero = np.ones((1, 1), np.float16), np.zeros((1, 1), np.float16)
    example = packed(codes, one, zero, module)
    x = np.array([[256, 1]], DTYPES["bfloat16"])  # the sum 257 rounds to 256 in bfloat16
    bias = np.array([1], DTYPES["bfloat16"])
    assert float(linear(x, example)[0, 0]) == 256
    assert float(linear(x, example, bias)[0, 0]) == 258


def test_unrounded_weights_enter_the_product_in_float32() -> None:
    module = describe(rows=1, columns=1, group_size=1)
    codes, one = np.array([[1]], np.uint8), np.ones((1, 1), np.float16)
    zero = np.full((1, 1), -(2.0**-9), np.float16)  # the weight is 1 + 2⁻⁹
    example = packed(codes, one, zero, module)
    x, bias = np.array([[64]], DTYPES["bfloat16"]), np.array([-64], DTYPES["bfloat16"])
    assert float(linear(x, example, bias)[0, 0]) == 0
    assert float(linear(x, example, bias, weight_rounding="unrounded")[0, 0]) == 0.125
    assert float(linear(x, example, bias, "stepwise", "unrounded")[0, 0]) == 0


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_row_does_not_depend_on_the_batch(dtype: FloatDtype) -> None:
    module = describe(rows=7, columns=64, linear_dtype=dtype)
    example = random_packed(module)
    x = random_input(module, 9)
    together = linear(x, example)
    for m in range(9):
        assert same_bits(linear(x[m : m + 1].copy(), example), together[m : m + 1])


def test_no_rows_give_no_rows() -> None:
    module = describe(rows=3, columns=8)
    assert linear(random_input(module, 0), random_packed(module)).shape == (0, 3)


def test_dense_product_starts_at_zero_and_follows_the_columns() -> None:
    x = np.array([[1.0, 2.0**60, -(2.0**60)]], np.float32)
    ones = np.ones((1, 3), np.float32)
    assert dense_product(x, ones, None, "float32").tolist() == [[0.0]]
    assert dense_product(x[:, ::-1], ones, None, "float32").tolist() == [[1.0]]


def test_inputs_may_be_read_only_and_results_are_fresh() -> None:
    example = random_packed(describe(rows=2, columns=8))
    for array in (example.words, example.scale, example.zero):
        array.flags.writeable = False
    weight = reconstruct(example)
    assert weight.flags.owndata
    assert weight.flags.writeable


GOOD = random_packed(describe(rows=4, columns=16, group_size=8))
X = random_input(GOOD.module, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nbits": 9}, "module.nbits: expected 1 … 8, found 9"),
        ({"group_size": 0}, "module.group_size: expected at least 1, found 0"),
        ({"group_size": 5}, "module.group_size: expected a divisor of quant_in_features = 16"),
        ({"out_features": 0}, "module.out_features: expected at least 1"),
        ({"quant_in_features": 8}, "module.quant_in_features: expected at least 16, found 8"),
        ({"num_groups": 2}, "module.num_groups: expected 8 … 8, found 2"),
        ({"scale_zero_dtype": "fp16"}, "module.scale_zero_dtype: expected one of float16"),
        ({"linear_dtype": "float8_e5m2"}, "module.linear_dtype: expected one of float16"),
    ],
)
def test_a_module_that_contradicts_itself_is_refused(
    changes: dict[str, object], message: str
) -> None:
    module = describe(4, 16, group_size=8).model_copy(update=changes)
    with pytest.raises(ValueError, match=message):
        dashq_reconstruct(GOOD.words, GOOD.scale, GOOD.zero, module, "float32")
    with pytest.raises(ValueError, match=message):
        dashq_linear(X, GOOD.words, GOOD.scale, GOOD.zero, None, module)


def test_something_else_than_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match="module: expected a dashq Module, found dict"):
        dashq_reconstruct(GOOD.words, GOOD.scale, GOOD.zero, {}, "float32")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("name", ["scale", "zero"])
@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.ones((8, 1), np.float32), TypeError, "expected dtype float16, found float32"),
        (np.ones((8, 1), DTYPES["bfloat16"]), TypeError, "expected dtype float16, found bfloat16"),
        (np.ones(8, np.float16), ValueError, r"expected shape \[8, 1\], found \[8\]"),
        (np.ones((1, 8), np.float16), ValueError, r"expected shape \[8, 1\], found \[1, 8\]"),
        (np.ones((0, 1), np.float16), ValueError, r"expected shape \[8, 1\], found \[0, 1\]"),
        (
            np.full((8, 1), np.nan, np.float16),
            ValueError,
            r"finite elements, found nan at \[0, 0\]",
        ),
        (np.full((8, 1), np.inf, np.float16), ValueError, "expected finite elements, found inf"),
    ],
)
def test_wrong_parameters_are_refused(
    name: str, array: Array, error: type[Exception], message: str
) -> None:
    scale = array if name == "scale" else GOOD.scale
    zero = array if name == "zero" else GOOD.zero
    with pytest.raises(error, match=f"{name}: .*{message}"):
        dashq_reconstruct(GOOD.words, scale, zero, GOOD.module, "float32")


def test_words_of_another_count_are_refused() -> None:
    with pytest.raises(ValueError, match=r"words: expected shape \[8\], found \[7\]"):
        dashq_reconstruct(GOOD.words[:-1], GOOD.scale, GOOD.zero, GOOD.module, "float32")


def test_names_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="dtype: expected one of float16, bfloat16, float32"):
        reconstruct(GOOD, "float8_e5m2")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match="dtype: expected a string"):
        reconstruct(GOOD, np.float32)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="evaluation: expected one of fused, stepwise"):
        reconstruct(GOOD, "float16", "eager")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="weight_rounding: expected one of rounded, unrounded"):
        linear(X, GOOD, weight_rounding="maybe")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.ones((2, 16), np.float32), TypeError, "x: expected dtype bfloat16, found float32"),
        (np.ones(16, DTYPES["bfloat16"]), ValueError, r"x: expected shape \[M, 16\], found \[16\]"),
        (np.ones((2, 8), DTYPES["bfloat16"]), ValueError, r"x: expected shape \[M, 16\]"),
        (np.full((1, 16), np.nan, DTYPES["bfloat16"]), ValueError, "x: expected finite elements"),
    ],
)
def test_a_wrong_input_of_the_layer_is_refused(
    x: Array, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        linear(x, GOOD)


@pytest.mark.parametrize(
    ("bias", "error", "message"),
    [
        (np.ones(4, np.float32), TypeError, "bias: expected dtype bfloat16, found float32"),
        (np.ones((4, 1), DTYPES["bfloat16"]), ValueError, r"bias: expected shape \[4\]"),
        (np.ones(3, DTYPES["bfloat16"]), ValueError, r"bias: expected shape \[4\], found \[3\]"),
        (np.full(4, np.inf, DTYPES["bfloat16"]), ValueError, "bias: expected finite elements"),
    ],
)
def test_a_wrong_bias_is_refused(bias: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linear(X, GOOD, bias)
