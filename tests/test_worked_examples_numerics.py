"""The numbers in the chapter on numerics that are about dtypes, roundings and bounds, computed."""

from fractions import Fraction
from importlib.resources import files

import numpy as np
import pytest
from nibblespec.reference.bounds import gamma
from nibblespec.reference.rounding import DTYPES, Array, round_float32

NUMERICS = files("nibblespec.spec").joinpath("numerics.md").read_text(encoding="utf-8")

LAYOUTS = {"float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}
LAYOUTS |= {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}


def by_the_text(code: int, dtype: str) -> Fraction:
    """Return the value of a finite number by the two formulas of 1.1."""
    exponent_bits, fraction_bits = LAYOUTS[dtype]
    fraction = Fraction(code % 2**fraction_bits, 2**fraction_bits)
    exponent = code >> fraction_bits & 2**exponent_bits - 1
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1 if code >> fraction_bits + exponent_bits else 1
    size, power = (fraction, 1 - bias) if exponent == 0 else (1 + fraction, exponent - bias)
    return sign * size * (Fraction(2**power) if power >= 0 else Fraction(1, 2**-power))


def of_code(code: int, dtype: str) -> Array:
    """Return the number with these bits, [1]."""
    kind = np.dtype(DTYPES[dtype])
    return np.array([code], f"u{kind.itemsize}").view(kind)


def code_of(value: Array) -> str:
    digits = 2 * value.dtype.itemsize
    return f"`0x{int(value.view(f'u{value.dtype.itemsize}')[0]):0{digits}X}`"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_the_formulas_decode_every_finite_number(dtype: str) -> None:
    size = np.dtype(DTYPES[dtype]).itemsize
    numbers = np.arange(2 ** (8 * size), dtype=f"u{size}").view(DTYPES[dtype])
    with np.errstate(invalid="ignore"):  # NaNs are among them
        wide = numbers.astype(np.float64)
    for code in np.flatnonzero(np.isfinite(wide)).tolist():
        assert by_the_text(code, dtype) == Fraction(float(wide[code]))


@pytest.mark.parametrize(
    ("dtype", "code", "value"),
    [
        ("float32", 0x3F800001, "1 + 2⁻²³"),
        ("bfloat16", 0x3F81, "1.0078125"),
        ("bfloat16", 0xC0A0, "−5"),
        ("float16", 0x3C01, "1.0009765625"),
        ("float16", 0x0001, "2⁻²⁴"),
        ("float16", 0x7BFF, "65504"),
        ("float8_e4m3fn", 0x38, "1"),
        ("float8_e4m3fn", 0x3C, "1.5"),
        ("float8_e4m3fn", 0x01, "2⁻⁹"),
        ("float8_e4m3fn", 0x7E, "448"),
        ("float8_e5m2", 0x3C, "1"),
        ("float8_e5m2", 0x3E, "1.5"),
        ("float8_e5m2", 0x01, "2⁻¹⁶"),
        ("float8_e5m2", 0x7B, "57344"),
    ],
)
def test_examples_of_numbers(dtype: str, code: int, value: str) -> None:
    powers = {
        "1 + 2⁻²³": 1 + 2.0**-23,
        "2⁻²⁴": 2.0**-24,
        "2⁻⁹": 2.0**-9,
        "2⁻¹⁶": 2.0**-16,
        "−5": -5.0,
    }
    assert of_code(code, dtype).astype(np.float64)[0] == (powers.get(value) or float(value))
    [row] = [line for line in NUMERICS.splitlines() if line.startswith(f"| `{dtype}` | 1, ")]
    assert f"{code_of(of_code(code, dtype))} = {value}" in row


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_the_two_nans_of_float8_e4m3fn(code: int) -> None:
    assert np.isnan(of_code(code, "float8_e4m3fn").astype(np.float32))


@pytest.mark.parametrize(
    ("code", "float16", "bfloat16"),
    [
        (0x45001000, 0x6800, 0x4500),
        (0x45003000, 0x6802, 0x4500),
        (0x3F808000, 0x3C04, 0x3F80),
        (0x477FEF00, 0x7BFF, 0x4780),
        (0x477FF000, 0x7C00, 0x4780),
        (0x33000000, 0x0000, 0x3300),
        (0x33000001, 0x0001, 0x3300),
        (0xB2800000, 0x8000, 0xB280),
    ],
)
def test_roundings_of_float32(code: int, float16: int, bfloat16: int) -> None:
    wide = of_code(code, "float32")
    narrow, brain = round_float32(wide, "float16"), round_float32(wide, "bfloat16")
    assert (code_of(narrow), code_of(brain)) == (f"`0x{float16:04X}`", f"`0x{bfloat16:04X}`")
    [row] = [line for line in NUMERICS.splitlines() if f"= {code_of(wide)} |" in line]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2].startswith(code_of(narrow))
    assert cells[3].startswith(code_of(brain))


