"""bitnest-package-v1, chapter 11: the nested KV cache."""

import numpy as np
from nibblespec.conformance.suite import exact
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.gate import claimed
from nibblespec.conformance.suite.kv_data import Planes, Vectors
from nibblespec.conformance.suite.kv_domains import planes, vectors
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_data import to_plane
from nibblespec.conformance.suite.properties import for_all
from nibblespec.reference.kv import kv_quantize as reference
from nibblespec.reference.planes import unpack_nibbles
from nibblespec.spec.operations import Array, Capabilities, KvDequantize, KvQuantize, Plane


@requirement("BN1-KV-PLANES", "BN1-KV-RESIDUAL")
def test_golden_vector(capabilities: Capabilities, kv_quantize: KvQuantize) -> None:
    """The worked example of the text, byte by byte."""
    claimed((4,), capabilities.head_dims, "a head_dim of 4")
    claimed(("float32",), capabilities.dtypes, "float32")
    x = np.array([[[7, -3.5, 0.6, 2.03]]], np.float32)
    hi, lo, scale = kv_quantize(x, None)
    expect_equal("kv_quantize, hi", hi, np.array([[[0x4F, 0xA9]]], np.uint8))
    expect_equal("kv_quantize, lo", lo, np.array([[[0xF8, 0x82]]], np.uint8))
    expect_equal("kv_quantize, scale", scale, np.ones((1, 1), np.float32))


@requirement("BN1-KV-SCALE")
@for_all(vectors())
def test_each_token_and_head_has_its_scale(case: Vectors, kv_quantize: KvQuantize) -> None:
    """A seventh of the largest magnitude, correctly rounded, and never below 1e-8."""
    _, _, scale = kv_quantize(case.x, case.offset)
    expect_equal("kv_quantize, scale", scale, reference(case.x, case.offset)[2])


@requirement("BN1-KV-CODES")
@for_all(vectors())
def test_codes_are_rounded_quotients(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Data far from zero, outlier channels and exact ties, in every head_dim."""
    hi, _, _ = kv_quantize(case.x, case.offset)
    expect_equal("kv_quantize, hi", hi, reference(case.x, case.offset)[0])


@requirement("BN1-KV-RESIDUAL")
@for_all(vectors("contraction", "ties", "ordinary"))
def test_residuals_are_rounded_step_by_step(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Product, difference and quotient each rounded: an FMA changes residuals here."""
    _, lo, _ = kv_quantize(case.x, case.offset)
    expect_equal("kv_quantize, lo", lo, reference(case.x, case.offset)[1])


@requirement("BN1-KV-CODES", "BN1-KV-RESIDUAL")
@for_all(vectors())
def test_vectors_by_rational_arithmetic(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Codes and residuals of a few vectors, each operation rounded by its definition."""
    hi, lo, _ = kv_quantize(case.x, case.offset)
    offsets = np.zeros((case.shape[-3], case.shape[-1])) if case.offset is None else case.offset
    for index in {(0,) * (len(case.shape) - 1), tuple(size - 1 for size in case.shape[:-1])}:
        x, offset = case.x[index].astype(np.float64), offsets[index[-2]].astype(np.float64)
        largest = int(np.argmax(np.abs(x.astype(np.float32) - offset.astype(np.float32))))
        chosen = [*range(min(24, len(x))), largest]  # with the element that sets the scale
        q4, qr, _ = exact.nested_kv(x[chosen].tolist(), offset[chosen].tolist())
        found4, foundr = unpack_nibbles(hi[index])[chosen], unpack_nibbles(lo[index])[chosen]
        expect_equal(f"kv_quantize, q4 of vector {index}", found4, np.array(q4, np.int8))
        expect_equal(f"kv_quantize, qr of vector {index}", foundr, np.array(qr, np.int8))


@requirement("BN1-KV-OFFSET")
@for_all(vectors("ordinary", "channel", "far from zero", offset=True))
def test_each_head_has_its_offset(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Subtracted in float32, the offset of the vector's own head."""
    expect_reference(case.x, case.offset, case, kv_quantize)


@requirement("BN1-KV-WIDEN")
@for_all(vectors())
def test_vectors_and_offsets_are_widened_first(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Planes of 16-bit numbers are those of the same numbers in float32."""
    offset = None if case.offset is None else case.offset.astype(np.float32)
    expect_reference(case.x.astype(np.float32), offset, case, kv_quantize)


@requirement("BN1-KV-PLANES")
@for_all(vectors())
def test_codes_are_packed_along_head_dim(case: Vectors, kv_quantize: KvQuantize) -> None:
    """q4 in hi and qr in lo, columns 2j and 2j + 1 in one byte."""
    hi, lo, _ = kv_quantize(case.x, case.offset)
    expected_hi, expected_lo, _ = reference(case.x, case.offset)
    expect_equal("kv_quantize, hi", hi, to_plane(unpack_nibbles(expected_hi)))
    expect_equal("kv_quantize, lo", lo, to_plane(unpack_nibbles(expected_lo)))


@requirement("BN1-KV-DRAFT")
@for_all(planes)
def test_the_draft_reads_codes_times_scale(case: Planes, kv_dequantize: KvDequantize) -> None:
    """One float32 product, for every kind of code and scale."""
    expect_read(case, "draft", kv_dequantize)


@requirement("BN1-KV-TARGET")
@for_all(planes)
def test_the_target_reads_eight_bits(case: Planes, kv_dequantize: KvDequantize) -> None:
    """(16 * q4 + qr) times a sixteenth of the scale, one float32 product."""
    expect_read(case, "target", kv_dequantize)


def expect_reference(
    x: Array, offset: Array | None, case: Vectors, kv_quantize: KvQuantize
) -> None:
    """Compare what the backend makes of a case with what the reference makes of x and offset."""
    found, expected = kv_quantize(case.x, case.offset), reference(x, offset)
    expect_equal("kv_quantize, scale", found[2], expected[2])
    expect_equal("kv_quantize, hi", found[0], expected[0])
    expect_equal("kv_quantize, lo", found[1], expected[1])


def expect_read(case: Planes, plane: Plane, kv_dequantize: KvDequantize) -> None:
    """Compare a read cache with products rounded by NumPy from float64, where they are exact."""
    codes = unpack_nibbles(case.hi).astype(np.float64)
    if plane == "target":
        codes = codes + unpack_nibbles(case.lo) / 16
    expected = (codes * case.scale.astype(np.float64)[..., np.newaxis]).astype(np.float32)
    lo = case.lo if plane == "target" else None
    found = kv_dequantize(case.hi, lo, case.scale, plane)
    # A zero code gives +0, as every scale is positive.
    expect_equal(f"kv_dequantize, {plane}", found, expected)
