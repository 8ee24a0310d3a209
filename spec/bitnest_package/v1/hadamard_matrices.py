"""Hadamard matrices of the orders that packages use, by construction.

Chapter 10.4 of the specification in code. A reader takes had_K from its package; this is for
producers and for tests. H is ±1 with
H·Hᵀ = K·I. Orders come from

- Sylvester: Kronecker products with the matrix of order 2;
- Paley I and II: the quadratic character χ of a field of q elements, q ≡ 3 mod 4 (order q + 1) or
  q ≡ 1 mod 4 (order 2q + 2);
- four circulants A, B, C, D of order n with A·Aᵀ + B·Bᵀ + C·Cᵀ + D·Dᵀ = 4n·I, put into the array of
  Goethals and Seidel (order 4n). Circulants that are invariant under a multiplier of the indices
  have few free signs, so that a search finds four of them in well under a second. If they are
  symmetric as well, they are what Williamson used.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
from nibblespec.spec.operations import Float32
from numpy.typing import NDArray

Integers = NDArray[np.int64]

PALEY_1 = (12, 20, 44, 60, 108, 140)
PALEY_2 = (28, 36, 52, 76, 148)

LARGEST_SEARCH = 12
"""Free signs of a sequence that the search covers: the square of 2^12 pairs."""


def order_for(width: int) -> int | None:
    """Return the smallest of ORDERS, K, for which width = K·2^k; None where there is none."""
    check_integer(width, "width", 1)
    quotients = ((order, width // order) for order in ORDERS if width % order == 0)
    return next((order for order, columns in quotients if columns.bit_count() == 1), None)


@cache
def hadamard_matrix(order: int) -> Float32:
    """Return a Hadamard matrix of one of ORDERS: float32 [K, K], ±1, read-only.

    Every call returns the same matrix. Raises TypeError where the order is no integer, ValueError
    where it is none of ORDERS.
    """
    check_integer(order, "order", 1)
    if order not in CONSTRUCTIONS:
        raise ValueError(f"order: expected one of {', '.join(map(str, ORDERS))}, found {order}")
    matrix = CONSTRUCTIONS[order]().astype(np.float32)
    matrix.flags.writeable = False
    return matrix


def sylvester(order: int) -> Integers:
    """Return the matrix of an order that is a power of two, [K, K].

    Raises ValueError for another order.
    """
    check_integer(order, "order", 1)
    if order.bit_count() != 1:
        raise ValueError(f"order: expected a power of two, found {order}")
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < order:
        matrix = np.kron(np.array([[1, 1], [1, -1]]), matrix)
    return matrix


def paley_1(order: int) -> Integers:
    """Return the matrix of order q + 1, for a prime q ≡ 3 mod 4.

    [[0, 1], [−1, χ(i − j)]] + I: χ is odd, so that the first part is skew. Raises ValueError for
    another q.
    """
    check_integer(order, "order", 4)
    check_field(order - 1, 3)
    matrix = np.ones((order, order), np.int64)
    matrix[1:, 0] = -1
    matrix[1:, 1:] = characters(order - 1)
    np.fill_diagonal(matrix, 1)
    return matrix


def paley_2(order: int) -> Integers:
    """Return the matrix of order 2q + 2, for a prime power q ≡ 1 mod 4.

    χ is even, so that C = [[0, 1], [1, χ(i − j)]] is symmetric. Each ±1 of C becomes ± one block,
    each 0, on the diagonal, another. Raises ValueError for another q.
    """
    check_integer(order, "order", 4)
    if order % 2:
        raise ValueError(f"order: expected an even number, found {order}")
    check_field(order // 2 - 1, 1)
    conference = np.ones((order // 2, order // 2), np.int64)
    conference[1:, 1:] = characters(order // 2 - 1)
    np.fill_diagonal(conference, 0)
    off_diagonal, diagonal = np.array([[1, 1], [1, -1]]), np.array([[1, -1], [-1, -1]])
    return np.kron(conference, off_diagonal) + np.kron(np.eye(order // 2, dtype=int), diagonal)


def characters(q: int) -> Integers:
    """Return χ(i − j) over the field of q elements, [q, q]: 1 for squares, −1 for others, χ(0) = 0.

    q is an odd prime, or the square of a prime p modulo which 2 is no square: then element a·p + b
    stands for a·√2 + b. Raises ValueError for another q.
    """
    check_integer(q, "q", 3)
    p = round(q**0.5)
    if p * p != q:
        elements = np.arange(q)
        difference = (elements[:, np.newaxis] - elements) % q
        squares = elements**2 % q
    else:
        a, b = np.divmod(np.arange(q), p)
        difference = (a[:, np.newaxis] - a) % p * p + (b[:, np.newaxis] - b) % p
        squares = 2 * a * b % p * p + (2 * a * a + b * b) % p
    if 2 * len(np.unique(squares)) != q + 1:
        raise ValueError(f"q: expected an odd prime, or the square of one, found {q}")
    character = np.full(q, -1)
    character[squares] = 1
    character[0] = 0
    table: Integers = character[difference]
    return table


def check_integer(value: object, name: str, low: int) -> None:
    """Require an int of at least `low`; no bool."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an integer, found {value!r}")
    if value < low:
        raise ValueError(f"{name}: expected at least {low}, found {value}")


