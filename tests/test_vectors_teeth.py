"""Programs with one fault each: the golden vectors tell every one of them, by its requirement."""
# ruff: noqa: ANN401 (most arguments only pass through)

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nibblespec.conformance.vectors.check import check_folder, failed
from nibblespec.conformance.vectors.export import export_vectors
from nibblespec.reference import backend
from nibblespec.reference.planes import pack_nibbles, unpack_nibbles
from nibblespec.reference.rounding import round_float32
from nibblespec.spec.operations import OPERATIONS

from tests.vector_program import write_outputs

Operation = Callable[..., Any]

reference: Any = backend


def first_code_on_top(codes: Any, nbits: int) -> Any:
    per_word = 32 // nbits
    padded = np.zeros(-(-len(codes) // per_word) * per_word, np.uint8)
    padded[: len(codes)] = codes
    return reference.pack_words(padded.reshape(-1, per_word)[:, ::-1].reshape(-1), nbits)


def mask_before_the_shift(words: Any, nbits: int, count: int) -> Any:
    places = np.arange(count)
    shifts = (places % (32 // nbits) * nbits).astype(np.int32)
    masks = (np.uint32(2**nbits - 1) << shifts.astype(np.uint32)).view(np.int32)
    return ((words[places // (32 // nbits)] & masks) >> shifts).astype(np.uint8)


def zero_point_off_by_one(words: Any, scale: Any, zero: Any, module: Any, dtype: Any) -> Any:
    return reference.dashq_reconstruct(words, scale, zero + zero.dtype.type(1), module, dtype)


def whole_zero_points(words: Any, scale: Any, zero: Any, module: Any, dtype: Any) -> Any:
    return reference.dashq_reconstruct(words, scale, np.rint(zero), module, dtype)


def truncated_weights(words: Any, scale: Any, zero: Any, module: Any, dtype: Any) -> Any:
    weight = reference.dashq_reconstruct(words, scale, zero, module, "float32")
    dropped = {"float32": 0, "bfloat16": 16, "float16": 13}[dtype]
    kept = weight.view(np.uint32) >> np.uint32(dropped) << np.uint32(dropped)
    return round_float32(kept.view(np.float32), dtype)


def flushed_subnormals(words: Any, scale: Any, zero: Any, module: Any, dtype: Any) -> Any:
    weight = reference.dashq_reconstruct(words, scale, zero, module, dtype)
    tiny = 2.0**-14 if dtype == "float16" else 2.0**-126
    return np.where(np.abs(weight) < tiny, 0 * weight, weight).astype(weight.dtype)


def bias_after_the_rounding(
    x: Any, words: Any, scale: Any, zero: Any, bias: Any, module: Any
) -> Any:
    y = reference.dashq_linear(x, words, scale, zero, None, module)
    return y if bias is None else y + bias


def swapped_nibbles(q4: Any, qr: Any) -> Any:
    return reference.pack_planes(
        *(codes.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(codes.shape) for codes in (q4, qr))
    )


def twos_complement(hi: Any, lo: Any) -> Any:
    return reference.unpack_planes(hi ^ np.uint8(0x88), lo ^ np.uint8(0x88))


def sixteenth_in_float16(hi: Any, lo: Any, scale: Any, plane: Any, dtype: Any) -> Any:
    if plane == "target":
        scale = (scale / np.float16(16)) * np.float16(16)
    return reference.nested_reconstruct(hi, lo, scale, plane, dtype)


def half_away_from_zero(x: Any, group: int) -> Any:
    codes, scale = reference.quantize_activations(x, group)
    quotient = x.astype(np.float32) / np.repeat(scale, x.shape[1] // scale.shape[1], 1)
    away = np.sign(quotient) * np.floor(np.abs(quotient) + np.float32(0.5))
    return away.astype(codes.dtype), scale


def reciprocal_scale(x: Any, group: int) -> Any:
    codes, scale = reference.quantize_activations(x, group)
    inverse = np.repeat(np.float32(1) / scale, x.shape[1] // scale.shape[1], 1)
    return np.rint(x.astype(np.float32) * inverse).astype(codes.dtype), scale


def first_input_scale(
    xq: Any, sx: Any, hi: Any, lo: Any, scale: Any, bias: Any, plane: Any, dtype: Any
) -> Any:
    return reference.nested_linear(xq, sx[:, :1].copy(), hi, lo, scale, bias, plane, dtype)


def wrapped_codes(
    xq: Any, sx: Any, hi: Any, lo: Any, scale: Any, bias: Any, plane: Any, dtype: Any
) -> Any:
    low = np.maximum(xq, np.int8(-127))
    return reference.nested_linear(low, sx, hi, lo, scale, bias, plane, dtype)


def transposed_matrix(x: Any, had_k: Any, dtype: Any) -> Any:
    return reference.hadamard(x, None if had_k is None else had_k.T.copy(), dtype)


def unscaled_transform(x: Any, had_k: Any, dtype: Any) -> Any:
    y = reference.hadamard(x, had_k, "float32")
    return round_float32(y * np.float32(np.sqrt(x.shape[-1])), dtype)


def float16_transform(x: Any, had_k: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):
        y = unscaled_transform(x, had_k, "float16").astype(np.float32)
    return round_float32(y / np.float32(np.sqrt(x.shape[-1])), dtype)


def fused_remainder(x: Any, offset: Any) -> Any:
    hi, _, scale = reference.kv_quantize(x, offset)
    d = x.astype(np.float32)
    if offset is not None:
        d = d - offset.astype(np.float32)[:, np.newaxis, :]
    q4 = unpack_nibbles(hi)
    step = scale[..., np.newaxis]
    rest = (d.astype(np.float64) - q4 * step.astype(np.float64)).astype(np.float32)
    qr = np.clip(np.rint(rest / (step / np.float32(16))), -8, 7)
    return hi, pack_nibbles(qr.astype(np.int8)), scale


def forgotten_offset(x: Any, offset: Any) -> Any:
    return reference.kv_quantize(x, None if offset is None else 0 * offset)


def draft_for_target(hi: Any, lo: Any, scale: Any, _: Any) -> Any:
    return reference.kv_dequantize(hi, lo, scale, "draft")


def one_key_more(*arguments: Any) -> Any:
    q, k_hi, position = arguments[0], arguments[1], arguments[8]
    last = k_hi.shape[2] - q.shape[2]
    return reference.kv_attention(*arguments[:8], min(position + 1, last), *arguments[9:])


def interleaved_heads(*arguments: Any) -> Any:
    q, shared = arguments[0], arguments[1].shape[1]
    order = np.arange(q.shape[1]).reshape(-1, shared).T.reshape(-1)
    y = reference.kv_attention(q[:, order].copy(), *arguments[1:])
    return y[:, np.argsort(order)].copy()


def forgotten_value_offset(*arguments: Any) -> Any:
    return reference.kv_attention(*arguments[:7], None, *arguments[8:])


FAULTS: dict[Operation, tuple[str, str]] = {
    first_code_on_top: ("pack_words", "DQ1-PACKING-ORDER"),
    mask_before_the_shift: ("unpack_words", "DQ1-PACKING-SIGN"),
    zero_point_off_by_one: ("dashq_reconstruct", "DQ1-RECONSTRUCT-ZERO-POINT"),
    whole_zero_points: ("dashq_reconstruct", "DQ1-RECONSTRUCT-ZERO-POINT"),
    truncated_weights: ("dashq_reconstruct", "NUM-ROUND-NEAREST"),
    flushed_subnormals: ("dashq_reconstruct", "NUM-ROUND-SUBNORMAL"),
    bias_after_the_rounding: ("dashq_linear", "DQ1-LINEAR-BIAS"),
    swapped_nibbles: ("pack_planes", "BN1-PLANES-ORDER"),
    twos_complement: ("unpack_planes", "BN1-PLANES-EXCESS"),
    sixteenth_in_float16: ("nested_reconstruct", "BN1-SCALE-SIXTEENTH"),
    half_away_from_zero: ("quantize_activations", "NUM-ROUND-NEAREST"),
    reciprocal_scale: ("quantize_activations", "BN1-ACT-CODES"),
    first_input_scale: ("nested_linear", "BN1-LINEAR-SEGMENTS"),
    wrapped_codes: ("nested_linear", "BN1-LINEAR-DOT"),
    transposed_matrix: ("hadamard", "BN1-HADAMARD-MATRIX"),
    unscaled_transform: ("hadamard", "BN1-HADAMARD-SCALE"),
    float16_transform: ("hadamard", "BN1-HADAMARD-RANGE"),
    fused_remainder: ("kv_quantize", "BN1-KV-RESIDUAL"),
    forgotten_offset: ("kv_quantize", "BN1-KV-OFFSET"),
    draft_for_target: ("kv_dequantize", "BN1-KV-TARGET"),
    one_key_more: ("kv_attention", "BN1-ATTENTION-CAUSAL"),
    interleaved_heads: ("kv_attention", "BN1-ATTENTION-HEADS"),
    forgotten_value_offset: ("kv_attention", "BN1-ATTENTION-OFFSET"),
}
"""The operation that each stands in for, and a requirement that it breaks."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors") / "set"
    export_vectors(folder, inputs_only=True)
    return folder


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of arithmetic that is wrong on purpose
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_fails_a_case_of_its_requirement(exported: Path, fault: Operation) -> None:
    operation, requirement = FAULTS[fault]
    operations = {name: getattr(reference, name) for name in OPERATIONS}
    program = SimpleNamespace(
        capabilities=reference.capabilities, **(operations | {operation: fault})
    )
    write_outputs(exported, program, (operation,))
    report = check_folder(exported)
    broken = [result for result in report.results if result.result == "fail"]
    assert failed(report)
    assert any(requirement in result.requirements for result in broken)
    assert all(requirement != "NUM-OUTPUT-FORM" for requirement in broken[0].requirements)


def test_the_program_without_a_fault_passes(exported: Path) -> None:
    write_outputs(exported, reference)
    assert not failed(check_folder(exported))
