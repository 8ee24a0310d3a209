"""Cases of nested_linear, in its integer sums and in the mode prefill-f16."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from nibblespec.conformance.vectors.case import Case, Interval, Tensor, between
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, PLANES, SHORT
from nibblespec.conformance.vectors.cases.planes import (
    Planes,
    any_codes,
    nested_weight,
    plane_tensors,
)
from nibblespec.conformance.vectors.streams import grid, integers
from nibblespec.reference.bounds_nested import nested_linear_bounded, prefill_f16_bounded
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import round_float64
from nibblespec.spec.operations import Float16, Float32, FloatDtype, Nibbles, Plane

OPERATION = "nested_linear"

INTEGER, PREFILL = "integer", "prefill-f16"
"""Modes of the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer and its input, before plane and dtype are chosen."""

    weight: Planes
    xq: Nibbles
    sx: Float32
    bias: Float16 | None
    shows: str
    requirements: tuple[str, ...]
    mode: str = INTEGER


def cases() -> Iterator[Case]:
    """Yield layers in both planes and every dtype."""
    layers = [*_exact_layers(), *_bounded_layers(), _prefill_layer()]
    for layer, plane, dtype in product(layers, PLANES, DTYPES):
        yield _case(layer, plane, dtype)


def _exact_layers() -> Iterator[Layer]:
    name = f"{OPERATION}/exact"
    hi, lo = pack_planes(*any_codes(name, (5, 64)))
    yield Layer(
        weight=Planes(name, hi, lo, np.full((5, 1), 0.25, np.float16)),
        xq=integers(f"{name} xq", (3, 64), -128, 127).astype(np.int8),
        sx=np.ones((3, 1), np.float32),
        bias=None,
        shows="one group, sx = 1, scale 2^-2: the integer product itself",
        requirements=("BN1-LINEAR-DOT",),
    )
    name = f"{OPERATION}/exact-extremes"
    q4, qr = np.array([[-8], [7]], np.int8), np.array([[0], [7]], np.int8)
    hi, lo = pack_planes(q4.repeat(1024, 1), qr.repeat(1024, 1))
    yield Layer(
        weight=Planes(name, hi, lo, np.full((2, 1), 2.0**-9, np.float16)),
        xq=np.array([[-128], [127]], np.int8).repeat(1024, 1),
        sx=np.ones((2, 1), np.float32),
        bias=None,
        shows="the extreme codes in 1024 columns: sums up to 2^24",
        requirements=("BN1-LINEAR-DOT", "BN1-LINEAR-TARGET"),
    )
    name = f"{OPERATION}/exact-segments"
    hi, lo = pack_planes(*any_codes(name, (4, 24)))
    scale = np.ldexp(1.0, integers(f"{name} scale", (4, 4), -3, 2))
    sx = np.ldexp(1.0, integers(f"{name} sx", (3, 3), -2, 2))
    yield Layer(
        weight=Planes(name, hi, lo, scale.astype(np.float16)),
        xq=integers(f"{name} xq", (3, 24), -128, 127).astype(np.int8),
        sx=sx.astype(np.float32),
        bias=np.array([0.5, -20, 300, 0], np.float16),
        shows="powers of two as scales; groups of 6 and of 8 columns; a bias",
        requirements=("BN1-LINEAR-SEGMENTS", "BN1-LINEAR-BIAS", "BN1-LINEAR-DOT"),
    )
    q4 = np.array([[-8, -1, 0, 7, 3, -5]], np.int8)
    qr = np.array([[5, -8, 7, -1, 0, 2]], np.int8)
    hi, lo = pack_planes(q4, qr)
    yield Layer(
        weight=Planes(f"{OPERATION}/exact-example", hi, lo, np.array([[1, 0.25, 4]], np.float16)),
        xq=np.array([[1, -2, 3, 4, -5, 6]], np.int8),
        sx=np.array([[0.5, 2]], np.float32),
        bias=np.array([0.5], np.float16),
        shows="the example of bitnest-package-v1, 9.1",
        requirements=("BN1-LINEAR-SEGMENTS", "BN1-LINEAR-TARGET", "BN1-LINEAR-BIAS"),
    )


def _bounded_layers() -> Iterator[Layer]:
    for name, rows, groups, group, width, shows, requirements in (
        ("groups", 3, 4, 16, 64, "four groups, one scale a token", ("BN1-LINEAR-TARGET",)),
        ("one-row", 1, 2, 32, 64, "one token", ("BN1-LINEAR-TARGET",)),
        ("refined", 3, 4, 6, 8, "neither group width divides the other", ("BN1-LINEAR-SEGMENTS",)),
        ("narrow-input", 3, 2, 32, 8, "narrower groups in the input", ("BN1-LINEAR-SEGMENTS",)),
        ("narrow-weight", 3, 8, 8, 32, "narrower groups in the weight", ("BN1-LINEAR-SEGMENTS",)),
    ):
        yield _any_layer(name, rows, groups, group, width, shows, requirements)
    layer = _any_layer("zero-group", 3, 4, 16, 64, "a group of scale zero", ("BN1-LINEAR-DOT",))
    scale = layer.weight.scale
    scale[:, 1] = 0
    yield layer


def _prefill_layer() -> Layer:
    layer = _any_layer(
        "prefill-f16", 65, 2, 16, 16, "weight and input in float16", ("BN1-LINEAR-PREFILL",)
    )
    return replace(layer, mode=PREFILL)


def _any_layer(
    name: str,
    rows: int,
    groups: int,
    group: int,
    width: int,
    shows: str,
    requirements: tuple[str, ...],
) -> Layer:
    """Return any codes and scales; the input's groups are `width` columns wide."""
    stem = f"{OPERATION}/{name}"
    columns = groups * group
    weight = nested_weight(stem, 4, groups, group)
    # 16 digits, so that every sum of the bounds is exact in float64, in any order.
    sx = grid(f"{stem} sx", (rows, columns // width), 2**13, 2**16, -20)
    bias = grid(f"{stem} bias", (4,), -3000, 3000, -10)
    return Layer(
        weight=weight,
        xq=integers(f"{stem} xq", (rows, columns), -128, 127).astype(np.int8),
        sx=round_float64(sx, "float32"),
        bias=None if rows == 1 else round_float64(bias, "float16"),
        shows=shows,
        requirements=requirements,
    )


def _case(layer: Layer, plane: Plane, dtype: FloatDtype) -> Case:
    weight, prefill = layer.weight, layer.mode == PREFILL
    bounded = (prefill_f16_bounded if prefill else nested_linear_bounded)(
        layer.xq, layer.sx, weight.hi, weight.lo, weight.scale, layer.bias, plane
    )
    output: Interval = between(bounded, dtype)
    bound = "NUM-LINEAR-PREFILL-F16" if prefill else "NUM-LINEAR-NESTED"
    return Case(
        id=f"{weight.name}-{plane}-{SHORT[dtype]}",
        shows=layer.shows,
        requirements=(*layer.requirements, bound),
        parameters={"plane": plane, "dtype": dtype, "mode": layer.mode},
        inputs={
            "xq": Tensor(f"{weight.name}/xq", layer.xq),
            "sx": Tensor(f"{weight.name}/sx", layer.sx),
            **plane_tensors(weight, plane),
            "bias": None if layer.bias is None else Tensor(f"{weight.name}/bias", layer.bias),
        },
        outputs={"y": output},
    )
