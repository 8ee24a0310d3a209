"""bitnest-package-v1, chapter 6: codes and planes."""

import numpy as np
from nibblespec.conformance.suite.compare import expect_equal
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_data import to_plane
from nibblespec.conformance.suite.nested_domains import NestedCase, nested_weights
from nibblespec.conformance.suite.properties import for_all
from nibblespec.spec.operations import PackPlanes, UnpackPlanes

Q4 = np.array([[-8, -1, 0, 7, 3, -5]], np.int8)
QR = np.array([[5, -8, 7, -1, 0, 2]], np.int8)
HI = np.array([[0x70, 0xF8, 0x3B]], np.uint8)
LO = np.array([[0x0D, 0x7F, 0xA8]], np.uint8)


@requirement("BN1-PLANES-ORDER", "BN1-PLANES-EXCESS")
def test_golden_codes_are_packed(pack_planes: PackPlanes) -> None:
    """The worked example of the text, byte by byte."""
    hi, lo = pack_planes(Q4, QR)
    expect_equal("pack_planes, hi", hi, HI)
    expect_equal("pack_planes, lo", lo, LO)


@requirement("BN1-PLANES-ORDER", "BN1-PLANES-EXCESS")
def test_golden_bytes_are_unpacked(unpack_planes: UnpackPlanes) -> None:
    """The worked example of the text, code by code."""
    q4, qr = unpack_planes(HI, LO)
    expect_equal("unpack_planes, q4", q4, Q4)
    expect_equal("unpack_planes, qr", qr, QR)


@requirement("BN1-PLANES-EXCESS")
def test_every_nibble_is_read(unpack_planes: UnpackPlanes) -> None:
    """All 256 bytes: 0 is -8, 8 is 0, 15 is 7, in both halves."""
    byte = np.arange(256, dtype=np.uint8)
    low, high = byte.astype(np.int16) % 16 - 8, byte.astype(np.int16) // 16 - 8
    codes = np.stack([low, high], axis=1).reshape(1, 512).astype(np.int8)
    residual = np.full_like(codes, 1)
    q4, qr = unpack_planes(byte.reshape(1, 256), to_plane(residual))
    expect_equal("unpack_planes, q4", q4, codes)
    expect_equal("unpack_planes, qr", qr, residual)
    q4, qr = unpack_planes(to_plane(residual), byte.reshape(1, 256))
    expect_equal("unpack_planes, q4", q4, residual)
    expect_equal("unpack_planes, qr", qr, codes)


@requirement("BN1-PLANES-ROLES", "BN1-PLANES-ORDER")
@for_all(nested_weights)
def test_codes_go_to_hi_and_residuals_to_lo(case: NestedCase, pack_planes: PackPlanes) -> None:
    """Planes of every shape, an odd number of rows and a single one among them."""
    weight = case.weight
    hi, lo = pack_planes(weight.q4, weight.qr)
    expect_equal("pack_planes, hi", hi, weight.hi)
    expect_equal("pack_planes, lo", lo, weight.lo)


@requirement("BN1-PLANES-ROLES", "BN1-PLANES-ORDER")
@for_all(nested_weights)
def test_codes_are_read_from_hi_and_residuals_from_lo(
    case: NestedCase, unpack_planes: UnpackPlanes
) -> None:
    """Reading undoes packing, which is checked on its own."""
    weight = case.weight
    q4, qr = unpack_planes(weight.hi, weight.lo)
    expect_equal("unpack_planes, q4", q4, weight.q4)
    expect_equal("unpack_planes, qr", qr, weight.qr)
