"""Checks of arguments: what each message says."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from nibblespec.reference.arguments import (
    Shape,
    check_array,
    check_choice,
    check_divides,
    check_finite,
    check_integer,
    check_not_empty,
    check_range,
)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 3), ("N", 3)),
        ((2, 3), (None, "K")),
        ((), ()),
        ((0, 3), ("N", 3)),
        ((5, 2, 3), ("...", 2, 3)),
        ((2, 3), ("...", 2, 3)),
    ],
)
def test_shapes_that_fit_are_accepted(shape: tuple[int, ...], wanted: Shape) -> None:
    check_array(np.zeros(shape, np.uint8), "a", "uint8", wanted)


@pytest.mark.parametrize(
    ("shape", "wanted", "message"),
    [
        ((2, 3), ("N", 4), r"a: expected shape \[N, 4\], found \[2, 3\]"),
        ((3,), ("N", 3), r"a: expected shape \[N, 3\], found \[3\]"),
        ((1, 2, 3), ("N", 3), r"a: expected shape \[N, 3\], found \[1, 2, 3\]"),
        ((3,), ("...", 2, 3), r"a: expected shape \[..., 2, 3\], found \[3\]"),
        ((4, 2, 5), ("...", 2, 3), r"a: expected shape \[..., 2, 3\], found \[4, 2, 5\]"),
        ((), (None,), r"a: expected shape \[any\], found \[\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shape: tuple[int, ...], wanted: Shape, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_array(np.zeros(shape, np.uint8), "a", "uint8", wanted)


@pytest.mark.parametrize("found", ["float32", ">f2", "int16"])
def test_a_dtype_that_is_not_listed_is_refused(found: str) -> None:
    with pytest.raises(TypeError, match=f"a: expected dtype float16 or bfloat16, found {found}"):
        check_array(np.zeros(1, found), "a", ("float16", "bfloat16"), (1,))


def test_dtypes_of_ml_dtypes_are_known_by_name() -> None:
    check_array(np.zeros(1, ml_dtypes.bfloat16), "a", "bfloat16", (1,))
    check_array(np.zeros(1, ml_dtypes.float8_e4m3fn), "a", "float8_e4m3fn", (1,))


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match="a: expected a NumPy array, found float"):
        check_array(1.0, "a", "float32", ())


def test_the_first_element_that_is_not_finite_is_named() -> None:
    values = np.array([[0, 1], [np.inf, np.nan]], ml_dtypes.bfloat16)
    check_finite(values[:1], "a")
    with pytest.raises(ValueError, match=r"a: expected finite elements, found inf at \[1, 0\]"):
        check_finite(values, "a")


def test_a_signalling_nan_is_refused_without_a_warning() -> None:
    signalling = np.array([0x7F81], np.uint16).view(ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"a: expected finite elements, found nan at \[0\]"):
        check_finite(signalling, "a")


def test_the_first_element_out_of_range_is_named() -> None:
    check_range(np.array([-8, 7]), "a", -8, 7)
    with pytest.raises(ValueError, match=r"a: expected elements in -8 … 7, found 8 at \[1\]"):
        check_range(np.array([0, 8, -9]), "a", -8, 7)


def test_an_axis_of_size_zero_is_refused() -> None:
    check_not_empty(np.zeros((1, 1)), "a")
    with pytest.raises(ValueError, match=r"a: expected no axis of size 0, found shape \[3, 0\]"):
        check_not_empty(np.zeros((3, 0)), "a")


@pytest.mark.parametrize("value", [1, 8, np.int64(3)])
def test_integers_in_range_are_accepted(value: int) -> None:
    check_integer(value, "a", 1, 8)


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (lambda: check_integer(0, "a", 1, 8), ValueError, "a: expected 1 … 8, found 0"),
        (lambda: check_integer(0, "a", 1), ValueError, "a: expected at least 1, found 0"),
        (lambda: check_integer(True, "a", 1), TypeError, "a: expected an integer, found True"),
        (lambda: check_integer(1.0, "a", 1), TypeError, "a: expected an integer, found 1.0"),
        (lambda: check_choice("x", "a", ("y", "z")), ValueError, "a: expected one of y, z, found"),
        (lambda: check_choice(1, "a", ("y",)), TypeError, "a: expected a string, found 1"),
        (
            lambda: check_divides(3, 8, "a", "K"),
            ValueError,
            "a: expected a divisor of K = 8, found",
        ),
    ],
)
def test_wrong_numbers_and_names_are_refused(
    check: Callable[[], None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check()
