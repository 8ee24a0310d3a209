"""Cases of quantize_activations."""

from collections.abc import Iterator

import numpy as np
from nibblespec.conformance.vectors.case import Case, Exact, Tensor
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, LARGEST, SHORT
from nibblespec.conformance.vectors.streams import floats, grid
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.rounding import Array, Float64, round_float64
from nibblespec.spec.operations import Float32, FloatDtype

BASE = ("BN1-ACT-CODES", "BN1-ACT-SCALE")


def cases() -> Iterator[Case]:
    """Yield activations of every dtype, and those of float32 that a rough division gets wrong."""
    for dtype in DTYPES:
        yield from _of_dtype(dtype)
    yield _case(
        "near-ties-f32",
        "quotients next to ties: a reciprocal or an approximate division changes codes",
        _near_ties(),
        -1,
        *BASE,
        "NUM-ROUND-NEAREST",
    )


def _of_dtype(dtype: FloatDtype) -> Iterator[Case]:
    short = SHORT[dtype]

    def stored(values: Float64) -> Array:
        return round_float64(values, dtype)

    name = f"quantize_activations/tokens-{short}"
    yield _case(
        f"tokens-{short}",
        "one scale a token",
        stored(floats(name, (3, 33), -6, 3)),
        -1,
        *BASE,
        "BN1-ACT-WIDEN",
    )
    name = f"quantize_activations/groups-{short}"
    scaled = floats(name, (3, 24), -2, 1) * np.ldexp(1.0, np.repeat([0, 5, -7], 8))
    yield _case(
        f"groups-{short}",
        "one scale for each group of 8 columns, groups of different size",
        stored(scaled),
        8,
        "BN1-ACT-GROUPS",
        *BASE,
    )
    ties = np.concatenate([np.arange(127) + 0.5, -0.5 - np.arange(127), [127, -127]])
    yield _case(
        f"ties-{short}",
        "the scale is a power of two: all quotients are ties, and the last ones ±127",
        stored(np.array([[1], [2**-6], [4]]) * ties),
        -1,
        "NUM-ROUND-NEAREST",
        *BASE,
    )
    yield _case(
        f"group-ties-{short}",
        "the same ties in groups of their own",
        stored(np.array([[127, 0.5, 1.5, -2.5, -63.5, 31.75, -1, 0.25] * 2])),
        4,
        "NUM-ROUND-NEAREST",
        *BASE,
        "BN1-ACT-GROUPS",
    )
    zeros = grid(f"quantize_activations/zeros-{short}", (2, 20), -99, 99, -5)
    zeros[:, 5:15] = 0
    zeros[0, 7] = -0.0
    yield _case(
        f"zeros-{short}",
        "two of four groups are zero",
        stored(zeros),
        5,
        *BASE,
        "BN1-ACT-GROUPS",
    )
    tiny = np.ldexp(floats(f"quantize_activations/floor-{short}", (2, 12), 0, 3), -24)
    yield _case(
        f"floor-{short}",
        "magnitudes around 127·1e-8, where the scale has its floor; subnormal in float16",
        stored(tiny),
        6,
        "BN1-ACT-SCALE",
        "BN1-ACT-CODES",
        "NUM-ROUND-SUBNORMAL",
    )
    outliers = floats(f"quantize_activations/outliers-{short}", (4, 32), -4, 0)
    outliers[[0, 2], [3, 31]] = [3000.0, -20000.0]
    yield _case(
        f"outliers-{short}", "a token with an outlier of either sign", stored(outliers), -1, *BASE
    )
    extremes = LARGEST[dtype] * np.array([[1, -1, 0.5, -0.25, 0.1, 0]])
    yield _case(
        f"largest-{short}",
        "the largest magnitudes: codes saturate at ±127",
        stored(extremes),
        -1,
        *BASE,
        "BN1-ACT-WIDEN",
    )


def _near_ties() -> Float32:
    """Return [8, 3·254]: for 8 largest magnitudes, both neighbours of every tie and the tie."""
    largest = np.abs(floats("quantize_activations/near-ties", (8, 1), -3, 3)).astype(np.float32)
    scale = (largest / np.float32(127)).astype(np.float64)
    halves = np.concatenate([np.arange(127) + 0.5, -0.5 - np.arange(127)])
    ties = round_float64(scale * halves, "float32")
    x = np.concatenate(
        [ties, np.nextafter(ties, np.float32(-np.inf)), np.nextafter(ties, np.float32(np.inf))],
        axis=1,
    )
    x[:, :1] = largest
    inside: Float32 = np.clip(x, -largest, largest)
    return inside


def _case(name: str, shows: str, x: Array, group: int, *requirements: str) -> Case:
    case_id = f"quantize_activations/{name}"
    codes, scale = quantize_activations(x, group)
    return Case(
        id=case_id,
        shows=shows,
        requirements=requirements,
        parameters={"group": group},
        inputs={"x": Tensor(f"{case_id}/x", x)},
        outputs={"codes": Exact(codes), "scale": Exact(scale)},
    )
