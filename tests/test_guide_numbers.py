"""The recipes for numbers in the guide to adapters, against NumPy and ml_dtypes."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
from nibblespec.spec.operations import Array

ROOT = Path(__file__).parent.parent
GUIDE = " ".join((ROOT / "docs" / "other_languages.md").read_text(encoding="utf-8").split())
MAGNITUDES = np.unique(
    np.concatenate(
        [
            np.arange(0, 1 << 31, 999_983, dtype=np.uint32),
            # Beside every float16 number and every tie between two.
            *(
                np.arange(1 << 15, dtype=np.uint16)
                .view(np.float16)
                .astype(np.float32)
                .view(np.uint32)
                + np.uint32(step)
                for step in (0, 1, 0xFFF, 0x1000, 0x1001)
            ),
            np.arange(0x33000000, 0x38800000, 997, dtype=np.uint32),
            *(np.uint32(at) + np.arange(-3, 4) for at in (0x477FF000, 0x38800000, 0x7F800000)),
        ]
    ).astype(np.uint32)
)


def float32(bits: Array) -> Array:
    """Return the numbers that have these bits."""
    return bits.astype(np.uint32).view(np.float32)


def same(found: Array, expected: Array) -> bool:
    """Tell whether all bits agree; any two NaNs do."""
    width = f"u{found.dtype.itemsize}"
    nan = np.isnan(found) & np.isnan(expected)
    return bool(((found.view(width) == expected.view(width)) | nan).all())


def test_float16_widens_by_the_recipe() -> None:
    half = np.arange(1 << 16, dtype=np.uint32)
    sign, e, f = half >> 15 << 31, half >> 10 & 31, half & 0x3FF
    small = (f * 2.0**-24).astype(np.float32).view(np.uint32)
    found = np.where(e == 0, small, (e + 112) << 23 | f << 13)
    found = np.where(e == 31, 0x7F800000 | f << 13, found)
    assert same(float32(sign | found), half.astype(np.uint16).view(np.float16).astype(np.float32))
    assert "f·2⁻²⁴ for e = 0; the bits 0x7F800000 | f << 13 for e = 31" in GUIDE
    assert "else (e + 112) << 23 | f << 13" in GUIDE


def test_float8_e4m3fn_widens_by_the_recipe() -> None:
    byte = np.arange(1 << 8, dtype=np.uint32)
    sign, e, f = byte >> 7 << 31, byte >> 3 & 15, byte & 7
    small = (f * 2.0**-9).astype(np.float32).view(np.uint32)
    found = np.where(e == 0, small, (e + 120) << 23 | f << 20)
    found = np.where(byte & 0x7F == 0x7F, 0x7FC00000, found)
    expected = byte.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert same(float32(sign | found), expected)
    assert "f·2⁻⁹ for e = 0; NaN for 0x7F and 0xFF; else (e + 120) << 23 | f << 20" in GUIDE


def test_float32_narrows_to_float16_by_the_recipe() -> None:
    m = MAGNITUDES.astype(np.int64)
    small = np.rint(float32(np.minimum(m, 0x38800000)).astype(np.float64) * 2.0**24)
    found = (m - 0x38000000 + 0xFFF + (m >> 13 & 1)) >> 13
    found = np.where(m < 0x38800000, small.astype(np.int64), found)
    found = np.where(m >= 0x477FF000, 0x7C00, found)
    found = np.where(m > 0x7F800000, 0x7E00, found)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = float32(m).astype(np.float16)
    assert same(found.astype(np.uint16).view(np.float16), expected)
    for number in ("0x7E00) above 0x7F800000", "0x477FF000", "0x38800000 the magnitude times 2²⁴"):
        assert number in GUIDE
    assert "else (m − 0x38000000 + 0xFFF + (m >> 13 & 1)) >> 13" in GUIDE


def test_float32_narrows_to_bfloat16_by_the_recipe() -> None:
    b = MAGNITUDES[MAGNITUDES <= 0x7F800000].astype(np.int64)
    b = np.concatenate((b, b | 1 << 31))
    found = (b + 0x7FFF + (b >> 16 & 1)) >> 16
    expected = float32(b).astype(ml_dtypes.bfloat16)
    assert same(found.astype(np.uint16).view(ml_dtypes.bfloat16), expected)
    assert "(b + 0x7FFF + (b >> 16 & 1)) >> 16" in GUIDE


def test_halves_of_wider_numbers_are_narrow_ones() -> None:
    byte, half = np.arange(1 << 8, dtype=np.uint16), np.arange(1 << 16, dtype=np.uint32)
    e5m2 = byte.astype(np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32)
    assert same((byte << 8).view(np.float16).astype(np.float32), e5m2)
    bfloat16 = half.astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    assert same(float32(half << 16), bfloat16)


def test_smallest_scale_has_the_bits_of_the_guide() -> None:
    (bits,) = re.findall(r"1e-8 being the float32 number (0x\w+)", GUIDE)
    assert int(bits, 16) == np.float32(1e-8).view(np.uint32)
