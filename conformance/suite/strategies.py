"""What the suite draws from: values of every kind that the backend claims, and no others.

Hypothesis draws a few small numbers, which shrink well and are printed with a failure; NumPy makes
the arrays from them. The domains of the tests are built from what is here.
"""

from typing import TypeVar, get_args

from hypothesis import strategies as st
from nibblespec.conformance.suite.backends import SCALE_ZERO_DTYPES
from nibblespec.conformance.suite.gate import claimed, require
from nibblespec.conformance.suite.properties import Domain
from nibblespec.spec.operations import Capabilities, FloatDtype

Case = TypeVar("Case")

BIT_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8)
FLOAT_DTYPES: tuple[FloatDtype, ...] = get_args(FloatDtype)
GROUP_SIZES = (128, 64, 32, 16, 8, 40, 12, 7, 3, 1)
"""Published ones first, then such as end inside a word."""

HEAD_DIMS = (128, 64, 96, 80, 192, 256, 2)
"""Powers of two, and others, which leave lanes of a block empty."""

ROWS = (1, 2, 3, 5, 7, 16, 17, 33)
"""Numbers of rows: one, odd ones, both sides of usual block sizes."""

SEEDS = st.integers(0, 2**16)


def only(*cases: Case) -> Domain[Case]:
    """Make a domain of these cases and no others."""
    return Domain(cases, None)


def bit_widths(capabilities: Capabilities) -> tuple[int, ...]:
    """Return the claimed bit widths of codes."""
    return claimed(BIT_WIDTHS, capabilities.bit_widths, "a bit width")


def float_dtypes(capabilities: Capabilities) -> tuple[FloatDtype, ...]:
    """Return the claimed dtypes of inputs and outputs."""
    return claimed(FLOAT_DTYPES, capabilities.dtypes, "a dtype")


def scale_zero_dtypes(capabilities: Capabilities) -> tuple[str, ...]:
    """Return the claimed dtypes of scales and zero points."""
    return claimed(SCALE_ZERO_DTYPES, capabilities.scale_zero_dtypes, "a dtype of scales")


def group_sizes(capabilities: Capabilities) -> tuple[int, ...]:
    """Return the group sizes to draw from: the claimed ones, or a range of all kinds."""
    sizes = GROUP_SIZES if capabilities.group_sizes is None else capabilities.group_sizes
    require(bool(sizes), "a group size")
    return sizes


def head_dims(capabilities: Capabilities) -> tuple[int, ...]:
    """Return the widths of heads to draw from: the claimed ones, or a range of all kinds."""
    dims = HEAD_DIMS if capabilities.head_dims is None else capabilities.head_dims
    require(bool(dims), "a head_dim")
    return dims
