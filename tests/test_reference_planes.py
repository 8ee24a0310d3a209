"""Nibble planes of the reference: literal bytes, all bytes, and what is refused."""

import numpy as np
import pytest
from nibblespec.reference.planes import (
    check_pairs,
    pack_nibbles,
    pack_planes,
    read_codes,
    unpack_nibbles,
    unpack_planes,
)
from nibblespec.reference.rounding import Array
from nibblespec.spec.operations import Nibbles

from tests.nested_layers import nested

RAMP = np.arange(-8, 8, dtype=np.int8).reshape(1, 16)


def int8(*rows: list[int]) -> Nibbles:
    return np.array(rows, np.int8)


def test_a_ramp_of_codes_packs_into_these_bytes() -> None:
    hi, lo = pack_planes(RAMP, -1 - RAMP)
    assert hi.tobytes().hex() == "1032547698badcfe"
    assert lo.tobytes().hex() == "efcdab8967452301"
    assert hi.dtype == np.uint8
    assert hi.shape == (1, 8)


def test_hi_holds_q4_and_lo_holds_qr() -> None:
    q4, qr = unpack_planes(np.array([[0x10]], np.uint8), np.array([[0xFE]], np.uint8))
    assert q4.tolist() == [[-8, -7]]
    assert qr.tolist() == [[6, 7]]


