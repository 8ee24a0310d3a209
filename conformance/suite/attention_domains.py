"""Domains of attention over the nested cache."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.kv_data import Planes, make_planes
from nibblespec.conformance.suite.nested_data import to_plane
from nibblespec.conformance.suite.nested_domains import PLANES
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import SEEDS, float_dtypes, head_dims
from nibblespec.spec.operations import (
    Array,
    Bytes,
    Capabilities,
    Float32,
    FloatDtype,
    Nibbles,
    Plane,
)

Operands = tuple[
    Array,
    Bytes,
    Bytes | None,
    Float32,
    Bytes,
    Bytes | None,
    Float32,
    Array | None,
    int,
    Plane,
    float,
]
"""The arguments of kv_attention, all but the dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A call of kv_attention. Its operands are made by `operands`."""

    kind: str
    batch: int
    heads: int
    """Of keys and values."""
    ratio: int
    """Query heads that share one of them."""
    queries: int
    position: int
    behind: int
    """Positions of the cache that no query sees."""
    head_dim: int
    plane: Plane
    dtype: FloatDtype
    seed: int
    softmax_scale: float
    q: Array = field(repr=False)
    keys: Planes = field(repr=False)
    values: Planes = field(repr=False)
    offset: Array | None = field(repr=False)


Counts = tuple[int, int, int, int, int, int]
"""batch, heads, ratio, queries, position, behind"""

COUNTS: tuple[Counts, ...] = (
    (1, 2, 3, 5, 11, 3),
    (2, 1, 1, 1, 0, 0),
    (1, 3, 2, 4, 0, 1),
    (1, 1, 4, 1, 32, 7),
    (1, 2, 1, 7, 60, 0),
    (2, 2, 2, 2, 5, 9),
)
"""Decoding one token, verifying several, a prompt from position 0; with and without more cache."""

KINDS = ("ordinary", "sharp", "flat", "shifted values", "large")


def make_attention(
    kind: str,
    counts: Counts,
    head_dim: int,
    plane: Plane,
    dtypes: tuple[FloatDtype, FloatDtype],
    offset: FloatDtype | None,
    seed: int,
) -> Attention:
    """Make a call whose queries are in the first and whose result is in the second dtype.

    `offset` is the dtype of the values' offset, None for no offset.

    Sharp: one key outweighs all others; flat: all keys weigh the same; shifted values: a mean
    much larger than the differences; large: scores whose exponentials overflow float32.
    """
    batch, heads, ratio, queries, position, behind = counts
    generator = np.random.default_rng(seed)
    length = position + queries + behind
    size = {"flat": 0.0, "sharp": 12.0, "large": 150.0}.get(kind, 1.0)
    q = size * generator.standard_normal((batch, heads * ratio, queries, head_dim))
    shift = 100.0 if kind == "shifted values" else 1.0
    offsets = shift * generator.uniform(0.5, 1, (heads, head_dim)).astype(np.float32)
    return Attention(
        kind=kind,
        batch=batch,
        heads=heads,
        ratio=ratio,
        queries=queries,
        position=position,
        behind=behind,
        head_dim=head_dim,
        plane=plane,
        dtype=dtypes[1],
        seed=seed,
        softmax_scale=head_dim**-0.5 * (1.0, 0.7, 1.6)[seed % 3],  # not always 1/√D
        q=q.astype(np.float32).astype(DTYPES[dtypes[0]]),
        keys=make_planes((batch, heads, length, head_dim), seed, tame=True),
        values=make_planes((batch, heads, length, head_dim), seed + 1, tame=True),
        offset=None if offset is None else offsets.astype(DTYPES[offset]),
    )


def attentions(
    *kinds: str, offsets: tuple[bool, ...] = (False, True), least_behind: int = 0, ratio: int = 0
) -> Callable[[Capabilities], Domain[Attention]]:
    """Draw calls of these kinds (all of KINDS where none is given).

    `least_behind` positions at least are beyond what any query sees; `ratio`, if not 0, is the
    number of query heads that share a head.
    """

    def domain(capabilities: Capabilities) -> Domain[Attention]:
        dtypes = float_dtypes(capabilities)
        dims = head_dims(capabilities)
        chosen = kinds or KINDS
        offset_dtypes: list[FloatDtype | None] = [None] if False in offsets else []
        offset_dtypes += dtypes if True in offsets else ()

        def case(
            kind: str,
            counts: Counts,
            dim: int,
            plane: Plane,
            pair: tuple[FloatDtype, FloatDtype],
            offset: FloatDtype | None,
            seed: int,
        ) -> Attention:
            batch, heads, shared, queries, position, behind = counts
            counts = (
                batch,
                max(heads, 2) if ratio else heads,
                ratio or shared,
                queries,
                position,
                max(behind, least_behind),
            )
            return make_attention(kind, counts, dim, plane, pair, offset, seed)

        always = tuple(
            case(
                kind,
                COUNTS[place % len(COUNTS)],
                dims[place % len(dims)],
                plane,
                (dtypes[(place + place // 6) % len(dtypes)], dtype),
                offset_dtypes[(2 * place + place // 6 + 1) % len(offset_dtypes)],
                place,
            )
            for place, (kind, dtype, plane) in enumerate(product(chosen, dtypes, PLANES))
        )
        drawn = st.builds(
            case,
            st.sampled_from(chosen),
            st.tuples(
                st.integers(1, 2),
                st.integers(1, 3),
                st.integers(1, 3),
                st.sampled_from((1, 2, 3, 5)),
                st.integers(0, 40),
                st.integers(0, 5),
            ),
            st.sampled_from(dims),
            st.sampled_from(PLANES),
            st.tuples(st.sampled_from(dtypes), st.sampled_from(dtypes)),
            st.sampled_from(offset_dtypes),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


def two_keys(capabilities: Capabilities) -> Domain[Attention]:
    """Draw calls that show one exponential: two keys, the values 0 and 1, one score lower."""
    dtypes = float_dtypes(capabilities)
    dims = head_dims(capabilities)

    def case(distance: float, dim: int, plane: Plane, dtype: FloatDtype) -> Attention:
        base = make_attention("flat", (1, 1, 1, 1, 1, 0), dim, plane, (dtype, dtype), None, 0)
        keys, values = np.zeros((2, dim), np.int8), np.zeros((2, dim), np.int8)
        keys[1, 0], values[1] = -7, 1
        q = np.zeros((1, 1, 1, dim), np.float32)
        q[..., 0] = 1
        return replace(
            base,
            softmax_scale=1.0,
            q=q.astype(DTYPES[dtype]),
            keys=plane_of(keys, distance / 7),
            values=plane_of(values, 1.0),
        )

    always = tuple(
        case(distance, dims[0], plane, dtype)
        for distance in (0.01, 0.3, 1.0, 2.7, 5.0, 9.9, 15.3, 40.0)
        for plane, dtype in product(PLANES, dtypes)
    )
    drawn = st.builds(
        case,
        st.floats(2.0**-10, 80, width=32),
        st.sampled_from(dims),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
    )
    return Domain(always, drawn)


def plane_of(codes: Nibbles, scale: float) -> Planes:
    """Return a cache [1, 1, L, D] of one scale whose residuals are zero."""
    shape = (1, 1, *codes.shape)
    return Planes(
        shape=shape,
        seed=0,
        hi=to_plane(codes.reshape(shape)),
        lo=to_plane(np.zeros(shape, np.int8)),
        scale=np.full(shape[:-1], scale, np.float32),
    )


def operands(case: Attention) -> Operands:
    """Return the arguments of kv_attention but the dtype; the draft gets no low planes."""
    draft = case.plane == "draft"
    return (
        case.q,
        case.keys.hi,
        None if draft else case.keys.lo,
        case.keys.scale,
        case.values.hi,
        None if draft else case.values.lo,
        case.values.scale,
        case.offset,
        case.position,
        case.plane,
        case.softmax_scale,
    )