def test_a_sum_or_product_of_narrow_numbers_may_be_rounded_by_way_of_float32() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("float16", "bfloat16"):
        codes = rng.integers(0, 2**16, (2, 200_000)).astype(np.uint16)
        with np.errstate(invalid="ignore"):
            a, b = codes.view(DTYPES[dtype]).astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = a[finite], b[finite]
        with np.errstate(over="ignore", under="ignore"):
            for exact in (a * b, _where_exact(a, b)):
                twice = round_float32(exact.astype(np.float32), dtype)
                once = np.array([_rounded_once(value, dtype) for value in exact[:2000].tolist()])
                assert np.array_equal(twice[:2000].astype(np.float64), once)


def _where_exact(a: Array, b: Array) -> Array:
    """Return the sums that float64 holds without rounding."""
    total = a + b
    return np.asarray(total[(total - a == b) & (total - b == a)])


def _rounded_once(value: float, dtype: str) -> float:
    """Round a float64 to nearest, ties to even, by integers alone."""
    exponent_bits, fraction_bits = LAYOUTS[dtype]
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(np.frexp(value)[1] - 1, 1 - bias)
    unit = Fraction(2) ** int(exponent - fraction_bits)
    rounded = float(round(Fraction(value) / unit) * unit)
    overflow = abs(rounded) >= 2.0 ** (bias + 1)
    return float(np.copysign(np.inf if overflow else abs(rounded), value))


def test_what_the_bound_of_a_small_product_lets_through() -> None:
    x = np.array([1, 2, np.float32(1) / np.float32(3)], np.float32).astype(np.float64)
    w, bias = np.array([0.5, -0.25, 0.125]), 0.0625
    y, magnitude = float((x * w).sum() + bias), float(np.abs(x * w).sum() + bias)
    error = gamma(5) * magnitude
    ends = np.array([[y - error], [y + error], [y]], np.float32)
    assert [code_of(end) for end in ends] == ["`0x3DD554FD`", "`0x3DD555AE`", "`0x3DD55556`"]
    low, high = (int(end.view(np.uint32)[0]) for end in ends[:2])
    assert high - low + 1 == 178
    narrow = {code_of(round_float32(end, "bfloat16")) for end in ends}
    assert narrow == {"`0x3DD5`"}
    assert repr(y).startswith("0.1041666679084301")
    text = " ".join(NUMERICS.split())
    assert "from `0x3DD554FD` to `0x3DD555AE` conforms, 178 of them around `0x3DD55556`" in text
    assert f"= {error * 1e7:.2f}·10⁻⁷" in text
    assert "both ends are `0x3DD5`" in text


def test_where_that_product_is_exact() -> None:
    x, w, bias = np.array([1, 2, 0.25]), np.array([0.5, -0.25, 0.125]), 0.0625
    exact = np.array([(x * w).sum() + bias], np.float32)
    assert np.abs(x * w).sum() + bias == 1.09375
    assert f"only {exact[0]} ({code_of(exact)}) conforms" in " ".join(NUMERICS.split())
