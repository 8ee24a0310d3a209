"""Domains of the invariances: inputs of many rows, padding, scales that can be doubled."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.a8_data import A8_KINDS, Activations, make_a8
from nibblespec.conformance.suite.attention_domains import Attention, make_attention
from nibblespec.conformance.suite.dashq_data import (
    DashqWeight,
    extremes,
    fill_spare_bits,
    make_module,
    make_tame_weight,
    pack,
    to_dtype,
)
from nibblespec.conformance.suite.dashq_domains import DashqLayer
from nibblespec.conformance.suite.hadamard_domains import Transform, make_transform, widths
from nibblespec.conformance.suite.kv_data import KINDS as VECTOR_KINDS
from nibblespec.conformance.suite.kv_data import Planes, Vectors, make_planes, make_vectors
from nibblespec.conformance.suite.mirrored_data import (
    make_mirrored_dashq,
    make_mirrored_nested,
    mirror_values,
)
from nibblespec.conformance.suite.nested_domains import PLANES, NestedLayer, even
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import (
    SEEDS,
    bit_widths,
    float_dtypes,
    group_sizes,
    head_dims,
    scale_zero_dtypes,
)
from nibblespec.spec.operations import Array, Capabilities, FloatDtype, Plane

MANY = 33
"""Rows of a call that is taken apart."""


def mirrored_nested(capabilities: Capabilities) -> Domain[NestedLayer]:
    """Draw nested layers of many rows whose exact sums are zero, in either mode."""
    dtypes = float_dtypes(capabilities)
    sizes = group_sizes(capabilities)
    first = capabilities.prefill_f16_from
    row_counts = sorted({MANY, max(1, (first or MANY) - 1), (first or MANY) + 3})

    def case(
        rows: int, outputs: int, groups: int, size: int, plane: Plane, dtype: FloatDtype, seed: int
    ) -> NestedLayer:
        return make_mirrored_nested(rows, outputs, even(groups, size), size, plane, dtype, seed)

    always = tuple(
        case(rows, (7, 3)[place % 2], 9, sizes[place % len(sizes)], plane, dtype, place)
        for place, (rows, plane, dtype) in enumerate(product(row_counts, PLANES, dtypes))
    )
    drawn = st.builds(
        case,
        st.sampled_from(row_counts),
        st.integers(1, 7),
        st.integers(1, 12),
        st.sampled_from(sizes),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def mirrored_dashq(capabilities: Capabilities) -> Domain[DashqLayer]:
    """Draw packed layers of many rows whose exact sums are zero."""
    dtypes = float_dtypes(capabilities)
    sizes = group_sizes(capabilities)
    bits = bit_widths(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)

    def case(
        nbits: int, outputs: int, groups: int, size: int, scale: str, dtype: FloatDtype, seed: int
    ) -> DashqLayer:
        return make_mirrored_dashq(nbits, MANY, outputs, groups, size, scale, dtype, seed)

    always = tuple(
        case(nbits, 5, 4, sizes[place % len(sizes)], scale_dtypes[0], dtype, place)
        for place, (nbits, dtype) in enumerate(product(bits, dtypes))
    )
    drawn = st.builds(
        case,
        st.sampled_from(bits),
        st.integers(1, 7),
        st.integers(1, 6),
        st.sampled_from(sizes),
        st.sampled_from(scale_dtypes),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def many_queries(capabilities: Capabilities) -> Domain[Attention]:
    """Draw calls of several queries, with weights of all kinds and with values that cancel."""
    dtypes = float_dtypes(capabilities)
    dims = head_dims(capabilities)

    def case(
        kind: str,
        queries: int,
        position: int,
        dim: int,
        plane: Plane,
        dtype: FloatDtype,
        seed: int,
    ) -> Attention:
        counts = (1, 2, 2, queries, position, seed % 3)
        base = "flat" if kind == "mirrored" else kind
        made = make_attention(base, counts, dim, plane, (dtype, dtype), None, seed)
        return mirror_values(made) if kind == "mirrored" else made

    kinds = ("mirrored", "ordinary", "sharp")
    always = tuple(
        case(
            kind,
            (5, 17)[place % 2],
            (0, 64)[place // 2 % 2],
            dims[place % len(dims)],
            plane,
            dtype,
            place,
        )
        for place, (kind, plane, dtype) in enumerate(product(kinds, PLANES, dtypes))
    )
    drawn = st.builds(
        case,
        st.sampled_from(kinds),
        st.integers(2, 9),
        st.integers(0, 50),
        st.sampled_from(dims),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def many_activations(capabilities: Capabilities) -> Domain[Activations]:
    """Draw activations of many rows of every kind."""
    dtypes = float_dtypes(capabilities)
    sizes = group_sizes(capabilities)

    def case(
        kind: str, groups: int, size: int, dtype: FloatDtype, per_token: bool, seed: int
    ) -> Activations:
        return make_a8(kind, MANY, groups, size, dtype, seed, per_token=per_token)

    kinds = ("outliers", "magnitudes", "sparse")
    always = tuple(
        case(kind, 2, sizes[place % len(sizes)], dtype, per_token, place)
        for place, (kind, dtype, per_token) in enumerate(product(kinds, dtypes, (True, False)))
    )
    drawn = st.builds(
        case,
        st.sampled_from(A8_KINDS),
        st.integers(1, 4),
        st.sampled_from(sizes),
        st.sampled_from(dtypes),
        st.booleans(),
        SEEDS,
    )
    return Domain(always, drawn)


def wide_transforms(capabilities: Capabilities) -> Domain[Transform]:
    """Draw transforms of many rows far from zero, whose sums cancel."""
    dtypes = float_dtypes(capabilities)
    shapes = widths(capabilities, largest=1024)

    def case(shape: tuple[int, int], matrix: str, dtype: FloatDtype, seed: int) -> Transform:
        return make_transform(*shape, (MANY,), "far from zero", matrix, (dtype, dtype), seed)

    always = tuple(
        case(shape, ("signs", "rotation")[place % 2], dtypes[place % len(dtypes)], place)
        for place, shape in enumerate(dict(shapes).items())
    )
    drawn = st.builds(
        case,
        st.sampled_from(shapes),
        st.sampled_from(("signs", "rotation")),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def many_vectors(capabilities: Capabilities) -> Domain[Vectors]:
    """Draw vectors of many tokens of every kind, with an offset and without."""
    dtypes = float_dtypes(capabilities)
    dims = head_dims(capabilities)
    always = tuple(
        make_vectors(
            kind, (2, MANY, dims[place % len(dims)]), dtype, (None, dtype)[place % 2], place
        )
        for place, (kind, dtype) in enumerate(product(VECTOR_KINDS, dtypes))
    )
    drawn = st.builds(
        lambda kind, dim, *rest: make_vectors(kind, (2, MANY, dim), *rest),
        st.sampled_from(("ordinary", "channel", "floor")),
        st.sampled_from(dims),
        st.sampled_from(dtypes),
        st.sampled_from((None, *dtypes)),
        SEEDS,
    )
    return Domain(always, drawn)


def many_tokens(capabilities: Capabilities) -> Domain[Planes]:
    """Draw caches of many tokens."""
    dims = head_dims(capabilities)
    return Domain(
        tuple(make_planes((2, MANY, dim), place) for place, dim in enumerate(dims)),
        st.builds(
            lambda dim, seed: make_planes((2, MANY, dim), seed), st.sampled_from(dims), SEEDS
        ),
    )


def doubling_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """Draw packed weights far from overflow and subnormals, also when a scale is doubled.

    Zero points are odd multiples of 1/4, or what their dtype makes of them, so that no difference
    is tiny; scales lie between 1/4 and 1.
    """
    bits = bit_widths(capabilities)
    dtypes = float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)
    sizes = group_sizes(capabilities)

    def case(
        nbits: int, rows: int, groups: int, size: int, scale: str, dtype: FloatDtype, seed: int
    ) -> DashqWeight:
        module = make_module(nbits, rows, groups, size, 0, scale, dtype)
        weight = make_tame_weight(module, dtype, seed)
        quarters = np.rint(weight.zero.astype(np.float64) * 2) / 2 + 0.25
        return replace(weight, zero=to_dtype(quarters, DTYPES[scale]))

    always = tuple(
        case(nbits, 3, 3, sizes[place % len(sizes)], scale, dtypes[place % len(dtypes)], place)
        for place, (nbits, scale) in enumerate(product(bits, scale_dtypes))
    )
    drawn = st.builds(
        case,
        st.sampled_from(bits),
        st.integers(1, 7),
        st.integers(1, 5),
        st.sampled_from(sizes),
        st.sampled_from(scale_dtypes),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def spoil_padding(weight: DashqWeight) -> DashqWeight:
    """Change all that is not significant: padding columns, groups within it, unused bits."""
    module = weight.module
    generator = np.random.default_rng(weight.seed + 1)
    codes = weight.codes.copy()
    padding = codes[:, module.in_features :]
    codes[:, module.in_features :] = generator.integers(0, 2**module.nbits, padding.shape)
    words = pack(codes.reshape(-1), module.nbits)
    outside = -(-module.in_features // module.group_size)
    _, largest = extremes(DTYPES[module.scale_zero_dtype])

    def spoil(parameter: Array, value: float) -> Array:
        by_row = parameter.copy().reshape(module.out_features, -1)
        by_row[:, outside:] = value
        return by_row.reshape(-1, 1)

    return replace(
        weight,
        codes=codes,
        words=fill_spare_bits(generator, words, codes.size, module),
        scale=spoil(weight.scale, largest),
        zero=spoil(weight.zero, -largest),
    )


def taken_apart(count: int, *, least: int = 1) -> list[tuple[int, int]]:
    """Return (start, stop) of calls to compare with one of `count` rows, `least` rows or more."""
    alone = [(row, row + 1) for row in range(count)]
    sizes = [size for size in (2, 3, 4, 5, 7, 8, 9, 16, 17, 32) if size < count]
    parts = alone + [(start, start + size) for size in sizes for start in (0, 1, count - size)]
    return [(start, stop) for start, stop in parts if stop - start >= least and stop <= count]


Rows = Callable[[Array], tuple[Array, ...]]
"""A call with some of the rows, given by their indices; results have rows as their first axis."""
