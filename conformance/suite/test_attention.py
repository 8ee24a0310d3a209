"""bitnest-package-v1, chapter 12, and numerics, chapter 6: attention over the nested cache."""

import math
from dataclasses import replace

import numpy as np
from nibblespec.conformance.suite.attention_domains import (
    Attention,
    attentions,
    make_attention,
    operands,
    plane_of,
    two_keys,
)
from nibblespec.conformance.suite.block_domains import attention_blocks
from nibblespec.conformance.suite.compare import expect_same, expect_within
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.kv_data import Planes, make_planes
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.properties import for_all
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import float_dtypes
from nibblespec.reference.bounds import Bounded
from nibblespec.reference.bounds_attention import kv_attention_bounded
from nibblespec.spec.operations import Capabilities, KvAttention


@requirement("BN1-ATTENTION-OFFSET")
def test_golden_attention(capabilities: Capabilities, kv_attention: KvAttention) -> None:
    """The worked example of the text: weights 3/4 and 1/4, the result 6.25 and 4."""
    claimed((2,), capabilities.head_dims, "a head_dim of 2")
    dtype = float_dtypes(capabilities)[-1]
    case = replace(
        make_attention("flat", (1, 1, 1, 1, 1, 0), 2, "draft", (dtype, dtype), dtype, 0),
        softmax_scale=1.0,
        q=np.array([[[[1, 0]]]], np.float32).astype(DTYPES[dtype]),
        keys=plane_of(np.array([[7, 0], [0, 0]], np.int8), math.log(3) / 7),
        values=plane_of(np.array([[7, 4], [0, 0]], np.int8), 1.0),
        offset=np.ones((1, 2), DTYPES[dtype]),
    )
    found = kv_attention(*operands(case), dtype)
    error = kv_attention_bounded(*operands(case)).error
    # log(3)/7 is rounded to float32, which moves the score by at most 1.1 * 2**-24, a weight by a
    # quarter of that, and a value by 7 times that.
    bounded = Bounded(value=np.array([[[[6.25, 4]]]]), error=error + 2.0**-23)
    expect_within("kv_attention", found, bounded)


@requirement("NUM-ATTENTION-BOUND")
@for_all(attentions())
def test_results_are_inside_their_bound(case: Attention, kv_attention: KvAttention) -> None:
    """Every head_dim, both planes, one query and several, sharp and flat weights."""
    expect_bound(case, kv_attention)


@requirement("NUM-ATTENTION-BOUND")
@for_all(attention_blocks)
def test_calls_of_every_size(case: Attention, kv_attention: KvAttention) -> None:
    """Queries, keys and sequences on both sides of where blocks and tuned ranges end."""
    expect_bound(case, kv_attention)


@requirement("NUM-ATTENTION-EXP")
@for_all(two_keys)
def test_exponentials_are_as_good_as_float32(case: Attention, kv_attention: KvAttention) -> None:
    """Two keys show one weight: exp(-a) / (1 + exp(-a))."""
    expect_bound(case, kv_attention)


@requirement("BN1-ATTENTION-CAUSAL")
@for_all(attentions("ordinary", "flat", offsets=(False,), least_behind=2))
def test_a_query_sees_the_keys_up_to_its_position(
    case: Attention, kv_attention: KvAttention
) -> None:
    """Neither one key more nor one less: all weigh about the same."""
    expect_bound(case, kv_attention)


@requirement("BN1-ATTENTION-CAUSAL")
@for_all(attentions("ordinary", "sharp", least_behind=3))
def test_what_lies_behind_has_no_effect(case: Attention, kv_attention: KvAttention) -> None:
    """Extreme entries beyond the last query's position change no bit."""
    seen = case.position + case.queries
    plain = kv_attention(*operands(case), case.dtype)
    spoilt = replace(case, keys=spoil(case.keys, seen), values=spoil(case.values, seen))
    found = kv_attention(*operands(spoilt), case.dtype)
    expect_same("kv_attention", found, plain, "with other entries behind")


@requirement("BN1-ATTENTION-HEADS")
@for_all(attentions("ordinary", "sharp", ratio=3))
def test_query_heads_share_neighbouring_heads(case: Attention, kv_attention: KvAttention) -> None:
    """Query heads 0, 1, 2 read head 0: not head h mod Hkv."""
    expect_bound(case, kv_attention)


@requirement("BN1-ATTENTION-OFFSET")
@for_all(attentions("shifted values", "ordinary", offsets=(True,), ratio=2))
def test_the_offset_of_the_values_comes_back(case: Attention, kv_attention: KvAttention) -> None:
    """Once, after the weighted sum, that of the head that is read, before the one rounding."""
    expect_bound(case, kv_attention)


@requirement("BN1-ATTENTION-PLANE")
@for_all(attentions("ordinary", "sharp", offsets=(False,)))
def test_keys_and_values_are_those_of_the_plane(case: Attention, kv_attention: KvAttention) -> None:
    """Residuals of keys and of values count for the target, and only for it."""
    expect_bound(case, kv_attention)


@requirement("BN1-ATTENTION-WIDEN")
@for_all(attentions("sharp", "shifted values"))
def test_nothing_inside_is_rounded_to_16_bits(case: Attention, kv_attention: KvAttention) -> None:
    """Large scores and large values, of which 16 bits lose what the bound sees."""
    expect_bound(case, kv_attention)


def expect_bound(case: Attention, kv_attention: KvAttention) -> None:
    """Hold a call to its bound."""
    found = kv_attention(*operands(case), case.dtype)
    expect_within(f"kv_attention, {case.plane}", found, kv_attention_bounded(*operands(case)))


def spoil(planes: Planes, first: int) -> Planes:
    """Replace what the cache holds from position `first` on by its largest numbers."""
    other = make_planes(planes.shape, planes.seed + 7)
    hi, lo, scale = planes.hi.copy(), planes.lo.copy(), planes.scale.copy()
    hi[..., first:, :], lo[..., first:, :] = other.hi[..., first:, :], other.lo[..., first:, :]
    scale[..., first:] = 1e6
    return replace(planes, hi=hi, lo=lo, scale=scale)
