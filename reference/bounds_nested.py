"""The nested layer in float64, and how far from that a conforming result may be.

The bounds are those of `bounds_linear`; this takes the arguments of the operation apart.
"""

import numpy as np
from nibblespec.reference.bounds import Bounded
from nibblespec.reference.bounds_linear import dense_bounded, nested_bounded
from nibblespec.reference.nested import (
    check_bias,
    check_linear_input,
    codes_and_scales,
    prefill_f16_operands,
    segment_product,
    segment_scales,
    segments,
)
from nibblespec.reference.rounding import Float32
from nibblespec.spec.operations import Bytes, Float16, Nibbles, Plane


def nested_linear_bounded(
    xq: Nibbles,
    sx: Float32,
    hi: Bytes,
    lo: Bytes | None,
    scale: Float16,
    bias: Float16 | None,
    plane: Plane,
) -> Bounded:
    """Return value and error of `nested_linear`, float64 [M, N] each (NUM-LINEAR-NESTED).

    Arguments and errors as `nibblespec.reference.nested.nested_linear`.
    """
    codes, scales = codes_and_scales(hi, lo, scale, plane)
    check_linear_input(xq, sx, bias, codes)
    columns = xq.shape[1]
    pieces = segments(columns, scales.shape[1], sx.shape[1])
    dots = [segment_product(xq, codes, start, stop) for start, stop in pieces]
    factors = [segment_scales(sx, scales, start, columns) for start, _ in pieces]
    return nested_bounded(
        np.stack(dots, axis=2),
        np.stack([sx_segment for sx_segment, _ in factors], axis=1),
        np.stack([sw_segment for _, sw_segment in factors], axis=1),
        bias,
    )


def prefill_f16_bounded(
    xq: Nibbles,
    sx: Float32,
    hi: Bytes,
    lo: Bytes | None,
    scale: Float16,
    bias: Float16 | None,
    plane: Plane,
) -> Bounded:
    """Return value and error of the mode prefill-f16, float64 [M, N] (NUM-LINEAR-PREFILL-F16).

    Arguments and errors as `nibblespec.reference.nested.prefill_f16_linear`.
    """
    x, weight = prefill_f16_operands(xq, sx, hi, lo, scale, plane)
    check_bias(bias, weight.shape[0])
    return dense_bounded(x, weight, bias)
