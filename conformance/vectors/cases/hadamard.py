"""Cases of hadamard: without a matrix, with ±1 matrices of every order, and with another one.

Sums are exact in float64, so that no order of summation shows in the intervals.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from nibblespec.conformance.vectors.case import Case, Interval, Tensor, between, value
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, SHORT
from nibblespec.conformance.vectors.streams import floats, grid
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.hadamard import hadamard
from nibblespec.reference.rounding import Array, round_float64
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import ORDERS, hadamard_matrix
from nibblespec.spec.operations import Float32, FloatDtype

OPERATION = "hadamard"
EXACT = ("BN1-HADAMARD-EXACT", "BN1-HADAMARD-ORDER", "BN1-HADAMARD-SCALE")
BOUNDED = ("NUM-HADAMARD-BOUND", "BN1-HADAMARD-ORDER", "BN1-HADAMARD-SCALE")
MATRIX_ORDERS = tuple(order for order in ORDERS if order > 4 and order not in (76, 108, 140))
"""Orders of the ±1 matrices. 76, made like 52, and 108 and 140, made like 60 and 44, are left out
for their size."""

MATRIX = ("BN1-HADAMARD-MATRIX", "BN1-HADAMARD-AXES")


def cases() -> Iterator[Case]:
    """Yield transforms of whole numbers, which are exact, and of floats, which are bounded."""
    for dtype in DTYPES:
        yield from _without_matrix(dtype)
        yield from _small_matrices(dtype)
    for place, order in enumerate(MATRIX_ORDERS):
        # Every dtype for the orders of published packages, one for the others.
        chosen = DTYPES if order in (28, 148, 172) else DTYPES[place % 3 :][:1]
        for dtype in chosen:
            yield _bounded(
                f"k{order}",
                f"a ±1 matrix of order {order}, 2 columns",
                floats(f"{OPERATION}/k{order}", (1, 2 * order), -3, 1),
                hadamard_matrix(order),
                dtype,
                *MATRIX,
            )


def _without_matrix(dtype: FloatDtype) -> Iterator[Case]:
    for n in (1, 4, 16, 64, 256):
        yield _exact(
            f"exact-{n}",
            "whole numbers, n a power of four",
            grid(f"{OPERATION}/exact-{n}", (3, n), -99, 99, 0),
            None,
            dtype,
        )
    other: FloatDtype = "float32" if dtype == "bfloat16" else "bfloat16"
    mixed = round_float64(grid(f"{OPERATION}/exact-mixed", (3, 16), -99, 99, -2), other)
    yield _case(
        "exact-mixed",
        f"input in {other}",
        mixed,
        None,
        dtype,
        value(hadamard(mixed, None, dtype)),
        EXACT,
    )
    impulses = np.zeros((4, 64))
    impulses[[0, 1, 2, 3], [1, 2, 37, 63]] = 8
    yield _exact("exact-impulses", "rows of Sylvester's matrix", impulses, None, dtype)
    yield _exact(
        "exact-range",
        "4096 values around 16, whose sum float16 cannot hold",
        grid(f"{OPERATION}/exact-range", (1, 4096), 14, 20, 0),
        None,
        dtype,
        "BN1-HADAMARD-RANGE",
    )
    for n in (2, 8, 128):
        yield _bounded(
            f"n{n}",
            "floats, n no power of four",
            floats(f"{OPERATION}/n{n}", (2, n), -4, 1),
            None,
            dtype,
        )


def _small_matrices(dtype: FloatDtype) -> Iterator[Case]:
    rotation = np.array([[1, 1], [-1, 1]], np.float32)
    yield _exact(
        "exact-example",
        "the example of bitnest-package-v1, 10.1: a matrix that is not symmetric",
        np.array([[1.0, 2, 3, 4]]),
        rotation,
        dtype,
        *MATRIX,
    )
    yield _exact(
        "exact-k2",
        "a ±1 matrix that is not symmetric, 32 columns",
        grid(f"{OPERATION}/exact-k2", (2, 64), -99, 99, 0),
        rotation,
        dtype,
        *MATRIX,
    )
    # Rows and signs of Sylvester's matrix in another order: not symmetric.
    shuffled = hadamard_matrix(4)[[2, 0, 3, 1]] * np.array([1, -1, 1, 1], np.float32)
    yield _exact(
        "exact-k4",
        "a ±1 matrix that is not symmetric, 16 columns, two leading axes",
        grid(f"{OPERATION}/exact-k4", (2, 3, 64), -99, 99, 0),
        shuffled,
        dtype,
        *MATRIX,
    )
    yield _bounded(
        "k9-orthogonal",
        "three times an orthogonal matrix: neither ±1 nor symmetric",
        floats(f"{OPERATION}/k9-orthogonal", (3, 72), -1, 1, 10),
        _orthogonal(),
        dtype,
        *MATRIX,
    )
    yield _bounded(
        "k9-no-columns",
        "the same matrix with one column: no butterflies",
        floats(f"{OPERATION}/k9-no-columns", (3, 9), -1, 1, 10),
        _orthogonal(),
        dtype,
        *MATRIX,
    )


def _orthogonal() -> Float32:
    """Return 3·Q for a product Q of two reflections of order 9, float32 [9, 9]."""
    first = _reflection([1, -2, 3, 1, 0, 2, -1, 5, 4])
    second = _reflection([2, 1, 1, -3, 4, 0, 1, -1, 2])
    product = [
        [3 * sum(a * b for a, b in zip(row, column, strict=True)) for column in second]
        for row in first
    ]
    return np.array([[float(entry) for entry in row] for row in product]).astype(np.float32)


def _reflection(normal: list[int]) -> list[list[Fraction]]:
    """Return I − 2·v·vᵀ / vᵀ·v, exact; it is symmetric."""
    square = sum(a * a for a in normal)
    return [
        [Fraction(int(i == j)) - Fraction(2 * a * b, square) for j, b in enumerate(normal)]
        for i, a in enumerate(normal)
    ]


def _exact(
    name: str, shows: str, x: Array, had_k: Float32 | None, dtype: FloatDtype, *requirements: str
) -> Case:
    """Make a case of the exact class: the sign of a zero does not count."""
    stored = round_float64(x, dtype)
    output = value(hadamard(stored, had_k, dtype))
    return _case(name, shows, stored, had_k, dtype, output, (*requirements, *EXACT))


def _bounded(
    name: str, shows: str, x: Array, had_k: Float32 | None, dtype: FloatDtype, *requirements: str
) -> Case:
    stored = round_float64(x, dtype)
    output = between(hadamard_bounded(stored, had_k), dtype)
    return _case(name, shows, stored, had_k, dtype, output, (*requirements, *BOUNDED))


def _case(
    name: str,
    shows: str,
    x: Array,
    had_k: Float32 | None,
    dtype: FloatDtype,
    output: Interval,
    requirements: tuple[str, ...],
) -> Case:
    case_id = f"{OPERATION}/{name}-{SHORT[dtype]}"
    matrix = None if had_k is None else Tensor(f"{OPERATION}/{name}/had_k", had_k)
    return Case(
        id=case_id,
        shows=shows,
        requirements=requirements,
        parameters={"dtype": dtype},
        inputs={"x": Tensor(f"{case_id}/x", x), "had_k": matrix},
        outputs={"y": output},
    )
