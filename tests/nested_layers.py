"""Nested layers for the tests of bitnest: codes, planes and scales that fit each other."""

from dataclasses import dataclass

import numpy as np
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import Array, Float32
from nibblespec.spec.operations import Bytes, Float16, Nibbles


@dataclass(frozen=True)
class Nested:
    """The arguments of `nested_reconstruct`, and the codes [N, K] that the planes hold."""

    hi: Bytes
    lo: Bytes
    scale: Float16
    q4: Nibbles
    qr: Nibbles


def codes(rng: np.random.Generator, *shape: int) -> tuple[Nibbles, Nibbles]:
    """Draw q4 and qr over their whole range; qr is not negative where q4 is −8."""
    q4 = rng.integers(-8, 8, shape, dtype=np.int8)
    qr = rng.integers(-8, 8, shape, dtype=np.int8)
    return q4, np.where(q4 == -8, np.abs(qr) % 8, qr).astype(np.int8)


def nested(seed: int, rows: int, columns: int, groups: int, power_of_two: bool = False) -> Nested:
    """Draw a layer [rows, columns] with `groups` scales a row, a different one for each."""
    rng = np.random.default_rng(seed)
    q4, qr = codes(rng, rows, columns)
    hi, lo = pack_planes(q4, qr)
    if power_of_two:
        scale = 2.0 ** rng.integers(-4, 4, (rows, groups))
    else:
        scale = rng.uniform(0.001, 0.1, (rows, groups))
    return Nested(hi, lo, scale.astype(np.float16), q4, qr)


def float32(*values: float) -> Float32:
    """Return a float32 array [n]."""
    return np.array(values, np.float32)


def bits(values: Array) -> list[int]:
    """Return the bit patterns of a float array, flattened: −0 differs from +0."""
    patterns: list[int] = values.view(f"u{values.dtype.itemsize}").reshape(-1).tolist()
    return patterns
