"""Domains of the online Hadamard transform: widths K * 2**k, matrices, inputs of every kind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st
from nibblespec.conformance.suite.activation_data import KINDS, make_activations
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.conformance.suite.strategies import SEEDS, float_dtypes
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import (
    CONSTRUCTIONS,
    hadamard_matrix,
    sylvester,
)
from nibblespec.spec.operations import Array, Capabilities, Float32, FloatDtype

ORDERS = (28, 172, 148, 12, 2, 4, 20, 36, 40, 44, 52, 60, 108, 140, 156)
"""Orders of published packages first."""

LEADING: tuple[tuple[int, ...], ...] = ((3,), (), (1,), (2, 3), (7,))
LARGEST_WIDTH = 20_000
LARGEST_ORDER = 512
"""Of had_K, which is a matrix of as many rows and columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Arguments of hadamard, and where they come from."""

    order: int
    """K; 1 where there is no matrix."""
    columns: int
    """m, a power of two."""
    leading: tuple[int, ...]
    kind: str
    matrix: str
    """signs (entries ±1) or rotation (an orthogonal matrix times the root of K)."""
    dtype: FloatDtype
    seed: int
    x: Array = field(repr=False)
    had_k: Float32 | None = field(repr=False)


def make_transform(
    order: int,
    columns: int,
    leading: tuple[int, ...],
    kind: str,
    matrix: str,
    dtypes: tuple[FloatDtype, FloatDtype],
    seed: int,
) -> Transform:
    """Make an input of `kind` (of KINDS, or "integers", or "units") in the first of two dtypes.

    Integers are small enough for every sum to be exact in float32. Units are the rows of the
    identity, as many as the width has, whatever `leading` is.
    """
    width = order * columns
    if kind == "units":
        leading = (width,)
        x = np.eye(width, dtype=np.float32).astype(DTYPES[dtypes[0]])
    elif kind == "integers":
        whole = np.random.default_rng(seed).integers(-100, 101, (*leading, width))
        x = whole.astype(np.float32).astype(DTYPES[dtypes[0]])
    else:
        rows = int(np.prod(leading))
        x = make_activations(kind, rows, width, dtypes[0], seed).reshape(*leading, width)
    make = {"signs": signs, "rotation": rotation}[matrix]
    return Transform(
        order=order,
        columns=columns,
        leading=leading,
        kind=kind,
        matrix=matrix,
        dtype=dtypes[1],
        seed=seed,
        x=x,
        had_k=None if order == 1 else make(order, seed),
    )


@lru_cache(maxsize=64)
def signs(order: int, seed: int) -> Float32:
    """Return a matrix of ±1 that is not symmetric, a Hadamard matrix where one is at hand."""
    generator = np.random.default_rng(seed)
    if order in CONSTRUCTIONS:
        plain = hadamard_matrix(order)
    elif order.bit_count() == 1:
        plain = sylvester(order).astype(np.float32)
    else:
        plain = generator.choice([-1, 1], (order, order)).astype(np.float32)
    matrix: Float32 = plain[generator.permutation(order)]
    matrix = matrix * generator.choice([-1, 1], order).astype(np.float32)[:, np.newaxis]
    if (matrix == matrix.T).all():
        matrix[0] *= -1
    return matrix


@lru_cache(maxsize=64)
def rotation(order: int, seed: int) -> Float32:
    """Return a random orthogonal matrix times the root of its order: no entry is ±1."""
    generator = np.random.default_rng(seed)
    orthogonal, _ = np.linalg.qr(generator.standard_normal((order, order)))
    matrix: Float32 = (orthogonal * np.sqrt(order)).astype(np.float32)
    return matrix


def widths(capabilities: Capabilities, *, largest: int = LARGEST_WIDTH) -> list[tuple[int, int]]:
    """Return (K, m) to draw from; K is claimed, and K = 1 needs no claim."""
    claims = capabilities.hadamard_orders
    orders = [1, *(order for order in ORDERS if claims is None or order in claims)]
    orders += [order for order in claims or () if order not in orders and order <= LARGEST_ORDER]
    columns = [2**k for k in range(14)]
    return [(order, m) for order in orders for m in columns if order * m <= largest]


def transforms(
    *kinds: str,
    matrices: tuple[str, ...] = ("signs",),
    matrix_only: bool = False,
    exact: bool = False,
    largest: int = LARGEST_WIDTH,
) -> Callable[[Capabilities], Domain[Transform]]:
    """Draw transforms of inputs of these kinds.

    `exact`: widths that are powers of four, so that 1/√n is one of two; `matrix_only`: K > 1.
    """

    def domain(capabilities: Capabilities) -> Domain[Transform]:
        dtypes = float_dtypes(capabilities)
        shapes = [
            (order, columns)
            for order, columns in widths(capabilities, largest=largest)
            if not (exact and not is_power_of_four(order * columns))
            and not (matrix_only and order == 1)
        ]
        require(bool(shapes), "an order of had_K")
        # The widest of each order first, so that published widths are always met.
        widest = dict(shapes)
        chosen = [*widest.items(), *shapes[:: max(1, len(shapes) // 16)]]
        always = tuple(
            make_transform(
                order,
                columns,
                LEADING[place % len(LEADING)],
                kinds[place % len(kinds)],
                matrices[place // len(kinds) % len(matrices)],
                (dtypes[place % len(dtypes)], dtypes[place // 2 % len(dtypes)]),
                place,
            )
            for place, (order, columns) in enumerate(chosen)
        )
        drawn = st.builds(
            lambda shape, *rest: make_transform(*shape, *rest),
            st.sampled_from([shape for shape in shapes if shape[0] * shape[1] <= 4096] or shapes),
            st.sampled_from(LEADING),
            st.sampled_from(kinds),
            st.sampled_from(matrices),
            st.tuples(st.sampled_from(dtypes), st.sampled_from(dtypes)),
            SEEDS,
        )
        return Domain(always, drawn)

    return domain


def is_power_of_four(n: int) -> bool:
    """Say whether n is a power of four."""
    return n.bit_count() == 1 and n.bit_length() % 2 == 1


FLOAT_KINDS = tuple(KINDS)
