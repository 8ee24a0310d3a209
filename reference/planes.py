"""Nibble planes: two signed codes per weight, in two arrays of bytes.

    byte j of a row:   bit 7 … 4        bit 3 … 0
                       column 2j + 1    column 2j         u = q + 8, so that 0 is −8 and 8 is 0

The plane hi holds q4, the plane lo the residual qr; the eight-bit code is q8 = 16·q4 + qr. The
nested KV cache packs its vectors in the same way, along head_dim.
"""

import numpy as np
from nibblespec.reference.arguments import (
    check_array,
    check_choice,
    check_divides,
    check_not_empty,
    check_range,
)
from nibblespec.spec.operations import Bytes, Nibbles, Plane
from numpy.typing import NDArray

PLANES = ("draft", "target")
WIDE_CODES = "non-negative qr where q4 is -8 (BN1-CODES-INT8)"


def pack_planes(q4: Nibbles, qr: Nibbles) -> tuple[Bytes, Bytes]:
    """Pack the codes int8 [N, K] into the planes hi and lo, uint8 [N, K/2] each.

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER.

    Raises TypeError for a wrong dtype; ValueError for a wrong rank, different shapes, an empty
    array, an odd K, a code outside −8 … 7, or a negative qr where q4 is −8 (BN1-CODES-INT8).
    """
    check_array(q4, "q4", "int8", ("N", "K"))
    check_array(qr, "qr", "int8", q4.shape)
    check_not_empty(q4, "q4")
    planes = pack_nibbles(q4, "q4"), pack_nibbles(qr, "qr")
    check_pairs(q4, qr)
    return planes


def unpack_planes(hi: Bytes, lo: Bytes) -> tuple[Nibbles, Nibbles]:
    """Unpack the planes uint8 [N, K/2] into the codes (q4, qr), int8 [N, K] each.

    Implements BN1-PLANES-ROLES, BN1-PLANES-EXCESS and BN1-PLANES-ORDER. Every byte is two codes;
    pairs of q4 and qr that BN1-CODES-INT8 forbids are returned as they are.

    Raises TypeError for a wrong dtype, ValueError for a wrong rank, different shapes or an empty
    array.
    """
    check_array(hi, "hi", "uint8", ("N", "K/2"))
    check_array(lo, "lo", "uint8", hi.shape)
    check_not_empty(hi, "hi")
    return unpack_nibbles(hi), unpack_nibbles(lo)


def pack_nibbles(codes: Nibbles, name: str = "codes") -> Bytes:
    """Pack codes in −8 … 7, int8 [..., K] with an even K, into uint8 [..., K/2].

    Raises TypeError for a wrong dtype; ValueError for an odd K or a code outside −8 … 7.
    """
    check_array(codes, name, "int8", ("...", "K"))
    check_divides(2, codes.shape[-1], "codes per byte", "K")
    check_range(codes, name, -8, 7)
    excess = (codes + np.int8(8)).astype(np.uint8)
    return excess[..., 0::2] | excess[..., 1::2] << np.uint8(4)


def unpack_nibbles(plane: Bytes) -> Nibbles:
    """Unpack uint8 [..., K/2] into codes in −8 … 7, int8 [..., K].

    Raises TypeError for a wrong dtype, ValueError where there is no axis.
    """
    check_array(plane, "plane", "uint8", ("...", "K/2"))
    excess = np.stack([plane & np.uint8(15), plane >> np.uint8(4)], axis=-1)
    codes = excess.astype(np.int8) - np.int8(8)
    return codes.reshape(*plane.shape[:-1], 2 * plane.shape[-1])


def read_codes(hi: Bytes, lo: Bytes | None, plane: Plane, name: str = "") -> NDArray[np.int16]:
    """Return the codes that a plane reads, int16 [..., K]: q4 for draft, q8 for target.

    For draft, lo is not looked at and may be None (NUM-INVARIANT-DRAFT). `name` comes before hi
    and lo in messages.

    Raises TypeError for a wrong dtype; ValueError for different shapes, an empty array, an unknown
    plane, or codes that break BN1-CODES-INT8.
    """
    check_choice(plane, "plane", PLANES)
    check_array(hi, f"{name}hi", "uint8", ("...", "K/2"))
    check_not_empty(hi, f"{name}hi")
    q4 = unpack_nibbles(hi)
    if plane == "draft":
        return q4.astype(np.int16)
    check_array(lo, f"{name}lo", "uint8", hi.shape)
    assert lo is not None
    qr = unpack_nibbles(lo)
    check_pairs(q4, qr)
    return np.int16(16) * q4 + qr


def check_pairs(q4: Nibbles, qr: Nibbles) -> None:
    """Require that 16·q4 + qr fits eight bits: qr is not negative where q4 is −8."""
    bad = (q4 == -8) & (qr < 0)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"qr: expected {WIDE_CODES}, found {qr[index]} at {list(index)}")
