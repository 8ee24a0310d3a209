"""Cases of dashq_linear.

Inputs have so few digits that every sum of the bounds is exact in float64: no order of summation,
thus no mathematical library, shows in the intervals.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from nibblespec.conformance.vectors.case import Case, Tensor, between
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, SHORT
from nibblespec.conformance.vectors.cases.packed import (
    Packed,
    any_weight,
    describe,
    description,
    packed,
    tensors,
)
from nibblespec.conformance.vectors.streams import floats, grid, integers
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.reference.rounding import Float64, round_float64
from nibblespec.spec.operations import DashqRounding, FloatDtype, LinearWeightRounding

OPERATION = "dashq_linear"

ZERO_EXPONENT = -6

ANY = "any"
"""An evaluation or a rounding of the weight: whatever the backend declares, the result is this."""

Way = tuple[DashqRounding, LinearWeightRounding]

WAYS: tuple[Way, ...] = (
    ("fused", "rounded"),
    ("fused", "unrounded"),
    ("stepwise", "rounded"),
    ("bf16-params", "rounded"),
    ("bf16-params", "unrounded"),
)
"""Evaluation and rounding of the weight; the weight of `stepwise` is rounded in any case."""

BOUND = {"rounded": "NUM-LINEAR-DASHQ-ROUNDED", "unrounded": "NUM-LINEAR-DASHQ-UNROUNDED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer before its dtype is chosen. x [M, K] and bias [N] are exact in float64."""

    weight: Packed
    x: Float64
    bias: Float64 | None
    shows: str
    requirements: tuple[str, ...]


def cases() -> Iterator[Case]:
    """Yield layers in every linear_dtype and every way to round the weight, and exact sums."""
    for layer in _layers():
        for dtype in DTYPES:
            for way in WAYS:
                yield _bounded(layer, dtype, way)
    for nbits in range(1, 9):
        for dtype in DTYPES:
            yield _exact(nbits, dtype)


def _layers() -> Iterator[Layer]:
    weight = any_weight(f"{OPERATION}/int4-g32", describe(5, 64, 4, 32), ZERO_EXPONENT)
    yield Layer(
        weight=weight,
        x=floats(f"{weight.name} x", (3, 64), -3, 0, 16),
        bias=None,
        shows="three rows, no bias",
        requirements=("DQ1-LINEAR-FORMULA",),
    )
    weight = any_weight(f"{OPERATION}/int3-straddle", describe(5, 21, 3, 7), ZERO_EXPONENT)
    yield Layer(
        weight=weight,
        x=floats(f"{weight.name} x", (1, 21), -3, 0, 16),
        bias=floats(f"{weight.name} bias", (5,), -2, 1, 16),
        shows="one row, rows of the weight end inside words",
        requirements=("DQ1-LINEAR-BIAS", "DQ1-PACKING-ROWS"),
    )
    weight = any_weight(f"{OPERATION}/int2-padded", describe(5, 20, 2, 8, 24), ZERO_EXPONENT)
    yield Layer(
        weight=weight,
        x=floats(f"{weight.name} x", (3, 20), -3, 0, 16),
        bias=floats(f"{weight.name} bias", (5,), 3, 5, 16),
        shows="20 of 24 columns are the weight; a bias that dominates",
        requirements=("DQ1-LINEAR-PADDING", "DQ1-LINEAR-BIAS"),
    )
    weight = any_weight(f"{OPERATION}/int8-outliers", describe(4, 33, 8, 11), ZERO_EXPONENT)
    x = floats(f"{weight.name} x", (7, 33), -2, -1, 10)
    x[[1, 4], [0, 32]] = [90.0, -150.0]
    yield Layer(
        weight=weight,
        x=x,
        bias=None,
        shows="tokens with outliers",
        requirements=("NUM-LINEAR-ACCUMULATE",),
    )
    weight = any_weight(f"{OPERATION}/int6-off-centre", describe(4, 48, 6, 16), ZERO_EXPONENT)
    yield Layer(
        weight=weight,
        x=grid(f"{weight.name} x", (3, 48), 96, 128, 0),
        bias=floats(f"{weight.name} bias", (4,), 0, 3, 16),
        shows="data far from zero",
        requirements=("NUM-LINEAR-ACCUMULATE", "DQ1-LINEAR-BIAS"),
    )


def _bounded(layer: Layer, dtype: FloatDtype, way: Way) -> Case:
    evaluation, rounding = way
    stepwise = evaluation == "stepwise"
    return _case(
        layer,
        dtype,
        way,
        suffix="-stepwise" if stepwise else f"-{evaluation}-{rounding}",
        declared=(evaluation, ANY if stepwise else rounding),
        requirements=(*layer.requirements, BOUND[rounding], "DQ1-LINEAR-DTYPE"),
    )


def _exact(nbits: int, dtype: FloatDtype) -> Case:
    """Return a layer of whole numbers and powers of two, the same in every evaluation."""
    name = f"{OPERATION}/int{nbits}-exact"
    module = describe(5, 36, nbits, 12)
    groups = (module.num_groups, 1)
    codes = integers(f"{name} codes", (5, 36), 0, 2**nbits - 1)
    middle = 2 ** (nbits - 1)
    zero = grid(f"{name} zero", groups, middle - 1, middle, 0)
    scale = np.ldexp(1.0, integers(f"{name} scale", groups, -3, 0))
    layer = Layer(
        weight=packed(name, codes, scale, zero, module),
        x=grid(f"{name} x", (3, 36), -9, 9, 0),
        bias=grid(f"{name} bias", (5,), -200, 200, -3),
        shows="whole numbers and powers of two: no step rounds, one wrong code shows",
        requirements=(),
    )
    return _case(
        layer,
        dtype,
        ("fused", "unrounded"),
        suffix="",
        declared=(ANY, ANY),
        requirements=(
            "DQ1-LINEAR-FORMULA",
            "DQ1-LINEAR-BIAS",
            "DQ1-PACKING-ORDER",
            *BOUND.values(),
        ),
    )


def _case(
    layer: Layer,
    dtype: FloatDtype,
    way: Way,
    *,
    suffix: str,
    declared: tuple[str, str],
    requirements: tuple[str, ...],
) -> Case:
    """Make a case that is evaluated one way, for the backends that declare this."""
    weight = layer.weight
    module = weight.module.model_copy(update={"linear_dtype": dtype})
    x = round_float64(layer.x, dtype)
    bias = None if layer.bias is None else round_float64(layer.bias, dtype)
    bounded = dashq_linear_bounded(x, weight.words, weight.scale, weight.zero, bias, module, *way)
    stem = f"{weight.name}-{SHORT[dtype]}"
    return Case(
        id=f"{stem}{suffix}",
        shows=layer.shows,
        requirements=requirements,
        parameters={
            "module": description(module),
            "evaluation": declared[0],
            "weight_rounding": declared[1],
        },
        inputs={
            "x": Tensor(f"{stem}/x", x),
            **tensors(weight),
            "bias": None if bias is None else Tensor(f"{stem}/bias", bias),
        },
        outputs={"y": between(bounded, dtype)},
    )
