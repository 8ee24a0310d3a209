"""The dense product of the linear layers: elementwise, in float64, in the order of columns."""

import numpy as np
from nibblespec.reference.arguments import check_array
from nibblespec.reference.rounding import FLOAT_DTYPES, Array, round_float64


def dense_product(x: Array, weight: Array, bias: Array | None, dtype: str) -> Array:
    """Return x·weightᵀ + bias for x [M, K], weight [N, K] and bias [N] or None: `dtype` [M, N].

    Operands are floats of any dtype of the formats. Element (m, n) starts at 0, adds
    x[m, k]·weight[n, k] for k = 0 … K − 1, then bias[n], all in float64 without fused
    multiply-adds, and is rounded to `dtype` once. Products are exact: 24 bits times 24 bits.

    No matrix library takes part. Those choose their blocks, hence the order of summation, by the
    number of rows, and a row's last bits would depend on its neighbours. Here every step is an
    elementwise operation, so that row m of the result depends on row m of x alone
    (NUM-INVARIANT-ROWS-DASHQ), and the bits are the same on every machine.

    Raises TypeError for a wrong dtype, ValueError for shapes that do not fit each other.
    """
    check_product(x, weight, bias)
    total = np.zeros((x.shape[0], weight.shape[0]), np.float64)
    columns, weight_columns = x.astype(np.float64).T, weight.astype(np.float64).T
    # Overflowed weights are infinite, and 0·∞ is NaN: the value is the message, not a warning.
    with np.errstate(invalid="ignore"):
        for x_column, weight_column in zip(columns, weight_columns, strict=True):
            total += x_column[:, np.newaxis] * weight_column[np.newaxis, :]
        if bias is not None:
            total += bias.astype(np.float64)
    return round_float64(total, dtype)


def check_product(x: Array, weight: Array, bias: Array | None) -> None:
    """Require x [M, K], weight [N, K] and bias [N] or None, in dtypes of the formats."""
    check_array(x, "x", FLOAT_DTYPES, ("M", "K"))
    check_array(weight, "weight", FLOAT_DTYPES, ("N", x.shape[1]))
    if bias is not None:
        check_array(bias, "bias", FLOAT_DTYPES, (weight.shape[0],))
