"""Packed words and nibble planes: what is found in their bits, against one code at a time."""

from pathlib import Path

import numpy as np
import pytest
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.reading import blocks
from nibblespec.conformance.artifacts.reading.blocks import Run
from nibblespec.conformance.artifacts.scanning import units, zero_groups
from nibblespec.conformance.artifacts.scanning.zero_groups import Codes, mixed_groups
from nibblespec.reference.dashq_encoder import PackedModule, encode_dashq
from nibblespec.reference.planes import pack_nibbles
from nibblespec.reference.words import pack_words
from nibblespec.spec.operations import Array

from tests.contents import bitnest_findings, dashq_findings, ids, on_disk

BITS = range(1, 9)
RANDOM = np.random.default_rng(7)


def packed(nbits: int, rows: int = 7, columns: int = 48, group: int = 16) -> PackedModule:
    weight = np.random.default_rng(nbits).normal(0, 0.02, (rows, columns)).astype(np.float32)
    return encode_dashq(weight, nbits=nbits, group_size=group)


def with_word(module: PackedModule, index: int, bits: int) -> PackedModule:
    """Return the module with more bits set in one word."""
    words = module.words.copy()
    words[index] |= np.array(bits, np.uint32).view(np.int32)
    return PackedModule(module=module.module, words=words, scale=module.scale, zero=module.zero)


def with_scale(module: PackedModule, index: int, value: float) -> PackedModule:
    scale = module.scale.copy()
    scale[index] = value
    return PackedModule(module=module.module, words=module.words, scale=scale, zero=module.zero)


# Spare and tail bits