def test_every_byte_holds_two_codes_low_bits_first() -> None:
    unpacked = unpack_nibbles(np.arange(256, dtype=np.uint8).reshape(1, 256))
    assert unpacked.dtype == np.int8
    assert unpacked[0].tolist() == [
        code for byte in range(256) for code in (byte % 16 - 8, byte // 16 - 8)
    ]


def test_every_pair_of_codes_packs_into_its_byte() -> None:
    pairs = [[low, high] for low in range(-8, 8) for high in range(-8, 8)]
    packed = pack_nibbles(np.array(pairs, np.int8))
    assert packed[:, 0].tolist() == [(low + 8) + 16 * (high + 8) for low, high in pairs]


def test_rows_are_packed_by_themselves() -> None:
    layer = nested(0, 5, 6, 1)
    for row in range(5):
        hi, lo = pack_planes(layer.q4[row : row + 1], layer.qr[row : row + 1])
        assert hi.tolist() == layer.hi[row : row + 1].tolist()
        assert lo.tolist() == layer.lo[row : row + 1].tolist()


def test_planes_unpack_into_the_codes_they_were_packed_from() -> None:
    layer = nested(1, 7, 30, 1)
    q4, qr = unpack_planes(layer.hi, layer.lo)
    assert np.array_equal(q4, layer.q4)
    assert np.array_equal(qr, layer.qr)


def test_columns_that_are_not_contiguous_pack_alike() -> None:
    layer = nested(2, 4, 8, 1)
    strided = np.repeat(layer.q4, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    assert np.array_equal(pack_planes(strided, layer.qr)[0], layer.hi)


def test_the_target_reads_sixteen_q4_plus_qr() -> None:
    layer = nested(3, 4, 64, 1)
    pairs = zip(layer.q4.flat, layer.qr.flat, strict=True)
    codes = read_codes(layer.hi, layer.lo, "target")
    assert codes.reshape(-1).tolist() == [16 * int(q4) + int(qr) for q4, qr in pairs]


def test_the_extreme_codes_fit_eight_bits() -> None:
    hi, lo = pack_planes(int8([-8, 7]), int8([0, 7]))
    assert read_codes(hi, lo, "target").tolist() == [[-128, 119]]


def test_the_draft_reads_q4_whatever_lo_is() -> None:
    layer = nested(4, 4, 8, 1)
    forbidden = np.zeros_like(layer.lo)
    for lo in (None, layer.lo, forbidden):
        assert np.array_equal(read_codes(layer.hi, lo, "draft"), layer.q4)


def test_codes_that_overflow_eight_bits_are_unpacked_but_not_read() -> None:
    hi, lo = np.array([[0x80]], np.uint8), np.array([[0x87]], np.uint8)
    assert [codes.tolist() for codes in unpack_planes(hi, lo)] == [[[-8, 0]], [[-1, 0]]]
    with pytest.raises(ValueError, match=r"BN1-CODES-INT8.*found -1 at \[0, 0\]"):
        read_codes(hi, lo, "target")


def test_a_pair_at_the_limit_is_accepted() -> None:
    check_pairs(int8([-8, -7]), int8([0, -8]))


@pytest.mark.parametrize(
    ("q4", "qr", "error", "message"),
    [
        ([[1, 2]], int8([1, 2]), TypeError, "q4: expected a NumPy array"),
        (int8([1, 2]).astype(np.int16), int8([1, 2]), TypeError, "q4: expected dtype int8"),
        (int8([1, 2]), int8([1, 2]).view(np.uint8), TypeError, "qr: expected dtype int8"),
        (int8([1, 2])[0], int8([1, 2])[0], ValueError, "q4: expected shape"),
        (int8([1, 2]), int8([1, 2], [1, 2]), ValueError, "qr: expected shape"),
        (int8([1, 2, 3]), int8([1, 2, 3]), ValueError, "divisor of K = 3"),
        (np.zeros((0, 2), np.int8), np.zeros((0, 2), np.int8), ValueError, "no axis of size 0"),
        (np.zeros((2, 0), np.int8), np.zeros((2, 0), np.int8), ValueError, "no axis of size 0"),
        (int8([0, 8]), int8([1, 2]), ValueError, r"q4: expected elements in -8 … 7, found 8"),
        (int8([0, -9]), int8([1, 2]), ValueError, r"q4: .* found -9 at \[0, 1\]"),
        (int8([0, 1]), int8([8, 2]), ValueError, "qr: expected elements in -8 … 7"),
        (int8([0, 1]), int8([-9, 2]), ValueError, "qr: expected elements in -8 … 7"),
        (int8([0, -8]), int8([0, -1]), ValueError, r"BN1-CODES-INT8.*found -1 at \[0, 1\]"),
    ],
)
def test_packing_refuses(q4: Array, qr: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pack_planes(q4, qr)


BYTES = np.zeros((2, 3), np.uint8)


@pytest.mark.parametrize(
    ("hi", "lo", "error", "message"),
    [
        (BYTES.astype(np.int8), BYTES, TypeError, "hi: expected dtype uint8"),
        (BYTES, None, TypeError, "lo: expected a NumPy array, found NoneType"),
        (BYTES[0], BYTES[0], ValueError, "hi: expected shape"),
        (BYTES, BYTES[:1], ValueError, "lo: expected shape"),
        (BYTES[:0], BYTES[:0], ValueError, "no axis of size 0"),
    ],
)
def test_unpacking_refuses(hi: Array, lo: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        unpack_planes(hi, lo)


@pytest.mark.parametrize(
    ("codes", "error", "message"),
    [
        (np.zeros(4, np.int16), TypeError, "codes: expected dtype int8"),
        (np.zeros(3, np.int8), ValueError, "divisor of K = 3"),
        (np.full(2, 8, np.int8), ValueError, "codes: expected elements in -8 … 7"),
        (np.ones((), np.int8), ValueError, "codes: expected shape"),
    ],
)
def test_packing_nibbles_refuses(codes: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pack_nibbles(codes)


def test_unpacking_nibbles_refuses_signed_bytes() -> None:
    with pytest.raises(TypeError, match="plane: expected dtype uint8"):
        unpack_nibbles(np.zeros(2, np.int8))


def test_reading_refuses_an_unknown_plane() -> None:
    with pytest.raises(ValueError, match="plane: expected one of draft, target, found 'both'"):
        read_codes(BYTES, BYTES, "both")  # type: ignore[arg-type]  # the error is the point


def test_reading_the_target_needs_lo() -> None:
    with pytest.raises(TypeError, match="lo: expected a NumPy array, found NoneType"):
        read_codes(BYTES, None, "target")
