"""Bounds of products: what they allow, and what they allow nowhere."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from nibblespec.reference.bounds import Bounded, gamma, interval, outside
from nibblespec.reference.bounds_linear import dense_bounded, nested_bounded, packed_bounded
from nibblespec.reference.product import dense_product
from nibblespec.reference.rounding import DTYPES, Array, Float32, Float64, round_float64
from nibblespec.spec.operations import FloatDtype

from tests.summation import HONEST, Dot, draw, in_order, product


def test_nan_is_outside() -> None:
    bound = Bounded(value=np.ones(2), error=np.ones(2))
    result = np.array([np.nan, 1], DTYPES["bfloat16"])
    assert outside(result, bound).tolist() == [True, False]


def test_the_interval_is_rounded_at_both_ends() -> None:
    bound = Bounded(value=np.array([1.0, 65519.0, 0.0]), error=np.array([2.0**-9, 1.0, 2.0**-30]))
    low, high = interval(bound, "float16")
    assert low.astype(float).tolist() == [1 - 2.0**-9, 65504, 0]
    assert high.astype(float).tolist() == [1 + 2.0**-9, np.inf, 0]


def test_gamma_counts_steps() -> None:
    assert gamma(0) == 0
    assert gamma(1) == 2.0**-23 / (1 - 2.0**-23)
    assert gamma(100) > 100 * 2.0**-23
    with pytest.raises(ValueError, match="steps: expected fewer than 8388608, found 8388608"):
        gamma(2**23)


def exact_product(x: Array, weight: Array) -> list[list[Fraction]]:
    rows, columns = x.astype(np.float64).tolist(), weight.astype(np.float64).tolist()
    return [
        [
            sum((Fraction(a) * Fraction(b) for a, b in zip(r, c, strict=True)), Fraction(0))
            for c in columns
        ]
        for r in rows
    ]


def test_the_float64_value_is_nearer_to_the_exact_one_than_its_share_of_the_error() -> None:
    x, weight = draw(4, 200, mean=5), draw(3, 200, seed=9)
    bound = dense_bounded(x, weight, None)
    magnitude = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)).T
    oracle_share = bound.error - gamma(202) * magnitude
    for m, row in enumerate(exact_product(x, weight)):
        for n, exact in enumerate(row):
            assert abs(Fraction(float(bound.value[m, n])) - exact) < Fraction(
                float(oracle_share[m, n])
            )


@pytest.mark.parametrize("dot", HONEST, ids=lambda dot: dot.__name__)
def test_every_order_of_summation_is_exact_on_whole_numbers(dot: Dot) -> None:
    rng = np.random.default_rng(1)
    x, weight = (rng.integers(-99, 100, (3, 1000)).astype(np.float32) for _ in range(2))
    bound = dense_bounded(x, weight, None)
    assert not bound.error.any()
    assert not outside(product(x, weight, dot, "float32"), bound).any()


@pytest.mark.parametrize(
    ("x", "weight", "bias", "is_exact"),
    [
        ([2.0**12, 1], [2.0**12, 0], None, True),
        ([2.0**12, 1], [2.0**12, 1], None, False),  # 2²⁴ + 1
        ([3.0, 1], [2.0**-100, 2.0**-100], None, True),
        ([2.0**-75, 1], [2.0**-75, 0], None, False),  # below the smallest subnormal
        ([1.0, 1], [1.0, 1], 2.0**-22, True),
        ([1.0, 1], [1.0, 1], 2.0**-23, False),
        ([0.0, 0], [1.0, 1], 0.1, True),
        ([0.0, 0], [np.inf, 1], None, False),
    ],
)
def test_the_error_is_zero_exactly_where_float32_holds_every_step(
    x: list[float], weight: list[float], bias: float | None, is_exact: bool
) -> None:
    operands = np.array([x], np.float32), np.array([weight], np.float32)
    added = None if bias is None else np.array([bias], np.float32)
    assert (dense_bounded(*operands, added).error[0, 0] == 0) == is_exact


@pytest.mark.parametrize(("exponent", "is_exact"), [(-49, True), (-50, False)])
def test_two_factors_that_underflow_before_the_third_are_no_exact_step(
    exponent: int, is_exact: bool
) -> None:
    x, scale = np.array([[2.0**-100]], np.float32), np.array([[2.0**20]], np.float32)
    zero = np.array([[2.0**exponent]], np.float32)
    bound = packed_bounded(x, np.zeros((1, 1), np.float32), zero, scale, None)
    assert (bound.error[0, 0] == 0) == is_exact


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sum_in_the_output_dtype_is_outside(dtype: FloatDtype) -> None:
    x, ones = np.ones((1, 4096), DTYPES[dtype]), np.ones((1, 4096), DTYPES[dtype])
    total = np.zeros((), DTYPES[dtype])
    for term in (x * ones)[0]:
        total = (total + term).astype(DTYPES[dtype])
    assert outside(total.reshape(1, 1), dense_bounded(x, ones, None)).all()


def test_a_truncated_output_is_outside() -> None:
    x, weight = draw(16, 8, dtype="bfloat16"), draw(16, 8, dtype="bfloat16", seed=3)
    exact = (x.astype(np.float64) @ weight.astype(np.float64).T).astype(np.float32)
    cut = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    share = outside(cut.astype(DTYPES["bfloat16"]), dense_bounded(x, weight, None)).mean()
    assert share > 0.4


@pytest.mark.parametrize("exponent", [-60, -70, -75])
def test_products_that_underflow_are_inside(exponent: int) -> None:
    x = draw(3, 50) * np.float32(2.0**exponent)
    weight = draw(4, 50, seed=8) * np.float32(2.0**exponent)
    y = product(x, weight, in_order, "float32")
    assert not outside(y, dense_bounded(x, weight, None)).any()


def test_flushing_subnormal_products_to_zero_is_outside() -> None:
    x, weight = np.full((1, 4), 2.0**-70, np.float32), np.full((1, 4), 2.0**-70, np.float32)
    assert outside(np.zeros((1, 1), np.float32), dense_bounded(x, weight, None)).all()


def test_an_underflow_before_a_large_factor_is_inside_the_packed_bound() -> None:
    x = np.array([[2.0**100]], np.float32)
    zero, scale = (np.array([[v * 2.0**-75]], np.float32) for v in (-3, 1))
    weight = np.float32(3 * 2.0**-75) * scale  # 3·2⁻¹⁵⁰ rounds to 2⁻¹⁴⁸
    bound = packed_bounded(x, np.zeros((1, 1), np.float32), zero, scale, None)
    assert not outside(x * weight, bound).any()
    assert outside(x * weight * np.float32(2), bound).all()


def test_an_overflow_of_the_output_is_demanded() -> None:
    x, weight = np.full((1, 2), 300, np.float16), np.full((1, 2), 300, np.float16)
    bound = dense_bounded(x, weight, None)
    assert not outside(np.full((1, 1), np.inf, np.float16), bound).any()
    assert outside(np.full((1, 1), 65504, np.float16), bound).all()


@pytest.mark.parametrize("result", [0.0, np.inf, np.nan])
def test_near_the_end_of_float32_any_result_conforms(result: float) -> None:
    x = np.array([[2.0**100, -(2.0**100)]], np.float32)
    weight = np.full((1, 2), 2.0**27, np.float32)
    assert not outside(np.full((1, 1), result, np.float32), dense_bounded(x, weight, None)).any()
    assert np.isinf(dense_bounded(x, weight, None).error).all()


def test_a_pair_of_factors_that_overflows_frees_the_packed_bound() -> None:
    x, scale = np.array([[2.0**120]], np.float32), np.array([[2.0**-100]], np.float32)
    q, zero = (np.array([[value]], np.float32) for value in (1, -(2.0**10)))
    bound = packed_bounded(x, q, zero, scale, None)
    assert np.isinf(bound.error).all()


def test_a_weight_that_overflowed_frees_its_column_only() -> None:
    x = np.array([[0.0, 1.0]], np.float32)
    weight = np.array([[np.inf, 1.0], [1.0, 1.0]], np.float32)
    bound = dense_bounded(x, weight, None)
    assert outside(np.full((1, 2), np.nan, np.float32), bound).tolist() == [[False, True]]


NESTED_ORDERS: dict[str, Callable[[Float32, Float32, Float32], Float32]] = {
    "dot·(sx·sw)": lambda dot, sx, sw: dot * (sx * sw),
    "(dot·sx)·sw": lambda dot, sx, sw: (dot * sx) * sw,
    "(dot·sw)·sx": lambda dot, sx, sw: (dot * sw) * sx,
}


def nested_case() -> tuple[Array, Float32, Float32, Float64]:
    rng = np.random.default_rng(4)
    dots = rng.integers(-(2**25), 2**25, (3, 4, 9))  # wider than float32 converts exactly
    sx = rng.uniform(0.001, 0.1, (3, 9)).astype(np.float32)
    sw = rng.uniform(0.001, 0.1, (4, 9)).astype(np.float32)
    return dots, sx, sw, rng.standard_normal(4)


@pytest.mark.parametrize("order", NESTED_ORDERS)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_order_of_the_nested_product_is_inside(order: str, reverse: bool) -> None:
    dots, sx, sw, bias = nested_case()
    total = np.zeros((3, 4), np.float32)
    for t in reversed(range(9)) if reverse else range(9):
        dot = dots[:, :, t].astype(np.float32)
        total += NESTED_ORDERS[order](dot, sx[:, t, np.newaxis], sw[np.newaxis, :, t])
    y = total + bias.astype(np.float16).astype(np.float32)
    assert not outside(y, nested_bounded(dots, sx, sw, bias.astype(np.float16))).any()


def test_one_wrong_integer_product_is_outside_the_nested_bound() -> None:
    dots, sx, sw, _ = nested_case()
    dots //= 2**11  # sums of a group of 128 products of codes
    bound = nested_bounded(dots, sx, sw, None)
    for t in range(9):
        wrong = dots.copy()
        wrong[:, :, t] += 1
        y = round_float64(
            np.einsum("mnt,mt,nt->mn", wrong, sx.astype(float), sw.astype(float)), "float32"
        )
        assert outside(y, bound).any()


def test_one_group_with_scales_of_one_shows_the_integer_product_itself() -> None:
    dots = np.array([[[2**21 - 1, 0]]])
    bound = nested_bounded(dots, np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), None)
    assert not outside(np.array([[2**21 - 1]], np.float32), bound).any()
    assert outside(np.array([[2**21]], np.float32), bound).all()


def test_operands_that_do_not_fit_each_other_are_refused() -> None:
    x, weight = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    wide, dots = np.ones((3, 5), np.float32), np.ones((2, 3, 4), np.int64)
    with pytest.raises(ValueError, match=r"weight: expected shape \[N, 4\], found \[3, 5\]"):
        dense_bounded(x, wide, None)
    with pytest.raises(ValueError, match=r"weight: expected shape \[N, 4\], found \[3, 5\]"):
        dense_product(x, wide, None, "float32")
    with pytest.raises(TypeError, match=r"bias: expected dtype float16 or .*, found int64"):
        dense_product(x, weight, np.ones(3, np.int64), "float32")
    with pytest.raises(ValueError, match=r"q: expected shape \[3, 4\], found \[3, 5\]"):
        packed_bounded(x, wide, weight, weight, None)
    with pytest.raises(TypeError, match="zero: expected dtype float32, found float64"):
        packed_bounded(x, weight, weight.astype(np.float64), weight, None)
    with pytest.raises(ValueError, match=r"sx: expected shape \[2, 4\], found \[3, 4\]"):
        nested_bounded(dots, weight, weight, None)
    with pytest.raises(ValueError, match=r"bias: expected shape \[3\], found \[2\]"):
        nested_bounded(dots, x, weight, np.ones(2, np.float16))
