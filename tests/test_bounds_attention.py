"""The bound of attention: it holds for blocks, splits and fast exponentials, and sees one code."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from nibblespec.reference.attention import kv_attention
from nibblespec.reference.bounds import outside
from nibblespec.reference.bounds_attention import kv_attention_bounded, ranks
from nibblespec.reference.kv import kv_dequantize
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, Float32, round_float32
from nibblespec.spec.operations import FloatDtype

from tests.kv_caches import Cache, cache

Exp = Callable[[Float32], Float32]
LOG2_E = np.float32(1.4426950408889634)


def accurate_exp(a: Float32) -> Float32:
    """Return exp(a), correctly rounded but for a few."""
    with np.errstate(under="ignore"):
        return np.exp(a.astype(np.float64)).astype(np.float32)


def fast_exp(a: Float32) -> Float32:
    """Return 2^(a·log₂e) off by 2⁻²² in alternating directions, zero below float32's normals."""
    with np.errstate(under="ignore"):
        power = np.exp2((a * LOG2_E).astype(np.float64))
    direction = np.where(a == 0, 0, np.where(np.arange(a.size).reshape(a.shape) % 2, 1, -1))
    return np.where(power < 2.0**-126, 0, power * (1 + direction * 2.0**-22)).astype(np.float32)


@dataclass(frozen=True)
class Part:
    """What a split of the cache hands over: running maximum, sum of weights, weighted values."""

    largest: Float32
    total: Float32
    values: Float32


def running(q: Float32, keys: Float32, values: Float32, scale: float, block: int, exp: Exp) -> Part:
    """Go through keys in blocks with a running maximum, all in float32."""
    part = Part(np.full(1, -np.inf, np.float32), np.zeros(1, np.float32), np.zeros_like(q))
    for start in range(0, len(keys), block):
        here = slice(start, start + block)
        products = keys[here] * q
        scores = np.add.accumulate(products, axis=1)[:, -1] * np.float32(scale)
        largest = np.maximum(part.largest, scores.max())
        rescale, weights = exp(part.largest - largest), exp(scores - largest)
        total = part.total * rescale + np.add.accumulate(weights)[-1]
        summed = np.add.accumulate(weights[:, np.newaxis] * values[here], axis=0)[-1]
        part = Part(largest, total, part.values * rescale + summed)
    return part


def by_maxima(parts: list[Part], exp: Exp) -> Float32:
    """Combine splits by their maxima."""
    largest = np.max([part.largest for part in parts])
    factors = [exp(part.largest - largest) for part in parts]
    total = sum(part.total * factor for part, factor in zip(parts, factors, strict=True))
    values = sum(part.values * factor for part, factor in zip(parts, factors, strict=True))
    return np.asarray(values / total)


def by_logarithms(parts: list[Part], exp: Exp) -> Float32:
    """Combine the results of splits, each divided by its sum, by the logarithms of the sums."""
    logarithms = np.array([part.largest + np.log(part.total) for part in parts], np.float32)
    factors = exp(logarithms - logarithms.max())
    results = [part.values / part.total for part in parts]
    values = sum(result * factor for result, factor in zip(results, factors, strict=True))
    return np.asarray(values / np.add.accumulate(factors)[-1])


def read(planes: tuple[Array, ...]) -> Float32:
    """Return what the target reads of the first head, float32 [L, D]."""
    hi, lo, scale = planes
    first: Float32 = kv_dequantize(hi, lo, scale, "target")[0, 0]
    return first


def evaluate(
    case: Cache, order: Array, block: int, splits: int, logarithms: bool, exp: Exp
) -> Float32:
    """Attend with the only query of a case in float32, keys taken in the given order."""
    keys, values = read(case.keys)[order], read(case.values)[order]
    scale = case.q.shape[3] ** -0.5
    parts = [
        running(case.q[0, 0, 0], keys[part], values[part], scale, block, exp)
        for part in np.array_split(np.arange(len(keys)), min(splits, len(keys)))
    ]
    combine = by_logarithms if logarithms else by_maxima
    return combine(parts, exp).reshape(case.q.shape)


def ascending(case: Cache) -> Array:
    """Return the order of keys in which the running maximum grows with every one."""
    order: Array = np.argsort(read(case.keys) @ case.q[0, 0, 0])
    return order


@pytest.mark.parametrize("exp", [accurate_exp, fast_exp])
@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize(("block", "splits"), [(1, 1), (1, 3), (16, 1), (16, 4), (1000, 1)])
@pytest.mark.parametrize("spread", [0.1, 1, 10])
def test_blocks_and_splits_in_the_worst_order_are_inside(
    spread: float, block: int, splits: int, logarithms: bool, exp: Exp
) -> None:
    for seed, length in enumerate((1, 2, 17, 200)):
        case = cache(seed, length, 64, spread=spread)
        bounded = kv_attention_bounded(**case.call())
        for order in (ascending(case), ascending(case)[::-1], np.arange(length)):
            y = evaluate(case, order, block, splits, logarithms, exp)
            assert not outside(y, bounded).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_the_reference_is_inside(dtype: FloatDtype) -> None:
    case = cache(1, 30, 16, queries=3, query_heads=4, heads=2, batch=2)
    offset = np.random.default_rng(2).normal(size=(2, 16)).astype(np.float16)
    y = kv_attention(**case.call(offset), dtype=dtype)
    bounded = kv_attention_bounded(**case.call(offset))
    assert bounded.value.shape == y.shape
    assert not outside(y, bounded).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_an_offset_added_in_float32_is_inside(dtype: FloatDtype) -> None:
    case = cache(3, 40, 64)
    offset = np.random.default_rng(4).normal(size=(1, 64)).astype(np.float16) * np.float16(50)
    y = evaluate(case, np.arange(40), 16, 1, False, fast_exp) + offset.astype(np.float32)
    assert not outside(round_float32(y, dtype), kv_attention_bounded(**case.call(offset))).any()


