"""Rounding to the formats' dtypes: to nearest, ties to even, once.

NumPy and ml_dtypes round float32 correctly to float16 and to bfloat16. Their cast of float64 to
bfloat16 goes through float32 and rounds twice; `round_float64` exists so that nobody has to
remember that.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
"""The floating-point dtypes of both formats, under the names that manifests use."""

FLOAT_DTYPES = ("float16", "bfloat16", "float32")
"""dtypes of inputs, outputs and reconstructed weights."""

SCALE_ZERO_DTYPES = tuple(DTYPES)
"""dtypes of dashq scales and zero points."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a floating-point dtype name.

    Raises ValueError for a name that neither format knows; aliases are not resolved.
    """
    if name not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, found {name!r}")
    return DTYPES[name]


def round_float32(values: Float32, dtype: str) -> Array:
    """Round float32 [...] to `dtype` [...]: to nearest, ties to even, once (NUM-ROUND-NEAREST).

    Values too large become ±inf (NaN in float8_e4m3fn, which has no infinity), values too small
    subnormals or ±0; the sign of zero is kept. The result is a fresh array.
    """
    if values.dtype != np.float32:
        raise TypeError(f"values: expected float32, found {values.dtype}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(numpy_dtype(dtype))


def round_float64(values: Float64, dtype: str) -> Array:
    """Round float64 [...] to `dtype` [...]: to nearest, ties to even, once (NUM-ROUND-NEAREST).

    Equal to `round_float32` but from float64. A first rounding to odd keeps in float32's last
    bit whether anything was cut off, so that the second rounding sees on which side of a tie the
    value was; float32 has more than two bits to spare over every narrower dtype, subnormals too.
    """
    if values.dtype != np.float64:
        raise TypeError(f"values: expected float64, found {values.dtype}")
    if dtype == "float32":
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(np.float32)
    return round_float32(_to_odd_float32(values), dtype)


def _to_odd_float32(values: Float64) -> Float32:
    """Round float64 to float32: exact values stay, others go to the neighbour with an odd code."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        nearest = values.astype(np.float32)
        exact = (nearest.astype(np.float64) == values) | np.isnan(values)
        too_far = np.abs(nearest.astype(np.float64)) > np.abs(values)
    bits = np.ascontiguousarray(nearest).view(np.uint32)
    # One code less is one step towards zero, for both signs and from infinity too.
    truncated = bits - (too_far & ~exact).astype(np.uint32)
    odd = np.where(exact, truncated, truncated | np.uint32(1))
    result: Float32 = odd.view(np.float32).reshape(values.shape)
    return result
