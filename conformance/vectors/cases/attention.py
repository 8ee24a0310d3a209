"""Cases of kv_attention."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from nibblespec.conformance.vectors.case import Case, Tensor, between
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, PLANES, SHORT
from nibblespec.conformance.vectors.cases.kv import HEAD_DIMS
from nibblespec.conformance.vectors.cases.planes import any_codes
from nibblespec.conformance.vectors.streams import Float64, floats, grid
from nibblespec.reference.bounds_attention import kv_attention_bounded
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import round_float64
from nibblespec.spec.operations import Bytes, Float32, FloatDtype, Nibbles, Plane

OPERATION = "kv_attention"
BASE = ("NUM-ATTENTION-BOUND", "BN1-ATTENTION-PLANE")
WIDE = (*BASE, "BN1-ATTENTION-WIDEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One half of a cache: planes [B, Hkv, L, D/2] and scales [B, Hkv, L]."""

    hi: Bytes
    lo: Bytes
    scale: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call before plane and dtype are chosen; q [B, Hq, M, D] and offset are float64."""

    name: str
    shows: str
    requirements: tuple[str, ...]
    q: Float64
    keys: Cache
    values: Cache
    offset: Float64 | None
    position: int
    softmax_scale: float


def cases() -> Iterator[Case]:
    """Yield calls over caches of every head_dim, and those that show one requirement each."""
    for place, head_dim in enumerate(HEAD_DIMS):
        call = _any_call(f"d{head_dim}", (1, 4, 2, head_dim), 2, 7, position=3)
        shows = "four query heads on two heads, cache longer than what is seen"
        requirements = ("BN1-ATTENTION-HEADS", "BN1-ATTENTION-CAUSAL", *BASE)
        call = replace(call, shows=shows, requirements=requirements)
        if place % 2:
            call = replace(call, offset=None)
        else:
            call = replace(call, requirements=("BN1-ATTENTION-OFFSET", *requirements))
        turn = place + place // 3
        for plane in PLANES:
            yield _case(call, plane, DTYPES[turn % 3], DTYPES[(turn + 1) % 3])
    for call in _calls():
        for dtype in DTYPES:
            for plane in PLANES:
                yield _case(call, plane, dtype, dtype)


def _calls() -> Iterator[Call]:
    call = _any_call("prefill", (1, 2, 5, 8), 1, 5, position=0)
    yield replace(
        call,
        shows="five queries from position 0 on, each with one key more",
        requirements=("BN1-ATTENTION-CAUSAL", *BASE),
    )
    call = _any_call("decode-l70", (2, 4, 1, 16), 4, 70, position=69)
    yield replace(
        call,
        offset=None,
        shows="a batch of two, one query each over 70 positions, as many query heads as heads",
        requirements=("BN1-ATTENTION-HEADS", *BASE),
    )
    call = _any_call("large-offset", (1, 3, 2, 8), 1, 6, position=2)
    assert call.offset is not None
    yield replace(
        call,
        offset=call.offset * 256,
        shows="an offset of the values that dominates",
        requirements=("BN1-ATTENTION-OFFSET", *WIDE),
    )
    call = _any_call("peaked", (1, 2, 2, 16), 1, 9, position=7)
    yield replace(
        call,
        softmax_scale=8.0,
        shows="scores in the tens: one key has nearly all the weight",
        requirements=WIDE,
    )
    yield _exponentials()
    yield _example()


def _exponentials() -> Call:
    """Return two keys, of which one has score 0 and value 0 and the other value 1."""
    codes = np.zeros((1, 1, 2, 2), np.int8)
    codes[0, 0, 0, 0] = 4
    hi, lo = _planes(codes, np.zeros_like(codes))
    keys = Cache(hi=hi, lo=lo, scale=np.full((1, 1, 2), 0.25, np.float32))
    q = np.zeros((1, 24, 1, 2))
    q[0, :, 0, 0] = -np.arange(24) * 0.75
    return Call(
        name="exponentials",
        shows="results exp(a) / (1 + exp(a)) for a from 0 to −17.25",
        requirements=("NUM-ATTENTION-EXP", *WIDE),
        q=q,
        keys=keys,
        values=keys,
        offset=None,
        position=1,
        softmax_scale=1.0,
    )


def _example() -> Call:
    """Return the example of bitnest-package-v1, chapter 12."""
    key_codes = np.array([[[[7, 0], [0, 0]]]], np.int8)
    value_codes = np.array([[[[7, 4], [0, 0]]]], np.int8)
    key_hi, lo = _planes(key_codes, np.zeros_like(key_codes))
    value_hi, _ = _planes(value_codes, np.zeros_like(value_codes))
    # ln 3 / 7, rounded to float32
    step = np.float32(0.15694461)
    return Call(
        name="example",
        shows="the example of bitnest-package-v1, chapter 12: about 6.25, 4",
        requirements=("BN1-ATTENTION-OFFSET", *BASE),
        q=np.array([[[[1.0, 0]]]]),
        keys=Cache(hi=key_hi, lo=lo, scale=np.full((1, 1, 2), step, np.float32)),
        values=Cache(hi=value_hi, lo=lo, scale=np.ones((1, 1, 2), np.float32)),
        offset=np.ones((1, 2)),
        position=1,
        softmax_scale=1.0,
    )


def _any_call(
    name: str, shape: tuple[int, int, int, int], heads: int, length: int, position: int
) -> Call:
    """Return any queries [B, Hq, M, D] over any cache of `heads` heads and `length` positions."""
    stem = f"{OPERATION}/{name}"
    batch, _, _, head_dim = shape
    return Call(
        name=name,
        shows="",
        requirements=(),
        q=floats(f"{stem} q", shape, -3, 0),
        keys=_any_cache(f"{stem} keys", (batch, heads, length, head_dim)),
        values=_any_cache(f"{stem} values", (batch, heads, length, head_dim)),
        offset=grid(f"{stem} offset", (heads, head_dim), -500, 500, -8),
        position=position,
        softmax_scale=0.125,
    )


def _any_cache(name: str, shape: tuple[int, int, int, int]) -> Cache:
    hi, lo = _planes(*any_codes(name, shape))
    scale = grid(f"{name} scale", shape[:3], 2**21, 2**23, -25)
    return Cache(hi=hi, lo=lo, scale=round_float64(scale, "float32"))


def _planes(q4: Nibbles, qr: Nibbles) -> tuple[Bytes, Bytes]:
    """Pack codes [B, H, L, D] along the last axis."""
    hi, lo = pack_planes(*(codes.reshape(-1, codes.shape[-1]) for codes in (q4, qr)))
    return hi.reshape(*q4.shape[:-1], -1), lo.reshape(*q4.shape[:-1], -1)


def _case(call: Call, plane: Plane, dtype: FloatDtype, input_dtype: FloatDtype) -> Case:
    """Make a case of a call; queries and offset are rounded to `input_dtype`."""
    stem, short = f"{OPERATION}/{call.name}", SHORT[input_dtype]
    q = round_float64(call.q, input_dtype)
    offset = None if call.offset is None else round_float64(call.offset, input_dtype)
    keys, values = call.keys, call.values
    bounded = kv_attention_bounded(
        q,
        keys.hi,
        keys.lo,
        keys.scale,
        values.hi,
        values.lo,
        values.scale,
        offset,
        call.position,
        plane,
        call.softmax_scale,
    )

    def plane_lo(name: str, half: Cache) -> Tensor | None:
        return None if plane == "draft" else Tensor(f"{stem}/{name}_lo", half.lo)

    return Case(
        id=f"{stem}-{plane}-{SHORT[dtype]}",
        shows=call.shows,
        requirements=call.requirements,
        parameters={
            "position": call.position,
            "plane": plane,
            "softmax_scale": call.softmax_scale,
            "dtype": dtype,
        },
        inputs={
            "q": Tensor(f"{stem}/q.{short}", q),
            "k_hi": Tensor(f"{stem}/k_hi", keys.hi),
            "k_lo": plane_lo("k", keys),
            "k_scale": Tensor(f"{stem}/k_scale", keys.scale),
            "v_hi": Tensor(f"{stem}/v_hi", values.hi),
            "v_lo": plane_lo("v", values),
            "v_scale": Tensor(f"{stem}/v_scale", values.scale),
            "v_offset": None if offset is None else Tensor(f"{stem}/v_offset.{short}", offset),
        },
        outputs={"y": between(bounded, dtype)},
    )
