"""Domains of A8: activations of every kind, per token and per group."""

from collections.abc import Callable
from itertools import product

from hypothesis import strategies as st
from nibblespec.conformance.suite.a8_data import A8_KINDS, Activations, make_a8
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.strategies import ROWS, SEEDS, float_dtypes, group_sizes
from nibblespec.spec.operations import Capabilities, FloatDtype


def activations(
    *kinds: str, grouped: bool | None = None
) -> Callable[[Capabilities], Domain[Activations]]:
    """Activations of these kinds (all of A8_KINDS where none is given).

    `grouped` True: one scale a group, always; None: that or one scale a token.
    """

    def domain(capabilities: Capabilities) -> Domain[Activations]:
        dtypes = float_dtypes(capabilities)
        sizes = group_sizes(capabilities)
        scopes = (False,) if grouped else (True, False)

        def case(
            kind: str,
            rows: int,
            groups: int,
            size: int,
            dtype: FloatDtype,
            per_token: bool,
            seed: int,
        ) -> Activations:
            return make_a8(kind, rows, groups, size, dtype, seed, per_token=per_token)

        always = tuple(
            case(
                kind,
                ROWS[place % len(ROWS)],
                1 + place % 3,
                sizes[place % len(sizes)],
                dtype,
                per_token,
                place,
            )
            for place, (per_token, kind, dtype) in enumerate(
                product(scopes, kinds or A8_KINDS, dtypes)
            )
        )
        drawn = st.builds(
            case,
            st.sampled_from(kinds or A8_KINDS),
            st.sampled_from(ROWS),
            st.integers(1, 5),
            st.sampled_from(sizes),
            st.sampled_from(dtypes),
            st.sampled_from(scopes),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain
