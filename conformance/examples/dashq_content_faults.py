"""Faults of the dashq example that only the contents of tensors show."""

from collections.abc import Mapping

import numpy as np
from nibblespec.conformance.examples.faults import (
    Edit,
    Fault,
    change_values,
    replace_values,
    set_value,
)
from nibblespec.conformance.examples.files import Example, Tensor, tensor
from nibblespec.conformance.examples.models import SHARDS, random_weight
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.words import pack_words, unpack_words
from nibblespec.spec.operations import Array

_MODULE = "model.layers.1.self_attn.q_proj"
_SHARD = SHARDS[1]
_WORDS = f"{_MODULE}.W_q_packed"
_SCALE = f"{_MODULE}.scale"
_NAN = {"F16": 0x7E00, "BF16": 0x7FC0}
_CODES = 64 * 64


def _set(name: str, index: int, bits: int) -> Edit:
    return set_value(_SHARD, name, index, bits)


def _with_three_bits(bits: int, index: int) -> Edit:
    """Pack the module with 3 bits, and set more bits in one word."""

    def edit(example: Example) -> None:
        packed = encode_dashq(random_weight(64, 64), nbits=3, group_size=32)
        words = packed.words.copy()
        words[index] |= np.array(bits, np.uint32).astype(np.int32)
        shard = example.tensors[_SHARD]
        shard[_WORDS], shard[_SCALE] = tensor(words), tensor(packed.scale)
        shard[f"{_MODULE}.zero"] = tensor(packed.zero)
        manifest = example.documents["dashq_config.json"]
        manifest["quantized_modules"][_MODULE] = packed.module.model_dump(exclude_none=True)
        del manifest["params"]  # they say 4 bits

    return edit


def _three_codes(words: Array) -> Array:
    return pack_words(unpack_words(words, 4, _CODES) % np.uint8(3), 4)


def _add_buffer(example: Example) -> None:
    infinity = np.array([1, np.inf], np.float32)
    example.tensors[_SHARD]["model.rotary_emb.inv_freq"] = Tensor("F32", (2,), infinity.tobytes())


DASHQ_CONTENT_FAULTS: Mapping[str, Fault] = {
    "scale-nan": Fault(
        summary="a scale that is NaN",
        requirements=("DQ1-TENSOR-SCALE-FINITE",),
        edit=_set(_SCALE, 5, _NAN["F16"]),
    ),
    "zero-infinite": Fault(
        summary="a zero point that is infinite",
        requirements=("DQ1-TENSOR-ZERO-FINITE",),
        edit=_set(f"{_MODULE}.zero", 5, 0x7C00),
    ),
    "bias-nan": Fault(
        summary="a bias with a NaN",
        requirements=("DQ1-TENSOR-BIAS-FINITE",),
        edit=_set(f"{_MODULE}.bias", 5, _NAN["BF16"]),
    ),
    "scale-negative": Fault(
        summary="a negative scale",
        requirements=("DQ1-TENSOR-SCALE-SIGN",),
        edit=_set(_SCALE, 5, 0xBC00),
    ),
    "scale-underflow": Fault(
        summary="a group with the scale 0 and different codes",
        requirements=("DQ1-TENSOR-SCALE-ZERO",),
        edit=_set(_SCALE, 5, 0),
    ),
    "norm-nan": Fault(
        summary="a norm with a NaN",
        requirements=("DQ1-TENSOR-UNQUANTIZED-FINITE",),
        edit=_set("model.norm.weight", 5, _NAN["BF16"]),
    ),
    "buffer-infinite": Fault(
        summary="a buffer with an infinity",
        requirements=("DQ1-TENSOR-BUFFER-FINITE",),
        edit=_add_buffer,
    ),
    "spare-bits": Fault(
        summary="a word of ten 3-bit codes with its two spare bits set",
        requirements=("DQ1-PACKING-SPARE-BITS",),
        edit=_with_three_bits(0xC0000000, 7),
    ),
    "tail-bits": Fault(
        summary="a last word with bits after its last code",
        requirements=("DQ1-PACKING-TAIL-BITS",),
        edit=_with_three_bits(0x00040000, -1),
    ),
    "words-unwritten": Fault(
        summary="packed words that repeat the byte 0x88",
        requirements=("DQ1-STATISTICS-CONSTANT",),
        edit=change_values(_SHARD, _WORDS, lambda data: b"\x88" * len(data)),
    ),
    "three-codes": Fault(
        summary="a module of 4 bits that uses three codes",
        requirements=("DQ1-STATISTICS-CODES",),
        edit=replace_values(_SHARD, _WORDS, _three_codes),
    ),
    "scales-equal": Fault(
        summary="a module whose scales are all equal",
        requirements=("DQ1-STATISTICS-SCALES",),
        edit=replace_values(_SHARD, _SCALE, lambda scale: np.full_like(scale, 0.01)),
    ),
}
"""Faults by name, none of which shows before level `tensors`."""
