"""Hadamard matrices by construction: ±1, orthogonal, and of every order that packages use."""

from collections.abc import Callable

import numpy as np
import pytest
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import (
    ORDERS,
    Integers,
    characters,
    complementary_sequences,
    hadamard_matrix,
    orbits,
    order_for,
    paley_1,
    paley_2,
    sylvester,
)

PUBLISHED = {28, 148, 172}
WIDER_FIELD = {12, 20, 36, 40, 44, 52, 60, 76, 108, 140, 156}


def test_every_order_that_packages_use_is_there() -> None:
    assert PUBLISHED | WIDER_FIELD | {1, 2, 4} == set(ORDERS)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_orthogonal_and_of_signs(order: int) -> None:
    matrix = hadamard_matrix(order)
    assert matrix.dtype == np.float32
    assert matrix.shape == (order, order)
    assert (np.abs(matrix) == 1).all()
    wide = matrix.astype(np.int64)
    assert np.array_equal(wide @ wide.T, order * np.eye(order, dtype=np.int64))


@pytest.mark.parametrize("order", [12, 20, 40, 44, 60, 108, 140, 156, 172])
def test_these_orders_can_tell_a_matrix_from_its_transpose(order: int) -> None:
    matrix = hadamard_matrix(order)
    assert not np.array_equal(matrix, matrix.T)


def test_every_call_returns_the_same_matrix_and_nobody_can_change_it() -> None:
    matrix = hadamard_matrix(156)
    assert hadamard_matrix(156) is matrix
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 5


@pytest.mark.parametrize("q", [7, 11, 13, 17, 19, 25, 73])
def test_half_of_the_other_elements_of_a_field_are_squares(q: int) -> None:
    row = characters(q)[0]
    assert row[0] == 0
    assert sorted(row[1:].tolist()) == [-1] * (q // 2) + [1] * (q // 2)


def test_minus_one_is_a_square_in_the_field_of_25_elements() -> None:
    table = characters(25)
    assert np.array_equal(table, table.T)


def test_differences_in_the_field_of_25_elements_are_by_coordinates() -> None:
    # 5 stands for √2 and 1 for 1: √2 − 1 is 9 as 1·5 + 4, since −1 is 4 mod 5.
    table = characters(25)
    assert table[5, 1] == table[9, 0]


def test_orbits_under_a_multiplier() -> None:
    assert orbits(7, [2]).tolist() == [0, 1, 1, 2, 1, 2, 2]
    assert orbits(7, [2, 6]).tolist() == [0, 1, 1, 1, 1, 1, 1]


def test_the_sequences_of_williamson_are_symmetric() -> None:
    sequences = complementary_sequences(43, 6, symmetric=True)
    assert np.array_equal(sequences[:, 1:], sequences[:, :0:-1])


@pytest.mark.parametrize(("n", "multiplier", "symmetric"), [(43, 6, True), (39, 5, False)])
def test_autocorrelations_add_up_to_nothing(n: int, multiplier: int, symmetric: bool) -> None:
    sequences = complementary_sequences(n, multiplier, symmetric)
    for shift in range(1, n):
        assert sum(int(s @ np.roll(s, shift)) for s in sequences) == 0
        assert np.array_equal(sequences[:, shift], sequences[:, shift * multiplier % n])


@pytest.mark.parametrize("order", [0, 3, 12])
def test_sylvester_has_powers_of_two_only(order: int) -> None:
    with pytest.raises(ValueError, match="order: expected"):
        sylvester(order)


@pytest.mark.parametrize(
    ("construct", "order", "message"),
    [
        (paley_1, 14, "order: expected a field of q ≡ 3 mod 4 elements, found 13"),
        (paley_1, 16, "q: expected an odd prime, or the square of one, found 15"),
        (paley_1, 0, "order: expected at least 4"),
        (paley_2, 16, "order: expected a field of q ≡ 1 mod 4 elements, found 7"),
        (paley_2, 13, "order: expected an even number, found 13"),
        (paley_2, 44, "q: expected an odd prime, or the square of one, found 21"),
        (paley_2, 100, "q: expected an odd prime, or the square of one, found 49"),
        (characters, 4, "q: expected an odd prime, or the square of one, found 4"),
    ],
)
def test_paley_needs_a_field(
    construct: Callable[[int], Integers], order: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        construct(order)


def test_a_search_that_would_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 12 free signs, found 30"):
        complementary_sequences(31, 1, symmetric=False)


def test_a_search_without_a_result_says_so() -> None:
    with pytest.raises(ValueError, match="no four sequences of 5 are invariant"):
        complementary_sequences(5, 2, symmetric=False)


@pytest.mark.parametrize("order", [0, -1, 3, 6, 8, 92, 668])
def test_other_orders_are_refused(order: int) -> None:
    with pytest.raises(ValueError, match="order: expected"):
        hadamard_matrix(order)


@pytest.mark.parametrize("order", [12.0, "12", True, None])
def test_an_order_is_an_integer(order: object) -> None:
    with pytest.raises(TypeError, match="order: expected an integer"):
        hadamard_matrix(order)


@pytest.mark.parametrize(
    ("width", "order"),
    [
        (1, 1),
        (576, 36),
        (1536, 12),
        (4864, 76),
        (8192, 1),
        (11008, 172),
        (14336, 28),
        (18944, 148),
        (96, 12),
        (6, None),
        (8960, 140),
    ],
)
def test_a_width_has_the_smallest_order_that_leaves_a_power_of_two(
    width: int, order: int | None
) -> None:
    assert order_for(width) == order
