"""The numbers in the text: what the chapters on bitnest work out by hand, computed.

Each test holds the numbers as the text prints them and checks both: that the reference computes
them, and that the text still prints them.
"""

import math
from importlib.resources import files

import numpy as np
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.attention import kv_attention
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.hadamard import hadamard
from nibblespec.reference.kv import kv_dequantize, kv_quantize
from nibblespec.reference.nested import nested_linear, nested_reconstruct, segments
from nibblespec.reference.planes import pack_planes, read_codes
from nibblespec.reference.rounding import Array, round_float32

from tests.nested_layers import float32

SPECIFICATION = files("nibblespec.spec").joinpath("bitnest_package/v1/specification.md")
NUMERICS = files("nibblespec.spec").joinpath("numerics.md")

Q4 = np.array([[-8, -1, 0, 7, 3, -5]], np.int8)
QR = np.array([[5, -8, 7, -1, 0, 2]], np.int8)
SCALE = np.array([[0x2E66]], np.uint16).view(np.float16)


def text_has(*excerpts: str, document: object = SPECIFICATION) -> bool:
    """Return whether the text has all of these, whatever its line breaks."""
    assert hasattr(document, "read_text")
    text = " ".join(document.read_text(encoding="utf-8").split())
    return all(excerpt in text for excerpt in excerpts)


def row(name: str, *cells: object) -> str:
    """Return a row of a table as the text writes it, with its own minus sign."""
    return f"| {name} | " + " | ".join(str(cell).replace("-", "−") for cell in cells) + " |"


def codes(values: Array) -> list[str]:
    """Return the codes of numbers as the text writes them."""
    digits = 2 * values.dtype.itemsize
    patterns = values.reshape(-1).view(f"u{values.dtype.itemsize}").tolist()
    return [f"`0x{pattern:0{digits}X}`" for pattern in patterns]


def bytes_of(plane: Array) -> str:
    return plane.tobytes().hex(" ").upper()


def test_a_row_of_six_columns_as_bytes() -> None:
    hi, lo = pack_planes(Q4, QR)
    assert bytes_of(hi) == "70 F8 3B"
    assert bytes_of(lo) == "0D 7F A8"
    target = read_codes(hi, lo, "target")[0].tolist()
    assert target == [-123, -24, 7, 111, 48, -78]
    assert text_has(
        row("q4", -8, -1, 0, 7, 3, -5),
        row("q4 + 8", 0, 7, 8, 15, 11, 3, "hi = `70 F8 3B`"),
        row("qr", 5, -8, 7, -1, 0, 2),
        row("qr + 8", 13, 0, 15, 7, 8, 10, "lo = `0D 7F A8`"),
        row("q8 = 16·q4 + qr", *target),
    )


def test_draft_and_target_weights_of_that_row() -> None:
    hi, lo = pack_planes(Q4, QR)
    draft = nested_reconstruct(hi, None, SCALE, "draft", "float32")[0]
    assert text_has("the scale `0x2E66` (float16 0.0999755859375)", "0.00624847412109375")
    assert float(SCALE[0, 0]) / 16 == 0.00624847412109375
    numbers = ["0" if value == 0 else repr(value) for value in draft.astype(float).tolist()]
    narrow = nested_reconstruct(hi, None, SCALE, "draft", "bfloat16")
    target = nested_reconstruct(hi, lo, SCALE, "target", "float32")
    narrow_target = nested_reconstruct(hi, lo, SCALE, "target", "bfloat16")
    assert text_has(
        row("draft, float32", *numbers),
        row("draft, bfloat16", *codes(narrow)),
        row("target, float32", *codes(target)),
        row("target, bfloat16", *codes(narrow_target)),
    )


def test_activations_with_ties() -> None:
    x = float32(127, 0.5, 1.5, -2.5, 3.25, 0).reshape(1, 6)
    per_token, scale = quantize_activations(x, -1)
    assert (per_token.tolist(), scale.tolist()) == ([[127, 0, 2, -2, 3, 0]], [[1]])
    per_group, scales = quantize_activations(x, 3)
    assert per_group.tolist() == [[127, 0, 2, -98, 127, 0]]
    assert codes(scales) == ["`0x3F800000`", "`0x3CD1A347`"]
    assert text_has(
        "| −1 | 127, 0.5, 1.5, −2.5, 3.25, 0 | 1 | 127, 0, 2, −2, 3, 0 |",
        "1, `0x3CD1A347` (3.25/127) | 127, 0, 2, −98, 127, 0 |",
    )


def test_the_smallest_scale() -> None:
    _, scale = quantize_activations(np.zeros((1, 1), np.float32), -1)
    assert codes(scale) == ["`0x322BCC77`"]
    assert text_has("scale 1e-8 (bits `0x322BCC77`)")


