"""Numbers and files for the second reader of the golden vectors: the standard library alone."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import copysign, frexp, inf, isfinite, isnan, ldexp, nan, prod
from pathlib import Path
from typing import Any

FLOATS = {
    "F16": (5, 10),
    "BF16": (8, 7),
    "F32": (8, 23),
    "F8_E4M3": (4, 3),
    "F8_E5M2": (5, 2),
}
"""Bits of the exponent and of the fraction."""

INTEGERS = {"I8": (1, True), "U8": (1, False), "I32": (4, True)}
"""Bytes, and whether there is a sign."""


@dataclass(frozen=True)
class Tensor:
    """A tensor: its elements as bit patterns, and as numbers."""

    dtype: str
    shape: list[int]
    bits: list[int]
    values: list[Any]


def read(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    file = path.read_bytes()
    start = 8 + int.from_bytes(file[:8], "little")
    found = {}
    for name, entry in json.loads(file[8:start]).items():
        dtype, (begin, end) = entry["dtype"], entry["data_offsets"]
        floating = dtype in FLOATS
        size = (1 + sum(FLOATS[dtype])) // 8 if floating else INTEGERS[dtype][0]
        assert end - begin == size * prod(entry["shape"]), f"{name}: {end - begin} bytes"
        data = file[start + begin : start + end]
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        bits = [int.from_bytes(piece, "little") for piece in pieces]
        if floating:
            values: list[Any] = [float_of(pattern, dtype) for pattern in bits]
        else:
            values = [int.from_bytes(p, "little", signed=INTEGERS[dtype][1]) for p in pieces]
        found[name] = Tensor(dtype, entry["shape"], bits, values)
    return found


def float_of(bits: int, dtype: str) -> float:
    """Return the number of a bit pattern."""
    exponent_bits, fraction_bits = FLOATS[dtype]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    sign = -1.0 if bits >> (exponent_bits + fraction_bits) else 1.0
    exponent, fraction = bits >> fraction_bits & top, bits & ((1 << fraction_bits) - 1)
    if dtype == "F8_E4M3" and (exponent, fraction) == (top, 7):
        return nan
    if dtype != "F8_E4M3" and exponent == top:
        return nan if fraction else sign * inf
    mantissa = fraction + ((1 << fraction_bits) if exponent else 0)
    return sign * ldexp(mantissa, max(exponent, 1) - bias - fraction_bits)


def bits_of(value: float, dtype: str) -> int:
    """Return the bit pattern of a number that the dtype holds; any NaN is −1."""
    if isnan(value):
        return -1
    exponent_bits, fraction_bits = FLOATS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    sign = int(copysign(1, value) < 0) << (exponent_bits + fraction_bits)
    if value in (inf, -inf):
        return sign | ((1 << exponent_bits) - 1) << fraction_bits
    exponent = max(frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    mantissa = int(ldexp(abs(value), fraction_bits - exponent))
    assert ldexp(mantissa, exponent - fraction_bits) == abs(value)
    return sign | (mantissa + (exponent + bias - 1 << fraction_bits))


def rounded(x: Fraction, dtype: str, sign: float = 1.0) -> float:
    """Return rn_D(x): to nearest, ties to even; a zero gets the sign of x, or the one given."""
    exponent_bits, fraction_bits = FLOATS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    if not x:
        return copysign(0.0, sign)
    above, below = abs(x.numerator), x.denominator
    exponent = above.bit_length() - below.bit_length()
    exponent -= above << max(-exponent, 0) < below << max(exponent, 0)
    shift = max(exponent, 1 - bias) - fraction_bits
    above, below = above << max(-shift, 0), below << max(shift, 0)
    whole, rest = divmod(above, below)
    whole += 2 * rest > below or (2 * rest == below and whole & 1)
    if whole << max(shift, 0) >= 2 ** (bias + 1) << max(-shift, 0):
        return copysign(inf, x)
    return copysign(ldexp(whole, shift), x)


def narrowed(a: float, dtype: str) -> float:
    """Return a number rounded to a dtype."""
    return rounded(Fraction(a), dtype, copysign(1, a)) if isfinite(a) else a


def minus(a: float, b: float, dtype: str) -> float:
    """Return a − b, rounded once."""
    return rounded(Fraction(a) - Fraction(b), dtype) if isfinite(a) and isfinite(b) else a - b


def times(a: float, b: float, dtype: str) -> float:
    """Return a · b, rounded once."""
    if not (isfinite(a) and isfinite(b)):
        return a * b
    return rounded(Fraction(a) * Fraction(b), dtype, copysign(1, a) * copysign(1, b))


def over(a: float, b: float) -> float:
    """Return a / b for b > 0, rounded to float32 once."""
    return rounded(Fraction(a) / Fraction(b), "F32", copysign(1, a))


def nearest_integer(a: float, low: int, high: int) -> int:
    """Return clip(rint(a), low, high)."""
    return min(max(round(Fraction(a)), low), high)


def unit(numbers: Iterable[Fraction]) -> Fraction:
    """Return the largest power of two that divides all of these, for zeros a very large one."""
    exponents = [
        (a.numerator & -a.numerator).bit_length() - a.denominator.bit_length() for a in numbers if a
    ]
    return Fraction(2) ** min(exponents, default=400)
