"""Arithmetic by the definition: exact rational results, rounded once, with IEEE's signed zeros.

Slow, and independent of NumPy's and of the reference's arithmetic. Numbers are Python floats that
are values of the formats; infinities and NaN are left to Python, whose rules are IEEE's.
"""

import math
from collections.abc import Callable
from fractions import Fraction

PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24}
SMALLEST_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126}
LARGEST_EXPONENT = {"float16": 15, "bfloat16": 127, "float32": 127}


def rounded(value: Fraction | float, dtype: str) -> float:
    """Return rn_D(value): nearest, ties to even, subnormals kept, overflow to infinity."""
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return value
    exact = Fraction(value)
    if exact == 0:
        return 0.0
    precision = PRECISION[dtype]
    exponent = max(_exponent(abs(exact)), SMALLEST_EXPONENT[dtype])
    quantum = Fraction(2) ** (exponent - precision + 1)
    nearest = round(exact / quantum) * quantum  # Fraction rounds to nearest, ties to even
    if abs(nearest) >= Fraction(2) ** (LARGEST_EXPONENT[dtype] + 1):
        return math.copysign(math.inf, exact)
    return math.copysign(float(nearest), exact)


def subtract(a: float, b: float, dtype: str) -> float:
    """Return a - b rounded to dtype."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a - b
    return rounded(Fraction(a) - Fraction(b), dtype)


def multiply(a: float, b: float, dtype: str) -> float:
    """Return a * b rounded to dtype."""
    return _signed(a, b, a * b, lambda: Fraction(abs(a)) * Fraction(abs(b)), dtype)


def divide(a: float, b: float, dtype: str) -> float:
    """Return a / b rounded to dtype, for b != 0."""
    return _signed(a, b, a / b, lambda: Fraction(abs(a)) / Fraction(abs(b)), dtype)


def dashq_weight(q: int, zero: float, scale: float, evaluation: str, dtype: str) -> float:
    """Return the weight of one code, as chapter 3 of the numerics tabulates the evaluations."""
    if evaluation == "stepwise":
        zero, scale = rounded(zero, dtype), rounded(scale, dtype)
        return multiply(subtract(q, zero, dtype), scale, dtype)
    if evaluation == "bf16-params":
        zero, scale = rounded(zero, "bfloat16"), rounded(scale, "bfloat16")
    product = multiply(subtract(q, zero, "float32"), scale, "float32")
    return rounded(product, dtype)


def a8(x: list[float]) -> tuple[list[int], float]:
    """Return codes and scale of one group of activations (BN1-ACT-SCALE, BN1-ACT-CODES)."""
    scale = max(divide(max(map(abs, x)), 127.0, "float32"), rounded(Fraction("1e-8"), "float32"))
    return [clip(round(divide(value, scale, "float32")), -128, 127) for value in x], scale


def nested_kv(x: list[float], offset: list[float]) -> tuple[list[int], list[int], float]:
    """Return q4, qr and scale of one vector of the cache (chapter 11 of bitnest-package-v1)."""
    d = [subtract(value, o, "float32") for value, o in zip(x, offset, strict=True)]
    scale = max(divide(max(map(abs, d)), 7.0, "float32"), rounded(Fraction("1e-8"), "float32"))
    q4 = [clip(round(divide(value, scale, "float32")), -8, 7) for value in d]
    rest = [
        subtract(value, multiply(float(code), scale, "float32"), "float32")
        for value, code in zip(d, q4, strict=True)
    ]
    qr = [clip(round(divide(value, scale / 16, "float32")), -8, 7) for value in rest]
    return q4, qr, scale


def clip(value: int, low: int, high: int) -> int:
    """Return the value, or the end of low … high that it is beyond."""
    return min(max(value, low), high)


def _signed(
    a: float, b: float, special: float, magnitude: Callable[[], Fraction], dtype: str
) -> float:
    """Round a product or a quotient; its sign is the product of the signs, also of zero."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return special
    return math.copysign(rounded(magnitude(), dtype), math.copysign(1, a) * math.copysign(1, b))


def _exponent(value: Fraction) -> int:
    """Return e with 2**e <= value < 2**(e + 1)."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1