def check_field(q: int, remainder: int) -> None:
    """Require that q leaves the remainder modulo 4; whether it fits a field, `characters` says."""
    if q % 4 != remainder:
        raise ValueError(f"order: expected a field of q ≡ {remainder} mod 4 elements, found {q}")


def goethals_seidel(n: int, multiplier: int, symmetric: bool) -> Integers:
    """Return the matrix of order 4n from four circulants invariant under the multiplier mod n."""
    first_rows = complementary_sequences(n, multiplier, symmetric)
    shifts = (np.arange(n) - np.arange(n)[:, np.newaxis]) % n
    a, b, c, d = (row[shifts] for row in first_rows)
    # R reverses the columns.
    br, cr, dr = b[:, ::-1], c[:, ::-1], d[:, ::-1]
    btr, ctr, dtr = b.T[:, ::-1], c.T[:, ::-1], d.T[:, ::-1]
    return np.block(
        [
            [a, br, cr, dr],
            [-br, a, dtr, -ctr],
            [-cr, -dtr, a, btr],
            [-dr, ctr, -btr, a],
        ]
    )


def complementary_sequences(n: int, multiplier: int, symmetric: bool) -> Integers:
    """Return four ±1 sequences [4, n] whose periodic autocorrelations add up to 0 at every shift.

    Each is constant on the orbits of the indices under the multiplier (and under −1 if symmetric),
    and starts with 1. Meeting in the middle: of all pairs, two whose sums of autocorrelations are
    opposite. Raises ValueError where there are none, or too many sequences to search.
    """
    units = [multiplier, n - 1] if symmetric else [multiplier]
    orbit = orbits(n, units)
    if orbit.max() > LARGEST_SEARCH:
        raise ValueError(
            f"multiplier: expected at most {LARGEST_SEARCH} free signs, found {orbit.max()}"
        )
    signs = 1 - 2 * (np.arange(2 ** orbit.max())[:, np.newaxis] >> np.arange(orbit.max()) & 1)
    sequences = np.hstack([np.ones((len(signs), 1), np.int64), signs])[:, orbit]
    spectrum = np.abs(np.fft.fft(sequences)) ** 2
    correlations = np.rint(np.fft.ifft(spectrum).real).astype(np.int64)

    # One number for each sequence's autocorrelations, such that adding numbers adds digits. Shifts
    # of one orbit have the same autocorrelation.
    shift_orbit = orbits(n, [multiplier, n - 1])
    shifts = [int(np.argmax(shift_orbit == index)) for index in range(1, shift_orbit.max() + 1)]
    keys = correlations[:, shifts] @ (8 * n + 1) ** np.arange(len(shifts))
    pair_keys = (keys[:, np.newaxis] + keys).reshape(-1)
    order = np.argsort(pair_keys, kind="stable")
    place = np.searchsorted(pair_keys, -pair_keys, sorter=order)
    partner = order[np.minimum(place, len(order) - 1)]
    matches = pair_keys[partner] == -pair_keys
    if not matches.any():
        raise ValueError(f"n: no four sequences of {n} are invariant under {units}")
    first = int(np.argmax(matches))
    chosen = [*divmod(first, len(keys)), *divmod(int(partner[first]), len(keys))]
    return sequences[chosen]


def orbits(n: int, units: list[int]) -> Integers:
    """Return for each index mod n the number of its orbit under multiplication by the units, [n].

    The orbit of 0 has the number 0; the others follow in the order of their smallest index.
    """
    number = np.full(n, -1)
    for start in range(n):
        if number[start] >= 0:
            continue
        label = number.max() + 1
        waiting = [start]
        while waiting:
            index = waiting.pop()
            if number[index] < 0:
                number[index] = label
                waiting += [index * unit % n for unit in units]
    return number


def doubled(order: int) -> Integers:
    """Return the matrix of twice the order of a Paley matrix."""
    return np.kron(sylvester(2), paley_1(order))


CONSTRUCTIONS: Mapping[int, Callable[[], Integers]] = {
    **{order: partial(sylvester, order) for order in (1, 2, 4)},
    **{order: partial(paley_1, order) for order in PALEY_1},
    **{order: partial(paley_2, order) for order in PALEY_2},
    40: partial(doubled, 20),
    156: partial(goethals_seidel, 39, multiplier=5, symmetric=False),
    172: partial(goethals_seidel, 43, multiplier=6, symmetric=True),
}
"""How the matrix of each order is made, from its order."""

ORDERS = tuple(sorted(CONSTRUCTIONS))
"""The orders of published packages and of the wider field."""
