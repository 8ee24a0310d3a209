"""Statistics: silent on weights of every kind, whatever the width; loud on what is none.

Each threshold is also met from both sides.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nibblespec.reference.dashq_encoder import PackedModule, encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.reference.words import pack_words, unpack_words
from nibblespec.spec.operations import Array

from tests.contents import bitnest_findings, dashq_findings, ids
from tests.weights import KINDS, draw, gptq

Nested = tuple[Array, Array, Array]
GROUPS = (16, 32, 128, 1024)


def statistics(found: list[str]) -> list[str]:
    return [id_ for id_ in found if "STATISTICS" in id_]


# Good data


@pytest.mark.parametrize("nbits", range(1, 9))
def test_dashq_modules_of_every_kind_of_weight_are_silent(tmp_path: Path, nbits: int) -> None:
    modules = {
        f"{kind}.{group}": encode_dashq(draw(kind, 24, 1024), nbits=nbits, group_size=group)
        for kind in KINDS
        for group in GROUPS
    }
    assert dashq_findings(tmp_path, modules) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_dashq_modules_are_silent_whatever_the_dtype_of_scales(tmp_path: Path, dtype: str) -> None:
    """Weights 30 times as large as usual, so that fp8 can hold their scales."""
    modules = {
        f"{kind}.{nbits}": encode_dashq(
            30 * draw(kind, 64, 256), nbits=nbits, group_size=64, scale_zero_dtype=dtype
        )
        for kind in ("normal", "laplace", "uniform")
        for nbits in (2, 3, 4, 8)
    }
    assert dashq_findings(tmp_path, modules) == []


def test_tiny_modules_are_silent(tmp_path: Path) -> None:
    """As small as a single code, whatever its kind: chance rules there."""
    modules = {
        f"{rows}.{columns}.{nbits}": encode_dashq(
            draw("normal", rows, columns), nbits=nbits, group_size=columns
        )
        for rows in (1, 2, 3, 5)
        for columns in (1, 2, 3, 8, 31)
        for nbits in range(1, 9)
    }
    assert dashq_findings(tmp_path, modules) == []


@pytest.mark.parametrize("group", GROUPS)
def test_nested_layers_of_every_kind_of_weight_are_silent(tmp_path: Path, group: int) -> None:
    layers = {kind: encode_nested(draw(kind, 400, 1024), group) for kind in KINDS}
    assert bitnest_findings(tmp_path, layers, group) == []


@pytest.mark.parametrize("group", [1, 2, 6])
def test_tiny_layers_and_tiny_groups_are_silent(tmp_path: Path, group: int) -> None:
    layers = {
        f"{kind}.{rows}": encode_nested(draw(kind, rows, 6), group)
        for kind in KINDS
        for rows in (1, 2, 7, 4000)
    }
    assert bitnest_findings(tmp_path, layers, group) == []


@pytest.mark.parametrize("kind", ["normal", "laplace", "student", "uniform", "outliers"])
def test_nested_layers_with_codes_from_gptq_are_silent(tmp_path: Path, kind: str) -> None:
    layers = {"m": gptq(draw(kind, 1000, 256), 128)}
    assert statistics(ids(bitnest_findings(tmp_path, layers, 128))) == []


def test_a_layer_of_zeros_is_silent(tmp_path: Path) -> None:
    """Some models are initialized with them, and a block that is pruned away is left so."""
    zeros = np.zeros((64, 1024), np.float32)
    assert dashq_findings(tmp_path, {"m": encode_dashq(zeros, nbits=4, group_size=16)}) == []
    assert bitnest_findings(tmp_path, {"m": encode_nested(zeros, 16)}, 16) == []


# What is no weight: dashq


def changed(module: PackedModule, change: Callable[[Array], Array]) -> PackedModule:
    """Return a module with other codes [N, Kq]."""
    about = module.module
    codes = unpack_words(
        module.words, about.nbits, about.out_features * about.quant_in_features
    ).reshape(about.out_features, -1)
    words = pack_words(np.ascontiguousarray(change(codes)).reshape(-1), about.nbits)
    return PackedModule(module=about, words=words, scale=module.scale, zero=module.zero)


@pytest.mark.parametrize("nbits", range(1, 9))
def test_words_that_are_all_equal_are_told(tmp_path: Path, nbits: int) -> None:
    module = encode_dashq(draw("normal", 64, 64), nbits=nbits, group_size=32)
    constant = changed(module, lambda codes: np.full_like(codes, 1))
    (found,) = dashq_findings(tmp_path, {"m": constant})
    assert (found.requirement, found.tensor) == ("DQ1-STATISTICS-CONSTANT", "m.W_q_packed")


def test_a_last_word_that_is_filled_up_with_zeros_does_not_hide_a_constant(tmp_path: Path) -> None:
    module = encode_dashq(draw("normal", 1, 1024), nbits=3, group_size=32)
    constant = changed(module, lambda codes: np.full_like(codes, 5))
    assert ids(dashq_findings(tmp_path, {"m": constant})) == ["DQ1-STATISTICS-CONSTANT"]


def test_one_other_word_is_enough(tmp_path: Path) -> None:
    module = encode_dashq(draw("normal", 1, 1024), nbits=2, group_size=32)

    def all_but_one(codes: Array) -> Array:
        other = np.full_like(codes, 1)
        other[0, 500] = 2
        return other

    assert dashq_findings(tmp_path, {"m": changed(module, all_but_one)}) == []


@pytest.mark.parametrize(("nbits", "few"), [(3, 2), (4, 4), (5, 5), (6, 8), (7, 11), (8, 16)])
def test_few_codes_are_told_and_one_more_is_not(tmp_path: Path, nbits: int, few: int) -> None:
    module = encode_dashq(draw("normal", 64, 64), nbits=nbits, group_size=32)
    findings = dashq_findings(
        tmp_path,
        {
            "few": changed(module, lambda codes: codes % few),
            "more": changed(module, lambda codes: codes % (few + 1)),
        },
    )
    assert [(found.requirement, found.tensor) for found in findings] == [
        ("DQ1-STATISTICS-CODES", "few.W_q_packed")
    ]


def test_codes_of_two_bits_in_a_module_of_four_are_told(tmp_path: Path) -> None:
    narrow = encode_dashq(draw("normal", 64, 64), nbits=2, group_size=32)
    codes = unpack_words(narrow.words, 2, 64 * 64)
    wide = encode_dashq(draw("normal", 64, 64), nbits=4, group_size=32)
    module = changed(wide, lambda _: codes.reshape(64, 64))
    (found,) = dashq_findings(tmp_path, {"m": module})
    assert (found.requirement, found.found) == ("DQ1-STATISTICS-CODES", "4: 0, 1, 2, 3")


@pytest.mark.parametrize(("columns", "group"), [(1023, 33), (1020, 15)])
def test_small_modules_and_small_groups_are_not_judged_by_their_codes(
    tmp_path: Path, columns: int, group: int
) -> None:
    module = encode_dashq(draw("normal", 1, columns), nbits=4, group_size=group)
    modules = {
        "constant": changed(module, lambda codes: np.full_like(codes, 3)),
        "few": changed(module, lambda codes: codes % 3),
    }
    assert dashq_findings(tmp_path, modules) == []


@pytest.mark.parametrize(
    ("groups", "group", "dtype", "told"),
    [
        (64, 32, "float16", True),
        (63, 32, "float16", False),
        (64, 1024, "float32", True),
        (64, 1025, "float16", False),
        (64, 32, "bfloat16", False),
    ],
)
def test_equal_scales_are_told_where_they_are_no_chance(
    tmp_path: Path, groups: int, group: int, dtype: str, told: bool
) -> None:
    weight = draw("normal", groups, group)
    module = encode_dashq(weight, nbits=4, group_size=group, scale_zero_dtype=dtype)
    scale = np.full_like(module.scale, 0.5)
    equal = PackedModule(module=module.module, words=module.words, scale=scale, zero=module.zero)
    scale = scale.copy()
    scale[-1] *= 2
    other = PackedModule(module=module.module, words=module.words, scale=scale, zero=module.zero)
    assert ids(dashq_findings(tmp_path, {"m": equal})) == ["DQ1-STATISTICS-SCALES"] * told
    assert dashq_findings(tmp_path, {"m": other}) == []


# What is no weight: bitnest


def swapped(codes: Array) -> Array:
    """Return codes with the columns of each byte exchanged."""
    return codes.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(codes.shape)


def misread(codes: Array) -> Array:
    """Return two's-complement nibbles read as excess-8."""
    return ((codes.astype(np.int16) + 16) % 16 - 8).astype(np.int8)


