"""The operations of the exact class, one element at a time, by the text of the specification."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tests.independent_numbers import (
    Tensor,
    minus,
    narrowed,
    nearest_integer,
    over,
    rounded,
    times,
)

Parameters = dict[str, Any]
Inputs = dict[str, Tensor | None]
Exact = dict[str, list[Any]]
"""The elements of each output, in row-major order."""

DTYPE = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}


def words_of(codes: Sequence[int], nbits: int) -> list[int]:
    """Pack codes into signed words."""
    per_word = 32 // nbits
    words = []
    for start in range(0, len(codes), per_word):
        word = sum(code << nbits * i for i, code in enumerate(codes[start : start + per_word]))
        words.append(word - 2**32 if word >= 2**31 else word)
    return words


def codes_of(words: Sequence[int], nbits: int, count: int) -> list[int]:
    """Unpack codes from signed words."""
    per_word = 32 // nbits
    return [(words[i // per_word] >> nbits * (i % per_word)) & (2**nbits - 1) for i in range(count)]


def nibbles(planes: Sequence[int]) -> list[int]:
    """Unpack bytes into signed codes."""
    return [code for byte in planes for code in ((byte & 15) - 8, (byte >> 4) - 8)]


def packed_nibbles(codes: Sequence[int]) -> list[int]:
    """Pack signed codes into bytes."""
    return [low + 8 + 16 * (high + 8) for low, high in zip(codes[::2], codes[1::2], strict=True)]


def values(tensor: Tensor | None) -> list[Any]:
    """Return the elements of a tensor that has to be there."""
    assert tensor is not None
    return tensor.values


def rows(flat: Sequence[Any], width: int) -> list[list[Any]]:
    """Cut a flat sequence into rows."""
    return [list(flat[i : i + width]) for i in range(0, len(flat), width)]


def nested_codes(given: Inputs, plane: str, prefix: str = "") -> tuple[list[int], int]:
    """Return the codes that a plane reads, and what their scale is divided by."""
    q4 = nibbles(values(given[f"{prefix}hi"]))
    if plane == "draft":
        return q4, 1
    return [16 * a + b for a, b in zip(q4, nibbles(values(given[f"{prefix}lo"])), strict=True)], 16


def dashq_parts(parameters: Parameters, given: Inputs) -> list[list[tuple[int, float, float]]]:
    """Return code, zero and scale of every weight, [N][K]."""
    module = parameters["module"]
    stored, group = module["quant_in_features"], module["group_size"]
    count = module["out_features"] * stored
    codes = codes_of(values(given["words"]), module["nbits"], count)
    zero, scale = values(given["zero"]), values(given["scale"])
    flat = [(code, zero[i // group], scale[i // group]) for i, code in enumerate(codes)]
    return [row[: module["in_features"]] for row in rows(flat, stored)]


def dashq_weight(q: int, zero: float, scale: float, evaluation: str, dtype: str) -> float:
    """Return one weight (Numerics, chapter 3)."""
    if evaluation == "stepwise":
        difference = minus(q, narrowed(zero, dtype), dtype)
        return times(difference, narrowed(scale, dtype), dtype)
    if evaluation == "bf16-params":
        zero, scale = narrowed(zero, "BF16"), narrowed(scale, "BF16")
    return narrowed(times(minus(q, zero, "F32"), scale, "F32"), dtype)


def pack_words(parameters: Parameters, given: Inputs) -> Exact:
    """Chapter 6 of dashq-packed-linear."""
    return {"words": words_of(values(given["codes"]), parameters["nbits"])}


def unpack_words(parameters: Parameters, given: Inputs) -> Exact:
    """Chapter 6 of dashq-packed-linear."""
    return {"codes": codes_of(values(given["words"]), parameters["nbits"], parameters["count"])}


def dashq_reconstruct(parameters: Parameters, given: Inputs) -> Exact:
    """Chapter 7 of dashq-packed-linear."""
    evaluation, dtype = parameters["evaluation"], DTYPE[parameters["dtype"]]
    parts = dashq_parts(parameters, given)
    return {"weight": [dashq_weight(*part, evaluation, dtype) for row in parts for part in row]}


def pack_planes(_: Parameters, given: Inputs) -> Exact:
    """Chapter 6 of bitnest-package-v1."""
    codes = {"hi": values(given["q4"]), "lo": values(given["qr"])}
    return {plane: packed_nibbles(held) for plane, held in codes.items()}


def unpack_planes(_: Parameters, given: Inputs) -> Exact:
    """Chapter 6 of bitnest-package-v1."""
    return {"q4": nibbles(values(given["hi"])), "qr": nibbles(values(given["lo"]))}


def nested_reconstruct(parameters: Parameters, given: Inputs) -> Exact:
    """Chapter 7 of bitnest-package-v1."""
    codes, divisor = nested_codes(given, parameters["plane"])
    scale = values(given["scale"])
    group = len(codes) // len(scale)
    weight = [times(code, scale[i // group] / divisor, "F32") for i, code in enumerate(codes)]
    return {"weight": [narrowed(value, DTYPE[parameters["dtype"]]) for value in weight]}


def quantize_activations(parameters: Parameters, given: Inputs) -> Exact:
    """Chapter 8 of bitnest-package-v1."""
    x = given["x"]
    assert x is not None
    width = x.shape[1] if parameters["group"] == -1 else parameters["group"]
    groups = rows(x.values, width)
    floor = rounded(Fraction("1e-8"), "F32")
    scale = [max(over(max(map(abs, group)), 127.0), floor) for group in groups]
    codes = [
        nearest_integer(over(value, s), -128, 127)
        for group, s in zip(groups, scale, strict=True)
        for value in group
    ]
    return {"codes": codes, "scale": scale}


def kv_quantize(_: Parameters, given: Inputs) -> Exact:
    """Section 11.1 of bitnest-package-v1."""
    x, offset = given["x"], given["offset"]
    assert x is not None
    heads, tokens, width = x.shape[-3:]
    offsets = rows(offset.values, width) if offset else [[0.0] * width] * heads
    answer: Exact = {"hi": [], "lo": [], "scale": []}
    for i, vector in enumerate(rows(x.values, width)):
        head = offsets[i // tokens % heads]
        d = [minus(a, o, "F32") for a, o in zip(vector, head, strict=True)] if offset else vector
        scale = max(over(max(map(abs, d)), 7.0), rounded(Fraction("1e-8"), "F32"))
        q4 = [nearest_integer(over(a, scale), -8, 7) for a in d]
        rest = [minus(a, times(q, scale, "F32"), "F32") for a, q in zip(d, q4, strict=True)]
        qr = [
            nearest_integer(over(a, scale / 16), 0 if q == -8 else -8, 7)
            for a, q in zip(rest, q4, strict=True)
        ]
        answer["hi"] += packed_nibbles(q4)
        answer["lo"] += packed_nibbles(qr)
        answer["scale"].append(scale)
    return answer


def kv_dequantize(parameters: Parameters, given: Inputs) -> Exact:
    """Section 11.2 of bitnest-package-v1."""
    codes, divisor = nested_codes(given, parameters["plane"])
    scale = values(given["scale"])
    width = len(codes) // len(scale)
    found = [times(code, scale[i // width] / divisor, "F32") for i, code in enumerate(codes)]
    return {"values": found}
