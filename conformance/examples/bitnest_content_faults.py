"""Faults of the bitnest example that only the contents of tensors and files show."""

from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
from nibblespec.conformance.examples.faults import (
    Damage,
    Fault,
    change_values,
    replace_values,
    set_value,
)
from nibblespec.conformance.examples.files import Example, Files, checksums_of, tensor
from nibblespec.conformance.examples.models import nest, random_weight
from nibblespec.reference.planes import pack_nibbles, unpack_nibbles
from nibblespec.spec.operations import Array

_PLANES, _AUX = "planes.safetensors", "aux.safetensors"
_LAYER = "model.layers.1.self_attn.q_proj"
_HI, _LO, _SCALE = (f"{_LAYER}.{kind}" for kind in ("hi", "lo", "scale"))
_CHECKSUMS = "checksums.sha256"
_VOCABULARY = 1024


def _three_codes(hi: Array) -> Array:
    return pack_nibbles(np.clip(unpack_nibbles(hi), -1, 1))


def _saturate(lo: Array) -> Array:
    """Multiply residuals by 16, as if they had been divided by another scale."""
    wide = unpack_nibbles(lo).astype(np.int16) * 16
    return pack_nibbles(np.clip(wide, -8, 7).astype(np.int8))


def _flip_sign(matrix: Array) -> Array:
    changed = matrix.copy()
    changed[3, 5] *= -1
    return changed


def _swap_planes(example: Example) -> None:
    planes = example.tensors[_PLANES]
    planes[_HI], planes[_LO] = planes[_LO], planes[_HI]


def _overflow(example: Example) -> None:
    """Make the first weight of a layer q4 = −8 with qr = −1."""
    set_value(_PLANES, _HI, 0, 0x80)(example)
    set_value(_PLANES, _LO, 0, 0x87)(example)


def nested_head(example: Example, shift: int = 0) -> None:
    """Nest an output layer, and move the rows of its residuals by `shift`."""
    weight = random_weight(_VOCABULARY, 256)
    planes, aux = example.tensors[_PLANES], example.tensors[_AUX]
    head = nest(planes, "lm_head", weight, bias=False)
    example.documents["meta.json"]["layers"]["lm_head"] = head
    example.documents["config.json"]["vocab_size"] = _VOCABULARY
    del aux["lm_head"]
    aux["embed_tokens"] = tensor(weight.astype(ml_dtypes.bfloat16))
    replace_values(_PLANES, "lm_head.lo", lambda lo: np.roll(lo, shift, axis=0))(example)


def orthogonal_matrix(order: int) -> Array:
    """Return a random orthogonal matrix, scaled as a Hadamard matrix, float32 [order, order]."""
    random = np.random.default_rng(order)
    rotation: Array = np.linalg.qr(random.normal(size=(order, order)))[0]
    return np.multiply(rotation, np.sqrt(order)).astype(np.float32)


def _own_checksums(example: Example) -> None:
    example.checksums = False


def _list(change: Callable[[bytes], bytes]) -> Damage:
    """Return the damage that writes the list of checksums with a change."""

    def damage(files: Files) -> None:
        files[_CHECKSUMS] = change(checksums_of(files))

    return damage


def _readme(before: bytes | None, after: bytes) -> Damage:
    """Return the damage that writes README.md again after the list was made."""

    def damage(files: Files) -> None:
        files.update({"README.md": before} if before is not None else {})
        files[_CHECKSUMS] = checksums_of(files)
        files["README.md"] = after

    return damage