@pytest.mark.parametrize("nbits", [3, 5, 6, 7])
def test_each_spare_bit_of_any_word_is_found(tmp_path: Path, nbits: int) -> None:
    module = packed(nbits)
    for bit in range(nbits * (32 // nbits), 32):
        for index in (0, len(module.words) // 2, len(module.words) - 1):
            (found,) = dashq_findings(tmp_path, {"m": with_word(module, index, 1 << bit)})
            assert found.requirement == "DQ1-PACKING-SPARE-BITS"
            assert found.tensor == "m.W_q_packed"
            assert found.found.endswith(f" at [{index}]")


@pytest.mark.parametrize("nbits", BITS)
def test_each_tail_bit_is_found_and_the_bit_before_is_none(tmp_path: Path, nbits: int) -> None:
    module = packed(nbits, rows=1, columns=17, group=17)
    per_word = 32 // nbits
    rest = 17 % per_word
    assert dashq_findings(tmp_path, {"m": with_word(module, -1, 1 << nbits * rest - 1)}) == []
    for bit in range(nbits * rest, nbits * per_word):
        findings = dashq_findings(tmp_path, {"m": with_word(module, -1, 1 << bit)})
        assert ids(findings) == ["DQ1-PACKING-TAIL-BITS"]


@pytest.mark.parametrize("nbits", BITS)
def test_bits_that_hold_codes_are_neither(tmp_path: Path, nbits: int) -> None:
    module = packed(nbits)
    ones = pack_words(np.full(7 * 48, 2**nbits - 1, np.uint8), nbits)
    full = PackedModule(module=module.module, words=ones, scale=module.scale, zero=module.zero)
    assert dashq_findings(tmp_path, {"m": full}) == []


# Groups of scale 0


@pytest.mark.parametrize("nbits", BITS)
def test_a_zero_scale_with_one_code_is_sound_and_with_two_is_not(
    tmp_path: Path, nbits: int
) -> None:
    codes = np.zeros(6 * 16, np.uint8)
    codes[32:48] = 2**nbits - 1  # group 2: one code, though not 0
    codes[5 * 16 + 15] = 1  # group 5: another one at its end
    module = packed(nbits, rows=2, columns=48)
    scale = np.where(np.arange(6)[:, None] == 1, module.scale, 0).astype(np.float16)
    words = pack_words(codes, nbits)
    changed = PackedModule(module=module.module, words=words, scale=scale, zero=module.zero)
    (found,) = dashq_findings(tmp_path, {"m": changed})
    assert (found.requirement, found.tensor) == ("DQ1-TENSOR-SCALE-ZERO", "m.scale")
    assert found.found == "several codes at [5, 0]"


@pytest.mark.parametrize("window", [1, 16, 100, 2**18])
@pytest.mark.parametrize("group", [1, 3, 8, 40])
@pytest.mark.parametrize("nbits", BITS)
def test_mixed_groups_are_those_that_unpacking_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbits: int, group: int, window: int
) -> None:
    monkeypatch.setattr(zero_groups, "WINDOW", window)
    codes = RANDOM.integers(0, 2, (30, group), np.uint8) * (RANDOM.random((30, 1)) < 0.5)
    tensor = on_disk(tmp_path / "words", pack_words(codes.reshape(-1), nbits).tobytes())
    where = Codes(tensors=(tensor,), nbits=nbits, word_bytes=4, group=group)
    zero = RANDOM.random(20) < 0.7
    expected = zero & (codes[10:] != codes[10:, :1]).any(axis=1)
    hit = mixed_groups(zero, 10, where, Run())
    assert (hit.count if hit else 0) == expected.sum()
    assert hit is None or hit.first == 10 + expected.argmax()


def test_a_zero_scale_of_a_nested_layer_wants_both_planes_neutral(tmp_path: Path) -> None:
    q4, qr = np.zeros((2, 64), np.int8), np.zeros((2, 64), np.int8)
    scale = np.zeros((2, 4), np.float16)
    assert bitnest_findings(tmp_path, {"m": (q4, qr, scale)}, 16) == []
    qr[1, 20] = 3
    (found,) = bitnest_findings(tmp_path, {"m": (q4, qr, scale)}, 16)
    assert (found.requirement, found.found) == ("BN1-SCALE-ZERO", "other codes at [1, 1]")
    q4[0, 63] = -1
    (found,) = bitnest_findings(tmp_path, {"m": (q4, qr, scale)}, 16)
    assert found.found == "other codes at [0, 3], and 1 more"


def test_minus_zero_is_a_zero_scale(tmp_path: Path) -> None:
    module = with_scale(packed(4), 3, -0.0)
    assert ids(dashq_findings(tmp_path, {"m": module})) == ["DQ1-TENSOR-SCALE-ZERO"]


def test_the_smallest_scale_is_not_zero(tmp_path: Path) -> None:
    assert dashq_findings(tmp_path, {"m": with_scale(packed(4), 3, 2.0**-24)}) == []


# int8


def overflow_of(hi: Array, lo: Array, folder: Path) -> list[Finding]:
    q4, qr = hi.astype(np.int8), lo.astype(np.int8)
    groups = np.full((q4.shape[0], q4.shape[1] // 2), 0.01, np.float16)
    findings = bitnest_findings(folder, {"m": (q4, qr, groups)}, 2)
    return [found for found in findings if found.requirement == "BN1-CODES-INT8"]


def test_the_int8_rule_breaks_on_a_negative_residual_of_the_lowest_code_alone(
    tmp_path: Path,
) -> None:
    for q4 in range(-8, 8):
        for qr in range(-8, 8):
            findings = overflow_of(np.array([[0, q4]]), np.array([[0, qr]]), tmp_path)
            assert bool(findings) == (16 * q4 + qr < -128), (q4, qr)


@pytest.mark.parametrize("columns", [2, 14, 16, 18, 30])
def test_each_place_of_an_overflow_is_told(tmp_path: Path, columns: int) -> None:
    for row in range(2):
        for column in range(columns):
            hi, lo = np.full((2, columns), -8), np.zeros((2, columns))
            lo[row, column] = -3
            (found,) = overflow_of(hi, lo, tmp_path)
            assert found.tensor == "m.lo"
            assert found.found == f"qr = -3 at [{row}, {column}]"


def test_overflows_are_counted(tmp_path: Path) -> None:
    hi, lo = RANDOM.integers(-8, 8, (64, 34)), RANDOM.integers(-8, 8, (64, 34))
    expected = (hi == -8) & (lo < 0)
    (found,) = overflow_of(hi, lo, tmp_path)
    assert found.found.endswith(f", and {expected.sum() - 1:,} more")


# Blocks


@pytest.mark.parametrize("block", [64, 1024, 2**20])
def test_findings_do_not_depend_on_where_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Each kind of place twice in one module: 40,000 codes in blocks from 64 bytes on."""
    module = packed(5, rows=100, columns=400)
    module = with_word(with_word(module, 4000, 1 << 31), 6000, 1 << 30)
    for index in (700, 2100):
        module = with_scale(module, index, np.nan)
        module = with_scale(module, index + 1, -1)
        module = with_scale(module, index + 2, 0)
    whole = dashq_findings(tmp_path, {"m": module})
    assert len(whole) == 4
    monkeypatch.setattr(blocks, "BLOCK", block)
    monkeypatch.setattr(units, "BLOCK", block)
    monkeypatch.setattr(units, "JOB_BYTES", 4 * block)
    assert dashq_findings(tmp_path, {"m": module}) == whole
    assert {found.found.split(", and ")[1] for found in whole} == {"1 more"}


def test_planes_are_read_side_by_side_whatever_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hi, lo = RANDOM.integers(-8, 8, (64, 512)), RANDOM.integers(-8, 8, (64, 512))
    whole = overflow_of(hi, lo, tmp_path)
    monkeypatch.setattr(blocks, "BLOCK", 128)
    monkeypatch.setattr(units, "BLOCK", 128)
    monkeypatch.setattr(units, "JOB_BYTES", 512)
    assert overflow_of(hi, lo, tmp_path) == whole


def test_nibbles_are_those_of_the_format() -> None:
    """What the tests above rely on: −8 is the nibble 0, and the even column the low one."""
    assert pack_nibbles(np.array([[-8, 7]], np.int8)).tolist() == [[0xF0]]