def changed(planes: tuple[Array, ...], plane: int, position: int) -> tuple[Array, ...]:
    """Return planes in which the code of column 0 at a position is another by one."""
    parts = [part.copy() for part in planes]
    byte = int(parts[plane][0, 0, position, 0])
    parts[plane][0, 0, position, 0] = byte - 1 if byte & 15 == 15 else byte + 1
    return tuple(parts)


@pytest.mark.parametrize("plane", [0, 1])
def test_one_code_of_a_value_off_by_one_is_outside(plane: int) -> None:
    case = cache(5, 64, 64)
    bounded = kv_attention_bounded(**case.call())
    for position in range(64):
        wrong = replace(case, values=changed(case.values, plane, position))
        y = kv_attention(**wrong.call(), dtype="float32")
        assert outside(y, bounded)[0, 0, 0, 0] or plane == 1
        assert outside(y, bounded).sum() <= 1


def test_most_residuals_of_values_off_by_one_are_outside() -> None:
    case = cache(5, 64, 64)
    bounded = kv_attention_bounded(**case.call())
    wrong = [replace(case, values=changed(case.values, 1, position)) for position in range(64)]
    results = [kv_attention(**one.call(), dtype="float32") for one in wrong]
    assert np.mean([outside(y, bounded).any() for y in results]) > 0.7


def test_one_code_of_a_key_off_by_one_is_outside() -> None:
    case = cache(6, 16, 64)
    bounded = kv_attention_bounded(**case.call())
    wrong = [replace(case, keys=changed(case.keys, 0, position)) for position in range(16)]
    results = [kv_attention(**one.call(), dtype="float32") for one in wrong]
    assert np.mean([outside(y, bounded).any() for y in results]) > 0.9


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_one_key_too_few_is_outside(dtype: FloatDtype) -> None:
    case = cache(7, 40, 64)
    y = kv_attention(**case.call(position=38), dtype=dtype)
    assert outside(y, kv_attention_bounded(**case.call())).any()


def test_weights_rounded_to_bfloat16_are_outside() -> None:
    def rounded_exp(a: Float32) -> Float32:
        return round_float32(accurate_exp(a), "bfloat16").astype(np.float32)

    case = cache(8, 40, 64)
    y = evaluate(case, np.arange(40), 1000, 1, False, rounded_exp)
    assert outside(y, kv_attention_bounded(**case.call())).mean() > 0.5


@pytest.mark.parametrize("difference", [0.5, 5, 20, 60])
def test_two_keys_show_the_error_of_the_exponential(difference: float) -> None:
    # Key 0 has the score 0 and the value 0; key 1 the score −difference and the value 1.
    eight, code = np.full((1, 1, 2, 1), 0x88, np.uint8), np.array([[[[0x88], [0x89]]]], np.uint8)
    planes = code, eight, np.ones((1, 1, 2), np.float32)
    q = np.array([[[[-difference, 0]]]], np.float32)
    case = Cache(q, planes, planes)
    arguments = {**case.call(), "softmax_scale": 1.0}
    bounded = kv_attention_bounded(**arguments)
    value, error = bounded.value[0, 0, 0, 0], bounded.error[0, 0, 0, 0]
    assert error / value < (50 + 25 * difference) * 2.0**-23
    exact = np.exp(-difference) / (1 + np.exp(-difference))
    assert abs(value / exact - 1) < 1e-12


def test_ranks_count_the_keys_that_may_be_larger() -> None:
    scores = np.array([1.0, 3.0, 2.0, 2.0, 0.0])
    assert ranks(scores, np.zeros(5)).tolist() == [3, 0, 2, 2, 4]
    assert ranks(scores, np.full(5, 0.6)).tolist() == [4, 2, 3, 3, 4]


def test_nothing_is_claimed_where_scores_may_overflow() -> None:
    case = cache(9, 4, 8)
    arguments = {**case.call(), "k_scale": np.full((1, 1, 4), 1e37, np.float32)}
    assert np.isinf(kv_attention_bounded(**arguments).error).all()


def test_nothing_is_claimed_where_scores_say_nothing() -> None:
    case = cache(10, 4, 8, spread=1e9)
    assert np.isinf(kv_attention_bounded(**case.call()).error).all()


def test_wrong_arguments_are_refused_as_in_the_operation() -> None:
    case = cache(11, 4, 8)
    with pytest.raises(ValueError, match="position: expected 0 … 3, found 4"):
        kv_attention_bounded(**case.call(position=4))