CONTENT_FAULTS: Mapping[str, Fault] = {
    "scale-infinite": Fault(
        summary="a scale that is infinite",
        requirements=("BN1-SCALE-FINITE",),
        edit=set_value(_PLANES, _SCALE, 5, 0x7C00),
    ),
    "scale-negative": Fault(
        summary="a negative scale",
        requirements=("BN1-SCALE-SIGN",),
        edit=set_value(_PLANES, _SCALE, 5, 0x8001),
    ),
    "scale-underflow": Fault(
        summary="a group with the scale 0 and codes that are not",
        requirements=("BN1-SCALE-ZERO",),
        edit=set_value(_PLANES, _SCALE, 5, 0),
    ),
    "bias-nan": Fault(
        summary="a bias with a NaN",
        requirements=("BN1-BIAS-FINITE",),
        edit=set_value(_PLANES, f"{_LAYER}.bias", 5, 0x7E00),
    ),
    "embedding-nan": Fault(
        summary="an embedding with a NaN",
        requirements=("BN1-AUX-FINITE",),
        edit=set_value(_AUX, "embed_tokens", 5, 0xFFC0),
    ),
    "norm-not-one": Fault(
        summary="a final norm that is not all ones, where norms are fused",
        requirements=("BN1-NORM-ONES",),
        edit=set_value(_AUX, "final_norm", 5, 0x3F81),
    ),
    "hadamard-sign": Fault(
        summary="a Hadamard matrix with one wrong sign",
        requirements=("BN1-HADK-ORTHOGONAL",),
        edit=replace_values(_AUX, "had_K.12", _flip_sign),
    ),
    "hadamard-real": Fault(
        summary="an orthogonal matrix that is no Hadamard matrix",
        requirements=("BN1-HADK-SIGNS",),
        edit=replace_values(_AUX, "had_K.12", lambda _: orthogonal_matrix(12)),
    ),
    "int8-overflow": Fault(
        summary="q4 = −8 with a negative residual",
        requirements=("BN1-CODES-INT8",),
        edit=_overflow,
    ),
    "plane-unwritten": Fault(
        summary="a plane that repeats the byte 0x88",
        requirements=("BN1-STATISTICS-CONSTANT",),
        edit=change_values(_PLANES, _LO, lambda data: b"\x88" * len(data)),
    ),
    "three-codes": Fault(
        summary="a layer that uses three values of q4",
        requirements=("BN1-STATISTICS-CODES",),
        edit=replace_values(_PLANES, _HI, _three_codes),
    ),
    "scales-equal": Fault(
        summary="a layer whose scales are all equal",
        requirements=("BN1-STATISTICS-SCALES",),
        edit=replace_values(_PLANES, _SCALE, lambda scale: np.full_like(scale, 0.01)),
    ),
    "residual-saturated": Fault(
        summary="residuals that were divided by a sixteenth of their step",
        requirements=("BN1-STATISTICS-SATURATION",),
        edit=replace_values(_PLANES, _LO, _saturate),
    ),
    "planes-swapped": Fault(
        summary="hi and lo of a layer exchanged",
        requirements=("BN1-CODES-INT8", "BN1-STATISTICS-SWAPPED"),
        edit=_swap_planes,
    ),
    "residuals-astray": Fault(
        summary="residuals of another row than the codes",
        requirements=("BN1-STATISTICS-PAIRS",),
        edit=lambda example: nested_head(example, shift=1),
    ),
}

CHECKSUM_FAULTS: Mapping[str, Fault] = {
    "checksums-comment": Fault(
        summary="a list of checksums with a comment in it",
        requirements=("BN1-CHECKSUMS-LINES",),
        edit=_own_checksums,
        damage=_list(lambda lines: b"# SHA-256\n" + lines),
    ),
    "checksums-marker": Fault(
        summary="a list of checksums with the marker of binary mode",
        requirements=("BN1-CHECKSUMS-MARKER",),
        edit=_own_checksums,
        damage=_list(lambda lines: lines.replace(b"  config", b" *config")),
    ),
    "checksums-outside": Fault(
        summary="a list of checksums that names a file outside of the folder",
        requirements=("BN1-CHECKSUMS-NAMES",),
        edit=_own_checksums,
        damage=_list(lambda lines: lines + b"0" * 64 + b"  ../config.json\n"),
    ),
    "checksums-twice": Fault(
        summary="a list of checksums with a line twice",
        requirements=("BN1-CHECKSUMS-UNIQUE",),
        edit=_own_checksums,
        damage=_list(lambda lines: lines + lines.splitlines(keepends=True)[0]),
    ),
    "checksums-missing-file": Fault(
        summary="a list of checksums that names a file that is not there",
        requirements=("BN1-CHECKSUMS-FILES",),
        edit=_own_checksums,
        damage=_list(lambda lines: lines + b"0" * 64 + b"  tokenizer.json\n"),
    ),
    "checksums-mismatch": Fault(
        summary="a file that was changed after its checksum was taken",
        requirements=("BN1-CHECKSUMS-MATCH",),
        edit=_own_checksums,
        damage=_readme(b"# Model\n", b"# A model\n"),
    ),
    "checksums-incomplete": Fault(
        summary="a list of checksums without config.json",
        requirements=("BN1-CHECKSUMS-COMPLETE",),
        edit=_own_checksums,
        damage=_list(
            lambda lines: b"".join(
                line for line in lines.splitlines(keepends=True) if b"config" not in line
            )
        ),
    ),
    "checksums-unlisted": Fault(
        summary="a file that was added after the list of checksums was made",
        requirements=("BN1-CHECKSUMS-UNLISTED",),
        edit=_own_checksums,
        damage=_readme(None, b"# Model\n"),
    ),
}

BITNEST_CONTENT_FAULTS: Mapping[str, Fault] = {**CONTENT_FAULTS, **CHECKSUM_FAULTS}
"""Faults by name, none of which shows before level `tensors`."""
