"""Domains of the nested cache: vectors to write and planes to read, of every head_dim."""

from collections.abc import Callable
from itertools import product

from hypothesis import strategies as st
from nibblespec.conformance.suite.kv_data import KINDS, Planes, Vectors, make_planes, make_vectors
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.strategies import SEEDS, float_dtypes, head_dims
from nibblespec.spec.operations import Capabilities

LEADING: tuple[tuple[int, ...], ...] = ((2, 3), (1, 1, 1), (1, 4, 7), (2, 2, 5), (2, 1, 2, 2))
"""[..., H, L]: one head and one token, odd numbers of tokens, more batch axes."""


def vectors(*kinds: str, offset: bool | None = None) -> Callable[[Capabilities], Domain[Vectors]]:
    """Draw vectors of these kinds (all where none is given).

    `offset` says whether there is one; None: sometimes.
    """

    def domain(capabilities: Capabilities) -> Domain[Vectors]:
        dtypes = float_dtypes(capabilities)
        dims = head_dims(capabilities)
        offset_dtypes = [*dtypes] if offset else [None] if offset is False else [None, *dtypes]
        chosen = kinds or tuple(KINDS)
        always = tuple(
            make_vectors(
                kind,
                (*LEADING[place % len(LEADING)], dims[place % len(dims)]),
                dtype,
                offset_dtypes[place % len(offset_dtypes)],
                place,
            )
            for place, (kind, dtype, _) in enumerate(product(chosen, dtypes, range(4)))
        )
        drawn = st.builds(
            lambda kind, leading, dim, *rest: make_vectors(kind, (*leading, dim), *rest),
            st.sampled_from(chosen),
            st.sampled_from(LEADING),
            st.sampled_from(dims),
            st.sampled_from(dtypes),
            st.sampled_from(offset_dtypes),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


def planes(capabilities: Capabilities) -> Domain[Planes]:
    """Draw caches with every kind of code and scale."""
    dims = head_dims(capabilities)
    always = tuple(
        make_planes((*LEADING[place % len(LEADING)], dim), place)
        for place, dim in enumerate(dims * 2)
    )
    drawn = st.builds(
        lambda leading, dim, seed: make_planes((*leading, dim), seed),
        st.sampled_from(LEADING),
        st.sampled_from(dims),
        SEEDS,
    )
    return Domain(always, drawn)
