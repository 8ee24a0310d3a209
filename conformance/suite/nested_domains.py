"""Domains of the bitnest format: nested weights and layers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from math import lcm
from typing import get_args

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.gate import claimed, require
from nibblespec.conformance.suite.nested_data import (
    CODE_KINDS,
    NestedWeight,
    make_codes,
    make_nested,
    make_scales,
    make_tame_nested,
    with_codes,
)
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.strategies import (
    ROWS,
    SEEDS,
    float_dtypes,
    group_sizes,
)
from nibblespec.spec.operations import (
    Bytes,
    Capabilities,
    Float16,
    Float32,
    FloatDtype,
    Nibbles,
    Plane,
)

Operands = tuple[Nibbles, Float32, Bytes, Bytes | None, Float16, Float16 | None, Plane]
"""The arguments of nested_linear, all but the dtype."""

PLANES: tuple[Plane, ...] = get_args(Plane)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedCase:
    """A nested weight, the plane to read and the dtype to ask for."""

    weight: NestedWeight
    plane: Plane
    dtype: FloatDtype


def nested_weights(capabilities: Capabilities) -> Domain[NestedCase]:
    """Nested weights with every kind of code and scale, both planes, every dtype."""
    dtypes = float_dtypes(capabilities)
    sizes = group_sizes(capabilities)

    def case(
        rows: int, groups: int, group: int, plane: Plane, dtype: FloatDtype, seed: int, start: int
    ) -> NestedCase:
        weight = make_nested(rows, even(groups, group), group, seed, start)
        return NestedCase(weight=weight, plane=plane, dtype=dtype)

    always = tuple(
        case(
            (7, 1, 33)[place % 3],
            (8, 40, 3)[place % 3],
            sizes[place % len(sizes)],
            plane,
            dtype,
            place,
            0,
        )
        for place, (dtype, plane) in enumerate([*product(dtypes, PLANES)] * 2)
    )
    # An odd number of bytes in a row.
    odd = tuple(
        case(5, 2, size, PLANES[size % 2], dtypes[-1], size, size) for size in sizes if size % 2
    )
    drawn = st.builds(
        case,
        st.sampled_from(ROWS),
        st.integers(1, 8),
        st.sampled_from(sizes),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
        SEEDS,
        st.integers(0, 279),
    )
    return Domain((*always, *odd), drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedLayer:
    """A nested layer with its input. Arguments of nested_linear are made by `layer_operands`."""

    weight: NestedWeight
    plane: Plane
    dtype: FloatDtype
    kind: str
    """Of the activation codes: a key of CODE_KINDS."""
    rows: int
    activation_group: int
    """Columns that share an activation scale."""
    xq: Nibbles = field(repr=False)
    sx: Float32 = field(repr=False)
    bias: Float16 | None = field(repr=False)


def make_nested_layer(
    weight: NestedWeight,
    rows: int,
    activation_group: int,
    kind: str,
    bias: str,
    plane: Plane,
    dtype: FloatDtype,
    seed: int,
) -> NestedLayer:
    """Give a weight its input, and a bias that is "none", "small" or "large"."""
    size = {"none": 0.0, "small": 1.0, "large": 500.0}[bias]
    values = size * np.random.default_rng(seed).uniform(0.5, 1, weight.rows)
    groups = weight.columns // activation_group
    return NestedLayer(
        weight=weight,
        plane=plane,
        dtype=dtype,
        kind=kind,
        rows=rows,
        activation_group=activation_group,
        xq=make_codes(kind, rows, weight.columns, seed),
        sx=make_scales(rows, groups, seed),
        bias=values.astype(np.float16) if size else None,
    )


def nested_layers(
    *,
    kinds: tuple[str, ...] = tuple(CODE_KINDS),
    biases: tuple[str, ...] = ("none",),
    mixed_groups: bool = False,
) -> Callable[[Capabilities], Domain[NestedLayer]]:
    """Layers in the mode of integer sums; `mixed_groups`: no activation group is a weight group."""

    def domain(capabilities: Capabilities) -> Domain[NestedLayer]:
        dtypes = float_dtypes(capabilities)
        weight_groups = group_sizes(capabilities)
        row_counts = rows_of_integer_sums(capabilities)

        def layer(
            rows: int,
            outputs: int,
            groups: int,
            group: int,
            width: int | None,
            kind: str,
            bias: str,
            plane: Plane,
            dtype: FloatDtype,
            seed: int,
        ) -> NestedLayer:
            """Make a layer; `width` None means one activation scale for a token."""
            unit = lcm(group, width or 1, 2)
            columns = unit * max(1, round(groups * group / unit))
            weight = make_tame_nested(outputs, columns // group, group, seed)
            return make_nested_layer(weight, rows, width or columns, kind, bias, plane, dtype, seed)

        pairs = [
            (group, width)
            for group, width in product(weight_groups, (None, *weight_groups))
            if not (mixed_groups and width in (None, group)) and lcm(group, width or 1) <= 1024
        ] or [(weight_groups[0], None)]
        always = tuple(
            layer(
                row_counts[place % len(row_counts)],
                (7, 33, 1, 3)[place % 4],
                (3, 5, 1)[place % 3],
                *pairs[place * 5 % len(pairs)],
                kind,
                biases[place % len(biases)],
                plane,
                dtype,
                place,
            )
            for place, (kind, plane, dtype) in enumerate(product(kinds, PLANES, dtypes))
        )
        drawn = st.builds(
            lambda pair, *rest: layer(*rest[:3], *pair, *rest[3:]),
            st.sampled_from(pairs),
            st.sampled_from(row_counts[:8]),
            st.sampled_from(ROWS),
            st.integers(1, 6),
            st.sampled_from(kinds),
            st.sampled_from(biases),
            st.sampled_from(PLANES),
            st.sampled_from(dtypes),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactLayer:
    """A layer of one group whose result is an integer times `unit`, a power of two."""

    layer: NestedLayer
    unit: float


def exact_layers(capabilities: Capabilities) -> Domain[ExactLayer]:
    """Layers of one group with sx 1 and a power of two as scale, all sums below 2**24."""
    dtypes = float_dtypes(capabilities)
    # 127 * 128 * 1024 is just below 2**24; every claimed group size is one group.
    sizes = claimed(
        [size for size in (*group_sizes(capabilities), 1024, 512, 66) if size % 2 == 0],
        capabilities.group_sizes,
        "an even group size",
    )
    row_counts = rows_of_integer_sums(capabilities)

    def case(
        kind: str,
        rows: int,
        outputs: int,
        size: int,
        exponent: int,
        plane: Plane,
        dtype: FloatDtype,
        seed: int,
    ) -> ExactLayer:
        edges = make_nested(outputs, 1, min(size, 1024), seed, seed)
        unit = 2.0**exponent
        scale = np.full((outputs, 1), unit, np.float16)
        weight = with_codes(edges.q4, edges.qr, scale, edges.group, seed, seed)
        layer = make_nested_layer(weight, rows, weight.columns, kind, "none", plane, dtype, seed)
        return ExactLayer(layer=replace(layer, sx=np.ones((rows, 1), np.float32)), unit=unit)

    always = tuple(
        case(
            kind,
            row_counts[place % len(row_counts)],
            (5, 33, 7)[place % 3],
            sizes[place % len(sizes)],
            place % 9 - 4,
            plane,
            dtype,
            place,
        )
        for place, (kind, plane, dtype) in enumerate(product(CODE_KINDS, PLANES, dtypes))
    )
    longest = case("all positive", row_counts[0], 5, max(sizes), 0, "target", dtypes[-1], 0)
    drawn = st.builds(
        case,
        st.sampled_from(tuple(CODE_KINDS)),
        st.sampled_from(row_counts),
        st.sampled_from(ROWS),
        st.sampled_from(sizes),
        st.integers(-4, 4),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain((*always, longest), drawn)


def prefill_layers(capabilities: Capabilities) -> Domain[NestedLayer]:
    """Layers with at least as many rows as the mode prefill-f16 begins at."""
    first = capabilities.prefill_f16_from
    require(first is not None, "the mode prefill-f16")
    assert first is not None
    dtypes = float_dtypes(capabilities)
    sizes = group_sizes(capabilities)

    def case(
        more: int, outputs: int, groups: int, size: int, plane: Plane, dtype: FloatDtype, seed: int
    ) -> NestedLayer:
        weight = make_tame_nested(outputs, even(groups, size), size, seed)
        rows = max(first, 1) + more
        return make_nested_layer(
            weight, rows, weight.columns, "random", "small", plane, dtype, seed
        )

    always = tuple(
        case(place % 3, (7, 33)[place % 2], 3, sizes[place % len(sizes)], plane, dtype, place)
        for place, (plane, dtype) in enumerate(product(PLANES, dtypes))
    )
    drawn = st.builds(
        case,
        st.integers(0, 40),
        st.sampled_from(ROWS),
        st.integers(1, 5),
        st.sampled_from(sizes),
        st.sampled_from(PLANES),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def layer_operands(layer: NestedLayer) -> Operands:
    """Return the arguments of nested_linear but the dtype; the draft gets no low plane."""
    weight = layer.weight
    lo = weight.lo if layer.plane == "target" else None
    return layer.xq, layer.sx, weight.hi, lo, weight.scale, layer.bias, layer.plane


def rows_of_integer_sums(capabilities: Capabilities) -> tuple[int, ...]:
    """Return the numbers of rows for which nested_linear computes integer sums."""
    first = capabilities.prefill_f16_from
    rows = tuple(rows for rows in (*ROWS, 65, 1001) if first is None or rows < first)
    require(bool(rows), "the mode of integer sums")
    return rows


def even(groups: int, group: int) -> int:
    """Return a number of groups that makes an even number of columns."""
    return groups + groups * group % 2
