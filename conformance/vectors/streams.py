"""Numbers for the inputs: a stream of 64-bit integers for each name, the same on every machine.

Number i of a stream is SplitMix64's output function at key + (i + 1)·0x9E3779B97F4A7C15 mod 2^64,
where key is the first eight bytes of the SHA-256 of the name in UTF-8, little-endian. That is
integer arithmetic in three lines of any language, so that no library's version can change it, and
since each tensor has a stream of its own, a new case leaves all others as they are.

Everything here is an integer times a power of two, below 2^53: exact in float64.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Shape = tuple[int, ...]


def raw(name: str, count: int) -> NDArray[np.uint64]:
    """Return the first `count` numbers of a stream, uint64 [count]."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    z = np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64) + np.uint64(key)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def integers(name: str, shape: Shape, low: int, high: int) -> NDArray[np.int64]:
    """Return integers in low … high, both included, fewer than 2^32 different ones."""
    upper = raw(name, int(np.prod(shape, dtype=np.int64))) >> np.uint64(32)
    scaled = upper * np.uint64(high - low + 1) >> np.uint64(32)
    return (scaled.astype(np.int64) + low).reshape(shape)


def grid(name: str, shape: Shape, low: int, high: int, exponent: int) -> Float64:
    """Return multiples of 2^exponent, from low·2^exponent to high·2^exponent."""
    return np.ldexp(integers(name, shape, low, high).astype(np.float64), exponent)


def floats(name: str, shape: Shape, low: int, high: int, digits: int = 24) -> Float64:
    """Return numbers of either sign, of `digits` bits, in magnitude 2^low … 2^(high + 1)."""
    mantissa = integers(f"{name} mantissa", shape, 2 ** (digits - 1), 2**digits - 1)
    sign = 1 - 2 * integers(f"{name} sign", shape, 0, 1)
    exponent = integers(f"{name} exponent", shape, low, high) - (digits - 1)
    return np.ldexp((sign * mantissa).astype(np.float64), exponent)
