"""had_K·had_Kᵀ against K·I, in float64, with no more of the matrix in memory than a few rows."""

import numpy as np
from nibblespec.conformance.artifacts.reading.blocks import (
    Run,
    StoppedError,
    TensorBytes,
    read_into,
    reading,
)
from nibblespec.conformance.artifacts.scanning.facts import Hit
from numpy.typing import NDArray

ROW_BYTES = 2**20
"""Bytes of rows that are read at once."""

MULTIPLICATIONS = 2**36
"""Up to here, and thus up to K = 4,096, all rows are multiplied with all; beyond, some with all."""


def tolerance(order: int) -> float:
    """Return by how much an element of had_K·had_Kᵀ may be off (BN1-HADK-ORTHOGONAL)."""
    return order * (order + 8) * 2.0**-24


def scan_products(tensor: TensorBytes, run: Run) -> Hit | None:
    """Find the elements of H·Hᵀ that are off from K·I, H float32 [K, K]; bits are of the float64.

    Raises OSError and StoppedError as `read_blocks`.
    """
    order = tensor.entry.shape[0]
    checked = min(order, max(1, MULTIPLICATIONS // order**2)) if order else 0
    chosen = np.arange(checked) * order // max(1, checked)
    step = max(1, ROW_BYTES // (4 * order or 1))
    hit: Hit | None = None
    for begin in range(0, checked, step):
        numbers = chosen[begin : begin + step]
        left = np.concatenate([_rows(tensor, int(row), int(row) + 1, run) for row in numbers])
        for start in range(0, order, step):
            right = _rows(tensor, start, min(order, start + step), run)
            hit = _add_up(hit, _off(left, right, numbers, start, order))
    return hit


def _off(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    numbers: NDArray[np.int64],
    start: int,
    order: int,
) -> Hit | None:
    """Find what is off in the product of some rows and those from `start` on."""
    with np.errstate(all="ignore"):  # elements that are not finite are another rule's
        product = left @ right.T
    expected = np.where(numbers[:, None] == start + np.arange(len(right)), order, 0)
    off = np.abs(product - expected) > tolerance(order)
    if not off.any():
        return None
    row, column = (int(index) for index in np.argwhere(off)[0])
    bits = int(product[row, column].view(np.uint64))
    return Hit(int(np.count_nonzero(off)), int(numbers[row]) * order + start + column, bits)


def _add_up(first: Hit | None, second: Hit | None) -> Hit | None:
    """Add up two hits; the one with the lower index comes first."""
    if first is None or second is None:
        return first or second
    lower = min(first, second, key=lambda hit: hit.first)
    return Hit(first.count + second.count, lower.first, lower.bits)


def _rows(tensor: TensorBytes, start: int, stop: int, run: Run) -> NDArray[np.float64]:
    """Read rows start … stop, float64 [rows, K]."""
    if run.stop.is_set():
        raise StoppedError
    width = 4 * tensor.entry.shape[1]
    raw = np.empty((stop - start) * width, np.uint8)
    with reading(tensor.source) as stream:
        read_into(stream, raw, tensor.begin + start * width, tensor.source)
    with np.errstate(invalid="ignore"):
        return raw.view("<f4").reshape(stop - start, -1).astype(np.float64)
