"""The numbers in the text: what specification and numerics work out by hand, computed.

Each test holds the numbers as the text prints them and checks both: that the reference computes
them, and that the text still prints them.
"""

from importlib.resources import files

import numpy as np
import pytest
from nibblespec.reference.dashq import EVALUATIONS, dashq_reconstruct
from nibblespec.reference.rounding import (
    DTYPES,
    Array,
    Float32,
    round_float32,
    round_float64,
)
from nibblespec.reference.words import pack_words, unpack_words
from nibblespec.spec.operations import DashqRounding

from tests.dashq_modules import describe, packed

SPECIFICATION = files("nibblespec.spec").joinpath("dashq_packed_linear/v1/specification.md")
NUMERICS = files("nibblespec.spec").joinpath("numerics.md")


def text_has(document: object, *excerpts: str) -> bool:
    assert hasattr(document, "read_text")
    text = document.read_text(encoding="utf-8")
    return all(excerpt in text for excerpt in excerpts)


def float16_of(code: int) -> Float32:
    """Return the float16 with this code as float32 [1]."""
    return np.array([code], np.uint16).view(np.float16).astype(np.float32)


def code_of(value: Array) -> str:
    """Return the code of the only element, as the text writes it."""
    digits = 2 * value.dtype.itemsize
    return f"0x{int(value.view(f'u{value.dtype.itemsize}')[0]):0{digits}X}"


def evaluate(name: DashqRounding, q: int, zero: int, scale: int, dtype: str) -> str:
    """Return the code of a weight whose parameters are given as float16 codes."""
    code = np.array([q], np.float32)
    with np.errstate(over="ignore"):
        return code_of(EVALUATIONS[name](code, float16_of(zero), float16_of(scale), dtype))


def test_packing_with_three_bits() -> None:
    codes = (np.arange(24) % 8).astype(np.uint8)
    words = pack_words(codes, 3)
    assert [f"0x{word:08X}" for word in words.view(np.uint32)] == [
        "0x08FAC688",
        "0x1A23EB1A",
        "0x00000FAC",
    ]
    assert words.tolist() == [150652552, 438561562, 4012]
    assert [f"{word:032b}" for word in words.view(np.uint32)] == [
        "00001000111110101100011010001000",
        "00011010001000111110101100011010",
        "00000000000000000000111110101100",
    ]
    assert text_has(
        SPECIFICATION,
        "`00 001 000 111 110 101 100 011 010 001 000` | `0x08FAC688` | 150652552 |",
        "`00 011 010 001 000 111 110 101 100 011 010` | `0x1A23EB1A` | 438561562 |",
        "`00 000 000 000 000 000 000 111 110 101 100` | `0x00000FAC` | 4012 |",
    )


def test_packing_with_four_bits() -> None:
    codes = (np.arange(24) % 16).astype(np.uint8)
    words = pack_words(codes, 4)
    assert [f"0x{word:08X}" for word in words.view(np.uint32)] == [
        "0x76543210",
        "0xFEDCBA98",
        "0x76543210",
    ]
    assert words.tolist() == [1985229328, -19088744, 1985229328]
    assert (-19088744 >> 28) & 15 == 15
    assert text_has(
        SPECIFICATION,
        "`0x76543210` | 1985229328 |",
        "`0xFEDCBA98` | −19088744 |",
        "row 1: 12 13 14 15",
    )


