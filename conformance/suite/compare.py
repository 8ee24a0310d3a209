"""The three comparisons, one per conformance class. Each raises Violation with the evidence.

Exact: equal bit for bit, signed zeros included; any two NaNs are equal. Bounded: between the
float64 evaluation minus its bound and plus its bound, each rounded to the output dtype. Invariant:
two answers of the backend itself, equal bit for bit.
"""

from typing import Any

import numpy as np
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.reference.bounds import Bounded, interval, outside
from numpy.typing import NDArray

Array = NDArray[Any]
Index = tuple[int, ...]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def bits(values: Array) -> NDArray[Any]:
    """Return the bit patterns of an array as unsigned integers of the same width."""
    return np.ascontiguousarray(values).view(_UNSIGNED[values.dtype.itemsize])


def expect_equal(what: str, found: Array, expected: Array) -> None:
    """Exact class: `found` has the bits of `expected`. `what` names operation and output."""
    _expect_same_form(what, found, expected)
    differs = differ(found, expected)
    if differs.any():
        raise Violation(
            f"{what}: differs from the specification's value\n"
            + _first_difference(differs, expected, found, "expected", "found")
            + f"\n{_count(differs)}{_extent(differs, found, expected)}"
        )


def expect_same(what: str, found: Array, other: Array, how: str) -> None:
    """Invariant class: two answers of the backend agree in every bit.

    `how` says where the second answer comes from: "alone", "in a call of 33 rows".
    """
    _expect_same_form(what, found, other)
    differs = differ(found, other)
    if differs.any():
        raise Violation(
            f"{what}: the same element has two values\n"
            + _first_difference(differs, other, found, how, "here")
            + f"\n{_count(differs)}{_extent(differs, found, other)}"
        )


def expect_within(what: str, found: Array, bounded: Bounded) -> None:
    """Bounded class: no element of `found` is outside the interval that its bound leaves."""
    low, high = interval(bounded, found.dtype.name)
    _expect_same_form(what, found, low)
    wrong = outside(found, bounded)
    if wrong.any():
        first = _first(wrong)
        with np.errstate(invalid="ignore"):
            error = np.abs(found.astype(np.float64) - bounded.value)
        worst = _unravel(
            int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1))), low.shape
        )
        raise Violation(
            f"{what}: outside the bound of the float64 evaluation\n"
            f"first at {list(first)}: expected {bounded.value[first]:.9g} ± "
            f"{bounded.error[first]:.3g}, so {value_text(low, first)} … {value_text(high, first)}, "
            f"found {value_text(found, first)}\n"
            f"{_count(wrong)}; largest error {error[worst]:.3g} at {list(worst)}, "
            f"where the bound is {bounded.error[worst]:.3g} before rounding"
        )


def _expect_same_form(what: str, found: Array, expected: Array) -> None:
    """Guard the comparisons against broadcasting; a backend's output was checked before."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise Violation(
            f"{what}: expected {expected.dtype} {list(expected.shape)}, "
            f"found {found.dtype} {list(found.shape)}"
        )


def _first_difference(differs: Array, one: Array, two: Array, name: str, other: str) -> str:
    first = _first(differs)
    values = f"{name} {value_text(one, first)}, {other} {value_text(two, first)}"
    return f"first at {list(first)}: {values}"


def differ(one: Array, two: Array) -> NDArray[np.bool_]:
    """Tell where two arrays of one dtype differ in a bit; any two NaNs are equal."""
    differs: NDArray[np.bool_] = bits(one) != bits(two)
    if one.dtype.kind not in "iu" and differs.any():
        differs &= ~(np.isnan(one) & np.isnan(two))
    return differs


def _first(mask: Array) -> Index:
    return _unravel(int(np.argmax(mask)), mask.shape)


def _unravel(flat: int, shape: Index) -> Index:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def value_text(values: Array, index: Index) -> str:
    """Write one element as a value and as its bits."""
    value = values[index]
    shown = int(value) if values.dtype.kind in "iu" else float(value)
    digits = values.dtype.itemsize * 2
    return f"{shown!r} (0x{int(bits(values)[index]):0{digits}x})"


def _count(mask: Array) -> str:
    return f"{int(mask.sum())} of {mask.size} elements"


def _extent(differs: Array, found: Array, expected: Array) -> str:
    """Say how far elements are apart, where that is a number; else what the bits show is all."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    difference[~differs] = 0  # inf - inf, where both are right
    if not np.isfinite(difference).all():
        return ""
    where = _unravel(int(np.argmax(difference)), found.shape)
    if difference[where] == 0:
        return "; the sign of zero is the only difference"
    return f"; largest difference {difference[where]:.6g} at {list(where)}"