def test_a_code_that_a_reciprocal_changes() -> None:
    x = np.array([[0x3F90, 0x3F10]], np.uint16).astype(np.uint32) << np.uint32(16)
    codes_of_x, scale = quantize_activations(x.view(np.float32), -1)
    assert (x.view(np.float32).tolist(), codes_of_x[0, 1]) == ([[1.125, 0.5625]], 63)
    quotient = np.float32(0.5625) / scale[0, 0]
    inverse = np.float32(1) / scale[0, 0]
    product = np.float32(0.5625) * inverse
    assert (quotient < 63.5, np.rint(product)) == (True, 64)
    found = codes(np.array([scale[0, 0], quotient, inverse, product]))
    assert text_has(
        f"has s = {found[0]}, and 0.5625 / s is {found[1]}, just below 63.5, so that its code",
        f"nearest to 1/s, {found[2]}, is {found[3]}, 63.5, which gives 64",
    )


def test_a_scale_of_minus_zero() -> None:
    hi, lo = pack_planes(Q4, QR)
    scale = np.array([[-0.0]], np.float16)
    for plane, sign in (("draft", Q4[0] >= 0), ("target", 16 * Q4[0].astype(int) + QR[0] >= 0)):
        weight = nested_reconstruct(
            hi, lo, scale, "draft" if plane == "draft" else "target", "float32"
        )
        assert np.array_equal(np.signbit(weight[0]), sign)
    assert text_has("−0 for a code of 0 or more, and +0 for a negative one")


