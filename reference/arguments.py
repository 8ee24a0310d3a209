"""Checks of arguments, shared by every operation of the reference.

Each returns nothing and raises: TypeError for the wrong kind of thing (no array, wrong dtype, no
integer), ValueError for a wrong rank, size or value. Messages name the argument, what was
expected and what was found.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from nibblespec.reference.rounding import DTYPES
from numpy.typing import NDArray

Shape = tuple[int | str | None, ...]
"""A shape: an int is that size, a name or None is any size. `("M", 64)` is a matrix 64 wide."""


def check_array(value: object, name: str, dtypes: str | Collection[str], shape: Shape) -> None:
    """Require an array of one of `dtypes` (names) with the rank and sizes of `shape`.

    A leading `...` in `shape` is written as the string "...": any number of axes, none included.
    """
    allowed = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name}: expected a NumPy array, found {type(value).__name__}")
    if all(value.dtype != DTYPES.get(dtype, dtype) for dtype in allowed):
        raise TypeError(f"{name}: expected dtype {' or '.join(allowed)}, found {value.dtype}")
    leading = shape[:1] == ("...",)
    sizes = shape[1:] if leading else shape
    tail = value.shape[value.ndim - len(sizes) :] if value.ndim >= len(sizes) else ()
    right_rank = value.ndim >= len(sizes) if leading else value.ndim == len(sizes)
    if not right_rank or any(
        isinstance(size, int) and size != found for size, found in zip(sizes, tail, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: expected shape [{wanted}], found {list(value.shape)}")


def check_not_empty(value: NDArray[Any], name: str) -> None:
    """Require that no axis has size 0."""
    if value.size == 0:
        raise ValueError(f"{name}: expected no axis of size 0, found shape {list(value.shape)}")


def check_finite(value: NDArray[Any], name: str) -> None:
    """Require that no element is infinite or NaN."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is found, not warned of
        finite = np.isfinite(value)
    _check_all(finite, value, name, "finite elements")


def check_range(value: NDArray[Any], name: str, low: int, high: int) -> None:
    """Require that every element of an integer array is in low … high, both included."""
    _check_all((value >= low) & (value <= high), value, name, f"elements in {low} … {high}")


def check_integer(value: object, name: str, low: int, high: int | None = None) -> None:
    """Require an int in low … high, both included (`high` None: no upper end); no bool."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, found {value!r}")
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"{low} … {high}"
        raise ValueError(f"{name}: expected {wanted}, found {value}")


def check_choice(value: object, name: str, choices: Collection[str]) -> None:
    """Require one of the given strings."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, found {value!r}")
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")


def check_divides(divisor: int, value: int, name: str, of: str) -> None:
    """Require that `divisor` (the argument `name`) divides `value` (described by `of`)."""
    if value % divisor:
        raise ValueError(f"{name}: expected a divisor of {of} = {value}, found {divisor}")


def _check_all(good: NDArray[Any], value: NDArray[Any], name: str, wanted: str) -> None:
    """Raise at the first element that is not good."""
    if not good.all():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmin(good)), value.shape))
        raise ValueError(f"{name}: expected {wanted}, found {value[index]} at {list(index)}")
