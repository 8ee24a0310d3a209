"""Modules whose weights sit where a rounding can go wrong: at ties, at both ends of the range."""

from collections.abc import Callable, Mapping

import numpy as np
from nibblespec.conformance.suite.dashq_data import (
    DashqWeight,
    extremes,
    make_module,
    pack,
    to_dtype,
)
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.spec.operations import FloatDtype

PRECISION: Mapping[str, int] = {"float16": 11, "bfloat16": 8, "float32": 24}

Pairs = list[tuple[float, float]]
"""A zero point and a scale for each group."""


def make_rounding_weight(
    kind: str,
    nbits: int,
    group_size: int,
    scale_dtype: str,
    dtype: FloatDtype,
    linear_dtype: FloatDtype,
    seed: int,
) -> DashqWeight:
    """Make a module, a group a row, whose parameters are of one kind (a key of KINDS).

    Codes run through at most eight values, the smallest and the largest among them.
    """
    generator = np.random.default_rng(seed)
    pairs = KINDS[kind](generator, scale_dtype, dtype)
    zero, scale = (
        to_dtype(np.array(column), DTYPES[scale_dtype]).reshape(-1, 1)
        for column in zip(*pairs, strict=True)
    )
    top = 2**nbits - 1
    values = np.unique([0, 1, 2 & top, 3 & top, 5 & top, top // 2, top - 1, top])
    codes = values[np.arange(len(pairs) * group_size) % values.size].astype(np.uint8)
    return DashqWeight(
        module=make_module(nbits, len(pairs), 1, group_size, 0, scale_dtype, linear_dtype),
        dtype=dtype,
        seed=seed,
        start=0,
        codes=codes.reshape(len(pairs), group_size),
        words=pack(codes, nbits),
        scale=scale,
        zero=zero,
    )


def _ties(generator: np.random.Generator, scale_dtype: str, dtype: str) -> Pairs:
    """3 * scale and -3 * scale lie midway between two numbers of the output dtype.

    The scale is an odd integer s, with 3·s one bit longer than the dtype holds; the zero points
    -2, 0 and 4 make 3 of the codes 1 and 3 and -3 of the code 1, in every bit width.
    """
    low = 2 ** PRECISION[dtype] // 3 + 1
    odd = 2 * generator.integers(low // 2, low, 5) + 1
    exponents = generator.integers(-12, -6, 5) - PRECISION[dtype] // 2
    if scale_dtype in ("float8_e4m3fn", "float8_e5m2"):
        exponents[:] = -PRECISION[dtype] + 2
    scales = odd * 2.0**exponents
    return [(zero, float(scale)) for scale in scales for zero in (-2.0, 0.0, 4.0)]


def _nearly_ties(generator: np.random.Generator, scale_dtype: str, dtype: str) -> Pairs:
    """Ties, moved by a zero point too small for float32 to keep beside 3.

    Evaluated in float64, or by a fused multiply-add, such a weight is no tie.
    """
    tiny = 2.0**-24
    scales = {scale for _, scale in _ties(generator, scale_dtype, dtype)}
    return [(zero, scale) for scale in sorted(scales) for zero in (tiny, -tiny)]


def _just_beyond_ties(generator: np.random.Generator, _scale_dtype: str, dtype: str) -> Pairs:
    """Return scales beside ties of the output dtype: by way of another dtype they are ties."""
    precision = PRECISION[dtype]
    ties = (2 * generator.integers(2 ** (precision - 1), 2**precision, 4) + 1).astype(np.float64)
    nudged = [float(tie) * (1 + side * 2.0**-21) for tie in ties for side in (-1, 1)]
    scales = [value * 2.0 ** (-precision - 3) for value in (*nudged, *ties.tolist())]
    return [(0.0, scale) for scale in scales]


def _subnormal(generator: np.random.Generator, scale_dtype: str, dtype: str) -> Pairs:
    """Subnormal scales, and scales that give subnormal weights."""
    tiny, _ = extremes(DTYPES[scale_dtype])
    smallest_result, _ = extremes(DTYPES[dtype])
    multiples = (1, 3, 5, *generator.integers(7, 200, 3).tolist())
    scales = [tiny * multiple for multiple in multiples]
    scales += [smallest_result * multiple / 4 for multiple in multiples]
    return [(zero, scale) for scale in scales for zero in (0.0, 1.5)]


def _overflow(_generator: np.random.Generator, scale_dtype: str, dtype: str) -> Pairs:
    """Scales at the largest number, and weights on both sides of where the dtype overflows."""
    _, largest = extremes(DTYPES[scale_dtype])
    _, largest_result = extremes(DTYPES[dtype])
    border = largest_result * (1 + 2.0 ** -(PRECISION[dtype] + 1))
    scales = [largest, largest / 2]
    # Code 1 on the border itself, a float32 step below it, and code 3 on it.
    scales += [border, border * (1 - 2.0**-23), border / 3, largest_result]
    return [(zero, scale) for scale in scales for zero in (0.0, 2.0)]


def _zeros(generator: np.random.Generator, scale_dtype: str, dtype: str) -> Pairs:
    """Weights that are zero: by the scale, by the difference, by underflow, in both signs."""
    tiny, _ = extremes(DTYPES[scale_dtype])
    smallest_result, _ = extremes(DTYPES[dtype])
    scales = [0.0, tiny, smallest_result / 8, float(generator.uniform(0.1, 1))]
    return [(zero, scale) for scale in scales for zero in (0.0, 1.0, 0.25, 2.75, -0.25)]


KINDS: Mapping[str, Callable[[np.random.Generator, str, str], Pairs]] = {
    "ties": _ties,
    "nearly ties": _nearly_ties,
    "just beyond ties": _just_beyond_ties,
    "subnormal": _subnormal,
    "overflow": _overflow,
    "zeros": _zeros,
}