BROKEN: dict[str, Callable[[Nested], Nested]] = {
    "residuals of the next row": lambda nested: (nested[0], np.roll(nested[1], 1, 0), nested[2]),
    "nibbles of lo in another order": lambda nested: (nested[0], swapped(nested[1]), nested[2]),
    "nibbles of hi in another order": lambda nested: (swapped(nested[0]), nested[1], nested[2]),
    "residuals in two's complement": lambda nested: (nested[0], misread(nested[1]), nested[2]),
    "residuals with the wrong sign": lambda nested: (
        nested[0],
        np.clip(-nested[1], -8, 7),
        nested[2],
    ),
    "random residuals": lambda nested: (
        nested[0],
        np.random.default_rng(5).integers(-8, 8, nested[1].shape, np.int8),
        nested[2],
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_residuals_of_other_codes_are_told_for_every_kind_of_weight(
    tmp_path: Path, broken: str
) -> None:
    """Where most pairs hold a zero, too few are left to tell; those kinds are left out."""
    kinds = [kind for kind in KINDS if kind not in ("sparse", "two of four", "cauchy")]
    layers = {kind: BROKEN[broken](encode_nested(draw(kind, 400, 1024), 128)) for kind in kinds}
    findings = bitnest_findings(tmp_path, layers, 128)
    told = {found.tensor for found in findings if found.requirement == "BN1-STATISTICS-PAIRS"}
    assert told == {f"{kind}.lo" for kind in kinds}


def test_pairs_of_a_small_layer_are_not_judged(tmp_path: Path) -> None:
    q4, qr, scale = encode_nested(draw("normal", 16, 1024), 128)
    broken = {"m": (q4, np.roll(qr, 1, 0), scale)}
    assert np.count_nonzero((q4 != 0) & (qr != 0)) < 16_384
    assert bitnest_findings(tmp_path, broken, 128) == []


@pytest.mark.parametrize("kind", ["normal", "laplace", "student", "outliers"])
def test_exchanged_planes_are_told(tmp_path: Path, kind: str) -> None:
    q4, qr, scale = encode_nested(draw(kind, 64, 1024), 128)
    found = ids(bitnest_findings(tmp_path, {"m": (qr, q4, scale)}, 128))
    assert found == ["BN1-CODES-INT8", "BN1-STATISTICS-SWAPPED"]


@pytest.mark.parametrize("plane", [0, 1])
def test_a_plane_of_one_byte_is_told(tmp_path: Path, plane: int) -> None:
    q4, qr, scale = encode_nested(draw("normal", 64, 1024), 128)
    (q4, qr)[plane][:] = 0
    (found,) = bitnest_findings(tmp_path, {"m": (q4, qr, scale)}, 128)
    assert found.requirement == "BN1-STATISTICS-CONSTANT"
    assert found.tensor == ("m.hi", "m.lo")[plane]
    assert found.found == "0x88 in every byte"


@pytest.mark.parametrize(("values", "told"), [((-1, 2), True), ((-2, 2), False)])
def test_four_values_of_q4_are_few_and_five_are_not(
    tmp_path: Path, values: tuple[int, int], told: bool
) -> None:
    q4, qr, scale = encode_nested(draw("normal", 64, 1024), 128)
    layers = {"m": (np.clip(q4, *values), qr, scale)}
    found = ids(bitnest_findings(tmp_path, layers, 128))
    assert found == ["BN1-STATISTICS-CODES"] * told


@pytest.mark.parametrize(("share", "told"), [(0.74, False), (0.76, True)])
def test_residuals_at_their_ends_are_told_above_three_quarters(
    tmp_path: Path, share: float, told: bool
) -> None:
    q4, qr, scale = encode_nested(draw("normal", 64, 1024), 128)
    inside = np.clip(qr, -7, 6)
    ends = np.where(qr.reshape(-1) < 0, -8, 7).astype(np.int8)
    chosen = np.random.default_rng(1).permutation(qr.size) < share * qr.size
    mixed = np.where(chosen, ends, inside.reshape(-1)).reshape(qr.shape)
    found = ids(bitnest_findings(tmp_path, {"m": (q4, mixed, scale)}, 128))
    assert found == ["BN1-STATISTICS-SATURATION"] * told


@pytest.mark.parametrize(("rows", "told"), [(64, True), (63, False)])
def test_equal_scales_of_a_layer_are_told_from_64_groups_on(
    tmp_path: Path, rows: int, told: bool
) -> None:
    q4, qr, scale = encode_nested(draw("normal", rows, 128), 128)
    layers = {"m": (q4, qr, np.full_like(scale, 0.25))}
    found = ids(bitnest_findings(tmp_path, layers, 128))
    assert found == ["BN1-STATISTICS-SCALES"] * told