@pytest.mark.parametrize("nbits", range(1, 9))
def test_words_of_codes_that_count_up(nbits: int) -> None:
    codes = (np.arange(32 // nbits + 1) % 2**nbits).astype(np.uint8)
    words = " | ".join(f"`0x{word:08X}`" for word in pack_words(codes, nbits).view(np.uint32))
    assert text_has(SPECIFICATION, f"| {nbits} | {words} |")


def test_packing_with_five_bits_and_bits_that_hold_no_code() -> None:
    codes = np.array([31, 1, 2, 3, 4, 30, 17], np.uint8)
    words = pack_words(codes, 5).view(np.uint32)
    for word in words.tolist():
        bits = f"{word:032b}"
        groups = " ".join([bits[:2], *(bits[place : place + 5] for place in range(2, 32, 5))])
        assert text_has(SPECIFICATION, f"`{groups}` | `0x{word:08X}` |")
    spoilt = words | np.array([0xC0000000, 0xFFFFFFE0], np.uint32)
    assert np.array_equal(unpack_words(spoilt.view(np.int32), 5, 7), codes)
    assert text_has(SPECIFICATION, f"`0x{spoilt[0]:08X}` and `0x{spoilt[1]:08X}` in their place")


def test_a_module_with_padding_columns() -> None:
    module = describe(rows=2, columns=10, nbits=4, group_size=4, quant_columns=12)
    codes = (np.arange(24) % 16).astype(np.uint8).reshape(2, 12)
    scale, zero = np.ones((6, 1), np.float16), np.zeros((6, 1), np.float16)
    example = packed(codes, scale, zero, module)
    weight = dashq_reconstruct(example.words, scale, zero, module, "float32")
    assert weight.tolist() == [[*range(10)], [12, 13, 14, 15, *range(6)]]
    assert text_has(SPECIFICATION, "12 13 14 15 0 1 2 3 4 5 in row 1")


def test_parameters_in_eight_bits() -> None:
    numbers = np.array([0xB0, 0x28], np.uint8).view(DTYPES["float8_e4m3fn"]).astype(np.float32)
    assert numbers.tolist() == [-0.5, 0.25]
    assert text_has(SPECIFICATION, "zero[4] = `0xB0` and scale[4] = `0x28` are the same")


def test_the_weight_of_code_1_5() -> None:
    module = describe(rows=2, columns=12, nbits=4, group_size=4)
    codes = (np.arange(24) % 16).astype(np.uint8).reshape(2, 12)
    scale, zero = np.ones((6, 1), np.float16), np.zeros((6, 1), np.float16)
    scale[4], zero[4] = 0.25, -0.5
    example = packed(codes, scale, zero, module)
    weight = dashq_reconstruct(example.words, scale, zero, module, "float32")
    assert weight[1, 5] == 0.375
    assert text_has(SPECIFICATION, "With zero[4] = −0.5", "(1 + 0.5) · 0.25 = 0.375")


@pytest.mark.parametrize(
    ("name", "bfloat16", "float16"),
    [
        ("fused", "0x3E6F", "0x337C"),
        ("stepwise", "0x3E71", "0x337B"),
        ("bf16-params", "0x3E70", "0x337E"),
    ],
)
def test_three_evaluations_of_one_code(name: DashqRounding, bfloat16: str, float16: str) -> None:
    assert evaluate(name, 15, 0x464B, 0x26E0, "bfloat16") == bfloat16
    assert evaluate(name, 15, 0x464B, 0x26E0, "float16") == float16
    assert text_has(
        NUMERICS,
        "zero = `0x464B` = 6.29296875 and scale = `0x26E0` = 0.02685546875",
        "| weight | `0x3E6F` = 0.2333984375 | `0x3E71` = 0.2353515625 | `0x3E70` = 0.234375 |",
        "`fused` gives `0x337C`, `stepwise` `0x337B`, `bf16-params` `0x337E`",
    )


def test_the_steps_of_the_three_evaluations() -> None:
    zero, scale = float16_of(0x464B), float16_of(0x26E0)
    assert (zero[0], scale[0]) == (6.29296875, 0.02685546875)
    fifteen = np.array([15], np.float32)

    assert code_of(fifteen - zero) == "0x410B5000"
    assert code_of((fifteen - zero) * scale) == "0x3E6F7180"

    zero_bf16, scale_bf16 = round_float32(zero, "bfloat16"), round_float32(scale, "bfloat16")
    assert (code_of(zero_bf16), code_of(scale_bf16)) == ("0x40C9", "0x3CDC")
    assert (float(zero_bf16[0]), float(scale_bf16[0])) == (6.28125, 0.02685546875)
    exact = fifteen - zero_bf16.astype(np.float32)
    assert code_of(round_float32(exact, "bfloat16")) == "0x410C"
    assert code_of(exact) == "0x410B8000"
    assert code_of(exact * scale_bf16.astype(np.float32)) == "0x3E6FC400"
    assert text_has(
        NUMERICS,
        "| difference | `0x410B5000` = 8.70703125 | `0x410C` = 8.75 | `0x410B8000` = 8.71875 |",
        "| product | `0x3E6F7180` | `0x3E71` | `0x3E6FC400` |",
    )


def test_the_float32_rounding_of_the_product_counts() -> None:
    zero, scale = float16_of(0x9F59), float16_of(0x279F)
    assert (float(zero[0]), float(scale[0])) == (-0.007175445556640625, 0.0297698974609375)
    difference = np.array([14], np.float32) - zero
    assert code_of(difference) == "0x41601D64"
    assert float(difference[0]) == 14.007175445556640625
    assert code_of(difference * scale) == "0x3ED58000"
    assert float((difference * scale)[0]) == 0.4169921875
    assert evaluate("fused", 14, 0x9F59, 0x279F, "bfloat16") == "0x3ED6"

    exact = difference.astype(np.float64) * scale.astype(np.float64)
    assert exact[0] < 0.4169921875
    assert code_of(round_float64(exact, "bfloat16")) == "0x3ED5"
    assert text_has(
        NUMERICS,
        "the difference is `0x41601D64` = 14.007175445556640625 (exact)",
        "float32 rounds it to `0x3ED58000` = 0.4169921875",
        "float64, it would be `0x3ED5`",
    )


@pytest.mark.parametrize(
    ("q", "zero", "scale", "float16", "bfloat16"),
    [
        (3, 0x4200, 0x3C00, "0x0000", "0x0000"),
        (0, 0x3C00, 0x0000, "0x8000", "0x8000"),
        (0, 0x3C00, 0x0001, "0x8001", "0xB380"),
        (255, 0xFBFF, 0x7BFF, "0x7C00", "0x4F80"),
    ],
)
def test_zeros_subnormals_infinities(
    q: int, zero: int, scale: int, float16: str, bfloat16: str
) -> None:
    assert evaluate("fused", q, zero, scale, "float16") == float16
    assert evaluate("fused", q, zero, scale, "bfloat16") == bfloat16
    rows = [line for line in NUMERICS.read_text(encoding="utf-8").splitlines() if "| `" in line]
    cells = (f"| {q} | `0x{zero:04X}`", f"`0x{scale:04X}`", f"`{float16}`", f"`{bfloat16}`")
    assert any(all(cell in row for cell in cells) for row in rows)


def test_rounding_twice_is_not_rounding_once() -> None:
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    once, twice = round_float64(value, "bfloat16"), round_float64(value, "float32")
    assert code_of(once) == "0x3F81"
    assert code_of(twice) == "0x3F808000"
    assert code_of(round_float32(twice.astype(DTYPES["float32"]), "bfloat16")) == "0x3F80"
    assert text_has(NUMERICS, "1 + 2⁻⁷ (`0x3F81`)", "(`0x3F808000`), a tie, and then 1 (`0x3F80`)")
