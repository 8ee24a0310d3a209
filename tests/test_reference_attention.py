"""Attention of the reference over the nested cache, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nibblespec.reference.attention import kv_attention
from nibblespec.reference.kv import kv_quantize
from nibblespec.reference.planes import unpack_nibbles
from nibblespec.reference.rounding import DTYPES, FLOAT_DTYPES, Array, round_float64
from nibblespec.spec.operations import FloatDtype

from tests.kv_caches import Cache, cache
from tests.nested_layers import bits

HEAD_DIMS = [2, 64, 80, 96, 128, 192, 256]


def values_of(planes: tuple[Array, ...], plane: str) -> list[Any]:
    """Return codes times scales as nested lists of Python floats, [B, Hkv, L, D]."""
    hi, lo, scale = planes
    q4, qr = unpack_nibbles(hi).astype(int), unpack_nibbles(lo).astype(int)
    codes, divisor = (q4, 1) if plane == "draft" else (16 * q4 + qr, 16)
    exact: list[Any] = (codes * (scale.astype(float) / divisor)[..., np.newaxis]).tolist()
    return exact


def attend(case: Cache, batch: int, head: int, m: int, position: int, plane: str) -> list[float]:
    """Evaluate one query without the offset, with Python floats and correctly rounded sums."""
    shared = head // (case.q.shape[1] // case.keys[2].shape[1])
    keys = values_of(case.keys, plane)[batch][shared][: position + m + 1]
    values = values_of(case.values, plane)[batch][shared]
    query = case.q[batch, head, m].astype(float).tolist()
    scale = float(np.float32(len(query) ** -0.5))
    scores = [scale * math.fsum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    weights = [math.exp(score - max(scores)) for score in scores]
    total = math.fsum(weights)
    return [
        math.fsum(w * values[j][d] for j, w in enumerate(weights)) / total
        for d in range(len(query))
    ]


@pytest.mark.parametrize("plane", ["draft", "target"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_it_is_the_softmax_of_the_scores_over_the_values(head_dim: int, plane: str) -> None:
    case = cache(head_dim, 9, head_dim, queries=2, query_heads=4, heads=2, batch=2)
    y = kv_attention(**case.call(plane=plane), dtype="float32")
    assert y.dtype == np.float32
    assert y.shape == (2, 4, 2, head_dim)
    for batch, head, m in np.ndindex(2, 4, 2):
        expected = attend(case, batch, head, m, 7, plane)
        assert np.allclose(y[batch, head, m], expected, rtol=1e-7, atol=1e-9)


def test_one_key_gives_its_value() -> None:
    case = cache(1, 1, 16)
    y = kv_attention(**case.call(), dtype="float32")
    assert y[0, 0, 0].tolist() == np.float32(values_of(case.values, "target")[0][0][0]).tolist()


def test_equal_scores_give_the_mean() -> None:
    keys = kv_quantize(np.ones((1, 1, 4, 2), np.float32), None)
    values = kv_quantize(np.array([[[[7, 0], [7, 7], [0, 7], [7, 7]]]], np.float32), None)
    q = np.ones((1, 1, 1, 2), np.float32)
    y = kv_attention(**Cache(q, keys, values).call(), dtype="float32")
    assert y.tolist() == [[[[5.25, 5.25]]]]


@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_query_sees_the_keys_up_to_its_own_position(position: int) -> None:
    case = cache(2, 8, queries=3)
    y = kv_attention(**case.call(position=position), dtype="float32")
    for m in range(3):
        expected = attend(case, 0, 0, m, position, "target")
        assert np.allclose(y[0, 0, m], expected, rtol=1e-7)


def test_what_lies_beyond_the_position_does_not_matter() -> None:
    case = cache(3, 8, queries=2)
    keys, values = ([part.copy() for part in planes] for planes in (case.keys, case.values))
    for planes in (keys, values):
        planes[0][:, :, 6:], planes[1][:, :, 6:], planes[2][:, :, 6:] = 0xFF, 0xFF, 1e30
    changed = Cache(case.q, tuple(keys), tuple(values))
    before = kv_attention(**case.call(position=4), dtype="float32")
    assert bits(kv_attention(**changed.call(position=4), dtype="float32")) == bits(before)


@pytest.mark.parametrize(("query_heads", "heads"), [(1, 1), (4, 4), (4, 1), (6, 2), (7, 1)])
def test_a_query_head_reads_the_head_of_its_group(query_heads: int, heads: int) -> None:
    case = cache(4, 5, query_heads=query_heads, heads=heads)
    y = kv_attention(**case.call(), dtype="float32")
    for head in range(query_heads):
        assert np.allclose(y[0, head, 0], attend(case, 0, head, 0, 4, "target"), rtol=1e-7)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_the_offset_of_the_group_is_added_after_attention(dtype: FloatDtype) -> None:
    case = cache(5, 5, query_heads=4, heads=2)
    offset = np.array([[100] * 8, [-50] * 8]).astype(DTYPES[dtype])
    y = kv_attention(**case.call(offset=offset), dtype="float32")
    for head in range(4):
        expected = np.array(attend(case, 0, head, 0, 4, "target")) + (100 if head < 2 else -50)
        assert bits(y[0, head, 0]) == bits(round_float64(expected, "float32"))


def test_the_offset_is_added_before_the_rounding() -> None:
    ones, none = np.full((1, 1, 1, 1), 0x99, np.uint8), np.full((1, 1, 1, 1), 0x88, np.uint8)
    planes = ones, none, np.full((1, 1, 1), 1 + 2.0**-8, np.float32)
    case = Cache(np.ones((1, 1, 1, 2), np.float32), planes, planes)
    offset = np.full((1, 2), 2.0**-12, np.float16)
    y = kv_attention(**case.call(offset), dtype="bfloat16")
    assert (y == 1 + 2.0**-7).all()  # without the offset, a tie that goes to 1


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_narrow_queries_are_those_of_the_same_values_in_float32(dtype: FloatDtype) -> None:
    case = cache(6, 5)
    narrow = replace(case, q=case.q.astype(DTYPES[dtype]))
    wide = replace(case, q=narrow.q.astype(np.float32))
    y = kv_attention(**narrow.call(), dtype=dtype)
    assert bits(y) == bits(kv_attention(**wide.call(), dtype=dtype))


@pytest.mark.parametrize("lo", ["none", "zeros"])
def test_the_draft_does_not_look_at_lo(lo: str) -> None:
    case = cache(7, 5)
    other = None if lo == "none" else np.zeros_like(case.keys[1])
    own = case.call(plane="draft")
    y = kv_attention(**{**own, "k_lo": other, "v_lo": other}, dtype="float32")
    assert bits(y) == bits(kv_attention(**own, dtype="float32"))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_query_does_not_depend_on_the_others(dtype: FloatDtype) -> None:
    case = cache(8, 40, 64, queries=5, query_heads=4, heads=2, batch=2)
    together = kv_attention(**case.call(position=30), dtype=dtype)
    for m in range(5):
        alone = replace(case, q=np.ascontiguousarray(case.q[:, :, m : m + 1]))
        y = kv_attention(**alone.call(position=30 + m), dtype=dtype)
        assert bits(y) == bits(together[:, :, m : m + 1])


def test_a_batch_entry_does_not_depend_on_the_others() -> None:
    case = cache(9, 7, 16, batch=3)
    together = kv_attention(**case.call(), dtype="float32")
    for entry in range(3):
        one = slice(entry, entry + 1)
        keys, values = (tuple(p[one] for p in planes) for planes in (case.keys, case.values))
        alone = Cache(case.q[one], keys, values)
        assert bits(kv_attention(**alone.call(), dtype="float32")) == bits(together[one])


def test_large_scores_do_not_overflow() -> None:
    case = cache(10, 6, spread=1e4)
    y = kv_attention(**case.call(), dtype="float32")
    assert np.isfinite(y).all()


CASE = cache(11, 4, 8, queries=2, query_heads=4, heads=2)
CALL: dict[str, Any] = {**CASE.call(), "dtype": "float32"}
OFFSET = np.ones((2, 8), np.float16)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": CASE.q.astype(np.float64)}, TypeError, "q: expected dtype"),
        ({"q": CASE.q[0]}, ValueError, "q: expected shape"),
        ({"q": CASE.q[:, :, :0]}, ValueError, "q: expected no axis of size 0"),
        ({"q": CASE.q * np.nan}, ValueError, "q: expected finite elements"),
        ({"q": CASE.q[..., :7]}, ValueError, "divisor of head_dim = 7"),
        ({"q": CASE.q[..., :6]}, ValueError, r"k_hi: expected shape \[1, Hkv, L, 3\]"),
        ({"q": CASE.q[:, :3]}, ValueError, "Hkv: expected a divisor of Hq = 3, found 2"),
        ({"q": np.repeat(CASE.q, 2, axis=0)}, ValueError, "k_hi: expected shape"),
        ({"k_hi": CALL["k_hi"].view(np.int8)}, TypeError, "k_hi: expected dtype uint8"),
        ({"k_lo": None}, TypeError, "k_lo: expected a NumPy array"),
        ({"k_lo": CALL["k_lo"][:, :, :2]}, ValueError, "k_lo: expected shape"),
        ({"v_hi": CALL["v_hi"][:, :, :2]}, ValueError, "v_hi: expected shape"),
        ({"v_lo": None}, TypeError, "v_lo: expected a NumPy array"),
        ({"v_hi": CALL["v_hi"] * 0, "v_lo": CALL["v_lo"] * 0}, ValueError, "BN1-CODES-INT8"),
        ({"k_scale": CALL["k_scale"].astype(float)}, TypeError, "k_scale: expected dtype"),
        ({"k_scale": CALL["k_scale"][:, :1]}, ValueError, "k_scale: expected shape"),
        ({"v_scale": CALL["v_scale"] * np.inf}, ValueError, "v_scale: expected finite"),
        ({"v_offset": OFFSET.astype(float)}, TypeError, "v_offset: expected dtype"),
        ({"v_offset": np.ones((4, 8), np.float16)}, ValueError, "v_offset: expected shape"),
        ({"v_offset": OFFSET * np.inf}, ValueError, "v_offset: expected finite"),
        ({"position": 3}, ValueError, "position: expected 0 … 2, found 3"),
        ({"position": -1}, ValueError, "position: expected 0 … 2, found -1"),
        ({"position": 1.0}, TypeError, "position: expected an integer"),
        ({"position": True}, TypeError, "position: expected an integer"),
        ({"plane": "kv4"}, ValueError, "plane: expected one of draft, target"),
        ({"softmax_scale": 0.0}, ValueError, "softmax_scale: expected a positive finite"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale: expected a positive finite"),
        ({"softmax_scale": math.nan}, ValueError, "softmax_scale: expected a positive finite"),
        ({"softmax_scale": 1e39}, ValueError, "softmax_scale: expected a positive finite"),
        ({"softmax_scale": 10**400}, ValueError, "softmax_scale: expected a positive finite"),
        ({"softmax_scale": "1"}, TypeError, "softmax_scale: expected a number"),
        ({"softmax_scale": True}, TypeError, "softmax_scale: expected a number"),
        ({"dtype": "float64"}, ValueError, "dtype: expected one of"),
    ],
)
def test_it_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kv_attention(**{**CALL, **changes})
