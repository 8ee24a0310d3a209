"""Domains of the dashq format: packed weights and layers within the claims of the backend."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import cast

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.activation_data import KINDS, make_activations
from nibblespec.conformance.suite.dashq_data import (
    DashqWeight,
    make_module,
    make_tame_weight,
    make_weight,
)
from nibblespec.conformance.suite.dashq_rounding import make_rounding_weight
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import (
    ROWS,
    SEEDS,
    bit_widths,
    float_dtypes,
    group_sizes,
    scale_zero_dtypes,
)
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Array, Capabilities, FloatDtype


def dashq_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """Packed weights with every kind of code, scale, zero point and padding."""
    widths = bit_widths(capabilities)
    dtypes = float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)
    sizes = group_sizes(capabilities)

    def weight(
        nbits: int,
        rows: int,
        groups: int,
        size: int,
        padding: int,
        scale_dtype: str,
        linear_dtype: FloatDtype,
        dtype: FloatDtype,
        seed: int,
        start: int,
    ) -> DashqWeight:
        columns = groups * size
        cut = min(padding, columns - 1) if capabilities.padded_inputs else 0
        module = make_module(nbits, rows, groups, size, cut, scale_dtype, linear_dtype)
        return make_weight(module, dtype, seed, start)

    always = tuple(
        weight(
            nbits,
            rows=(1, 7, 33)[place % 3],
            groups=(5, 3, 1)[place % 3],
            size=sizes[place % len(sizes)],
            padding=(0, 1, 0, sizes[place % len(sizes)] + 1)[place % 4],
            scale_dtype=scale_dtypes[place % len(scale_dtypes)],
            linear_dtype=dtypes[(place + 1) % len(dtypes)],
            dtype=dtype,
            seed=place,
            start=0,
        )
        for place, (dtype, nbits) in enumerate(product(dtypes, widths))
    )
    # As wide as several groups of another size, a published one.
    multiples = tuple(
        weight(
            widths[place % len(widths)],
            rows=3,
            groups=max(2, 384 // size),
            size=size,
            padding=0,
            scale_dtype=scale_dtypes[0],
            linear_dtype=dtypes[0],
            dtype=dtypes[place % len(dtypes)],
            seed=place,
            start=place,
        )
        for place, size in enumerate(sizes)
    )
    return Domain(
        (*always, *multiples),
        st.builds(
            weight,
            st.sampled_from(widths),
            st.sampled_from((1, 2, 3, 7, 33)),
            st.integers(1, 5),
            st.sampled_from(sizes),
            st.integers(0, 40),
            st.sampled_from(scale_dtypes),
            st.sampled_from(dtypes),
            st.sampled_from(dtypes),
            SEEDS,
            st.integers(0, 279),
        ),
    )


def rounding_weights(kind: str) -> Callable[[Capabilities], Domain[DashqWeight]]:
    """Packed weights at one kind of rounding, a key of `dashq_rounding.KINDS`."""

    def domain(capabilities: Capabilities) -> Domain[DashqWeight]:
        widths = bit_widths(capabilities)
        dtypes = float_dtypes(capabilities)
        scale_dtypes = scale_zero_dtypes(capabilities)
        size = min(group_sizes(capabilities), key=lambda size: abs(size - 8))
        few_widths = sorted({widths[0], widths[len(widths) // 2], widths[-1]})
        always = tuple(
            make_rounding_weight(kind, nbits, size, scale_dtype, dtype, dtypes[0], 0)
            for nbits, scale_dtype, dtype in product(few_widths, scale_dtypes, dtypes)
        )
        drawn = st.builds(
            make_rounding_weight,
            st.just(kind),
            st.sampled_from(widths),
            st.just(size),
            st.sampled_from(scale_dtypes),
            st.sampled_from(dtypes),
            st.sampled_from(dtypes),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


def padded_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """Packed weights with padding, from one column to more than a group."""
    require(capabilities.padded_inputs, "padded inputs")
    widths = bit_widths(capabilities)
    dtypes = float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)

    def weight(
        nbits: int, size: int, padding: int, scale_dtype: str, dtype: FloatDtype, seed: int
    ) -> DashqWeight:
        groups = padding // size + 2
        module = make_module(nbits, 3, groups, size, padding, scale_dtype, dtype)
        return make_weight(module, dtype, seed, seed)

    sizes = group_sizes(capabilities)
    always = tuple(
        weight(nbits, size, padding, scale_dtypes[nbits % len(scale_dtypes)], dtypes[0], nbits)
        for nbits in widths
        for size in (sizes[0], sizes[-1])
        for padding in (1, size, size + 1)
    )
    drawn = st.builds(
        weight,
        st.sampled_from(widths),
        st.sampled_from(sizes),
        st.integers(1, 150),
        st.sampled_from(scale_dtypes),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


def every_dtype_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """Ordinary weights in every combination of the claimed output, layer and scale dtypes."""
    widths = bit_widths(capabilities)
    dtypes = float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)
    size = group_sizes(capabilities)[0]

    def weight(
        nbits: int, scale_dtype: str, linear_dtype: FloatDtype, dtype: FloatDtype, seed: int
    ) -> DashqWeight:
        module = make_module(nbits, 3, 2, size, 0, scale_dtype, linear_dtype)
        return make_tame_weight(module, dtype, seed)

    always = tuple(
        weight(widths[-1], scale_dtype, linear_dtype, dtype, 0)
        for scale_dtype, linear_dtype, dtype in product(scale_dtypes, dtypes, dtypes)
    )
    drawn = st.builds(
        weight,
        st.sampled_from(widths),
        st.sampled_from(scale_dtypes),
        st.sampled_from(dtypes),
        st.sampled_from(dtypes),
        SEEDS,
    )
    return Domain(always, drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashqLayer:
    """A packed layer with its input."""

    weight: DashqWeight
    kind: str
    """Of the activations: a key of `activation_data.KINDS`."""
    rows: int
    x: Array = field(repr=False)
    bias: Array | None = field(repr=False)


def make_layer(weight: DashqWeight, rows: int, kind: str, bias: str, seed: int) -> DashqLayer:
    """Give a weight its input, and a bias that is "none", "small" or "large"."""
    module = weight.module
    dtype = cast(FloatDtype, module.linear_dtype)
    generator = np.random.default_rng(seed)
    size = {"none": 0.0, "small": 1.0, "large": 500.0}[bias]
    values = (size * generator.uniform(0.5, 1, module.out_features)).astype(np.float32)
    return DashqLayer(
        weight=weight,
        kind=kind,
        rows=rows,
        x=make_activations(kind, rows, module.in_features, dtype, seed),
        bias=values.astype(DTYPES[dtype]) if size else None,
    )


def dashq_layers(
    *,
    kinds: tuple[str, ...] = tuple(KINDS),
    biases: tuple[str, ...] = ("none",),
    padded: bool = False,
) -> Callable[[Capabilities], Domain[DashqLayer]]:
    """Layers whose sums stay in range, M, N and K from one to about a thousand."""

    def domain(capabilities: Capabilities) -> Domain[DashqLayer]:
        widths = bit_widths(capabilities)
        dtypes = float_dtypes(capabilities)
        scale_dtypes = scale_zero_dtypes(capabilities)
        sizes = group_sizes(capabilities)
        require(capabilities.padded_inputs or not padded, "padded inputs")

        def layer(
            nbits: int,
            shape: tuple[int, int, int],
            size: int,
            scale_dtype: str,
            dtype: FloatDtype,
            kind: str,
            bias: str,
            seed: int,
        ) -> DashqLayer:
            rows, outputs, columns = shape
            groups = max(1, round(columns / size))
            padding = (1 + seed % size, size, size + 1)[seed % 3] if padded else 0
            groups += -(-padding // size) if padded else 0
            module = make_module(nbits, outputs, groups, size, padding, scale_dtype, dtype)
            return make_layer(make_tame_weight(module, dtype, seed), rows, kind, bias, seed)

        shapes = ((3, 33, 256), (1, 7, 1001), (33, 3, 64), (1001, 1, 33), (7, 1001, 7))
        always = tuple(
            layer(
                widths[place % len(widths)],
                shapes[place % len(shapes)],
                sizes[place % len(sizes)],
                scale_dtypes[place % len(scale_dtypes)],
                dtype,
                kind,
                biases[place % len(biases)],
                place,
            )
            for place, (kind, dtype) in enumerate(product(kinds, dtypes))
        )
        drawn = st.builds(
            layer,
            st.sampled_from(widths),
            st.tuples(st.sampled_from(ROWS), st.sampled_from(ROWS), st.integers(1, 300)),
            st.sampled_from(sizes),
            st.sampled_from(scale_dtypes),
            st.sampled_from(dtypes),
            st.sampled_from(kinds),
            st.sampled_from(biases),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


def straddling_modules(capabilities: Capabilities) -> Domain[Module]:
    """Modules whose rows end inside a word, where the claims allow such a width."""
    widths = bit_widths(capabilities)
    dtypes = float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)
    sizes = group_sizes(capabilities)
    always = tuple(
        make_module(nbits, 5, groups, size, 0, scale_dtypes[0], dtypes[0])
        for nbits, groups, size in product(widths, (1, 3), sizes)
    )
    drawn = st.builds(
        make_module,
        st.sampled_from(widths),
        st.integers(2, 9),
        st.integers(1, 5),
        st.sampled_from(sizes),
        st.just(0),
        st.sampled_from(scale_dtypes),
        st.sampled_from(dtypes),
    )
    return Domain(always, drawn)