def test_a_layer_with_two_kinds_of_groups() -> None:
    xq, sx = np.array([[1, -2, 3, 4, -5, 6]], np.int8), float32(0.5, 2).reshape(1, 2)
    scale = np.array([[1, 0.25, 4]], np.float16)
    hi, lo = pack_planes(Q4, QR)
    pieces = segments(6, 3, 2)
    assert pieces == [(0, 2), (2, 3), (3, 4), (4, 6)]
    for plane, name, step in (("draft", "scale", 1), ("target", "scale/16", 16)):
        q = read_codes(hi, lo, "draft" if plane == "draft" else "target")[0].astype(int)
        dots = [int(xq[0, a:b].astype(int) @ q[a:b]) for a, b in pieces]
        terms = [
            dot * sx[0, a // 3] * float(scale[0, a // 2]) / step
            for dot, (a, _) in zip(dots, pieces, strict=True)
        ]
        assert text_has(
            row(f"{plane}: dot", *dots),
            row(f"{plane}: dot·sx·{name}", *(f"{term:.10g}" for term in terms)),
        )
    bias = np.array([0.5], np.float16)
    draft = nested_linear(xq, sx, hi, None, scale, bias, "draft", "float32")
    target = nested_linear(xq, sx, hi, lo, scale, bias, "target", "float32")
    assert (draft.tolist(), target.tolist()) == ([[-348.5]], [[-341.8046875]])
    assert text_has("the draft is −348.5 and the target −341.8046875")
    for name, wide in (("draft", draft), ("target", target)):
        narrow = (wide, round_float32(wide, "bfloat16"), round_float32(wide, "float16"))
        assert text_has(row(name, *(codes(value)[0] for value in narrow)))


def test_transforms_of_four_elements() -> None:
    x, had_k = float32(1, 2, 3, 4), float32(1, 1, -1, 1).reshape(2, 2)
    assert hadamard(x, None, "float32").tolist() == [5, -1, -2, 0]
    assert hadamard(x, had_k, "float32").tolist() == [5, -1, 2, 0]
    assert hadamard(x, np.ascontiguousarray(had_k.T), "float32").tolist() == [-2, 0, 5, -1]
    assert text_has(
        "| 1, 2, 3, 4, no matrix | [1, 4] | 10, −2, −4, 0 | 5, −1, −2, 0 |",
        "had_K = [[1, 1], [−1, 1]] | [2, 2] | 10, −2, 4, 0 | 5, −1, 2, 0 |",
        "transposed (wrong) | [2, 2] | −4, 0, 10, −2 | −2, 0, 5, −1 |",
    )


def test_a_transform_of_eight_elements_stride_by_stride() -> None:
    x = np.arange(1, 9, dtype=np.float32)
    y = x
    for stride in (1, 2, 4):
        pairs = y.reshape(-1, 2, stride)
        y = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(8)
        listed = ", ".join(f"{int(value)}".replace("-", "−") for value in y)
        assert text_has(f"| {stride} | {listed} |")
    result = hadamard(x, None, "float32")
    assert codes(float32(1 / math.sqrt(8))) == ["`0x3EB504F3`"]
    for dtype in ("float32", "bfloat16"):
        narrow = result if dtype == "float32" else round_float32(result, "bfloat16")
        assert text_has(", ".join("0" if value == 0 else codes(value)[0] for value in narrow))
    assert codes(y[:1] / np.float32(math.sqrt(8))) == ["`0x414BA592`"]
    assert text_has("the first element is `0x414BA592`")


def test_the_constant_of_the_scale() -> None:
    sizes = (64, 128, 8192, 11008, 14336, 18944)
    constants = codes(np.array([1 / math.sqrt(n) for n in sizes], np.float32))
    assert text_has(row("n", *sizes), row("float32(1/√n)", *constants))


def test_the_constant_is_the_nearest_for_every_length() -> None:
    n = np.arange(1, 65536)
    constants = (1 / np.sqrt(n)).astype(np.float32)
    # |c - 1/√n| is at most half a step: (c ± step/2)² · n, in exact integers, encloses 1.
    mantissa, exponent = np.frexp(constants)
    digits = np.ldexp(mantissa, 25).astype(np.int64).tolist()  # in halves of a step
    for count, units, power in zip(n.tolist(), digits, exponent.tolist(), strict=True):
        one = 1 << 2 * (25 - power)
        assert (units - 1) ** 2 * count <= one <= (units + 1) ** 2 * count


def test_eight_everywhere_overflows_float16_at_8192() -> None:
    x = np.full(8192, 8, np.float16)
    assert hadamard(x, None, "float32")[0] * math.sqrt(8192) > 65504
    assert text_has("float16 values around 8 at n = 8192 reaches 65,536")


def test_a_cache_entry_of_four_elements() -> None:
    hi, lo, scale = kv_quantize(float32(7, -3.5, 0.6, 2.03).reshape(1, 4), None)
    assert scale.tolist() == [1]
    assert bytes_of(hi) == "4F A9"
    assert bytes_of(lo) == "F8 82"
    assert text_has(
        "q4 = 7, −4, 1, 2, hence hi = `4F A9`",
        "qr = 0, 7, −6, 0 and lo = `F8 82`",
    )
    assert kv_dequantize(hi, None, scale, "draft").tolist() == [[7, -4, 1, 2]]
    assert kv_dequantize(hi, lo, scale, "target").tolist() == [[7, -3.5625, 0.625, 2]]
    assert text_has("the draft is 7, −4, 1, 2, and the target is 7, −3.5625, 0.625, 2")


def test_a_residual_that_a_contraction_changes() -> None:
    x = float32(1, -0.96875)
    hi, lo, scale = kv_quantize(x, None)
    q4, qr = (plane >> 4 for plane in (hi[0], lo[0]))
    assert (int(q4) - 8, int(qr) - 8) == (-7, 3)
    product = np.float32(-7) * scale
    exact = float(x[1]) + 7 * float(scale)  # 27 bits: float64 does not round it
    remainder, fused = x[1] - product, np.float32(exact)
    sixteenth = scale / np.float32(16)
    assert (np.rint(remainder / sixteenth), np.rint(fused / sixteenth)) == (3, 4)
    found = codes(np.array([scale, product, remainder, fused]))
    assert text_has(
        f"hence s = {found[0]}",
        f"q4·s is −1 ({found[1]}) after its rounding",
        f"so that the remainder is 0.03125 ({found[2]})",
        f"it is {float(remainder / sixteenth):.7f}, and qr is 3",
        f"the remainder {found[3]}",
        f"the quotient {float(fused / sixteenth):.6f}, and the residual 4",
    )


def test_attention_over_two_keys() -> None:
    keys = kv_quantize(np.array([[[[math.log(3), 0], [0, 0]]]], np.float32), None)
    values = kv_quantize(np.array([[[[7, 4], [0, 0]]]], np.float32), None)
    q, offset = np.array([[[[1, 0]]]], np.float32), np.ones((1, 2), np.float16)
    y = kv_attention(q, *keys, *values, offset, 1, "target", 1.0, "float32")
    assert np.allclose(y, [6.25, 4], rtol=2.0**-22)
    assert text_has("The weights are 3/4 and 1/4 and the result is 6.25, 4")
    for name, (hi, lo, scales) in (("keys", keys), ("values", values)):
        planes = [", ".join(f"`{byte}`" for byte in bytes_of(plane).split()) for plane in (hi, lo)]
        assert text_has(row(name, *planes, ", ".join(codes(scales))))


def test_how_tight_the_bound_of_a_transform_is() -> None:
    x = np.random.default_rng(0).normal(size=(1, 8192)).astype(np.float32)
    assert 5e-4 < hadamard_bounded(x, None).error.max() < 6.5e-4
    assert 1 / math.sqrt(8192) > 1e-2
    assert text_has("some 6·10⁻⁴ of the size of an input", document=NUMERICS)


def test_orthogonality_of_matrices_in_narrow_formats() -> None:
    orthogonal, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(148, 148)))
    exact = orthogonal * np.sqrt(148)

    def error(matrix: Array) -> float:
        wide = matrix.astype(np.float64)
        return float(np.abs(wide @ wide.T - 148 * np.eye(148)).max())

    tolerance = 148 * (148 + 8) * 2.0**-24
    assert round(tolerance, 4) == 0.0014
    assert error(exact.astype(np.float32)) < tolerance / 100
    assert error(exact.astype(np.float16)) > 10 * tolerance
    assert text_has("For K = 148 the tolerance is 1.4·10⁻³")
