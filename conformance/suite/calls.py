"""Ordinary calls of every operation, for what holds of all operations alike."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nibblespec.conformance.suite.activation_domains import activations
from nibblespec.conformance.suite.attention_domains import attentions, operands
from nibblespec.conformance.suite.dashq_data import pack, spare_bits
from nibblespec.conformance.suite.dashq_domains import dashq_layers, dashq_weights
from nibblespec.conformance.suite.hadamard_domains import transforms
from nibblespec.conformance.suite.kv_domains import planes, vectors
from nibblespec.conformance.suite.nested_domains import (
    layer_operands,
    nested_layers,
    nested_weights,
)
from nibblespec.conformance.suite.packing_domains import code_sequences
from nibblespec.spec.operations import OPERATIONS, Capabilities

Arguments = tuple[Any, ...]
MOST = 12


def sample_calls(operation: str, capabilities: Capabilities) -> list[Arguments]:
    """Return the arguments of up to a dozen claimed calls, of different shapes and dtypes."""
    calls = list(_CALLS[operation](capabilities))
    if len(calls) <= MOST:
        return calls
    # Not every n-th: the calls go round in cycles, and n may be a multiple of one.
    return [calls[place * (len(calls) - 1) // (MOST - 1)] for place in range(MOST)]


def _pack_words(capabilities: Capabilities) -> Iterable[Arguments]:
    return ((case.codes, case.nbits) for case in code_sequences(capabilities).always)


def _unpack_words(capabilities: Capabilities) -> Iterable[Arguments]:
    for case in code_sequences(capabilities).always:
        spare = spare_bits(case.count, case.nbits)
        yield pack(case.codes, case.nbits) | spare, case.nbits, case.count


def _dashq_reconstruct(capabilities: Capabilities) -> Iterable[Arguments]:
    cases = dashq_weights(capabilities).always
    return ((case.words, case.scale, case.zero, case.module, case.dtype) for case in cases)


def _dashq_linear(capabilities: Capabilities) -> Iterable[Arguments]:
    for case in dashq_layers(biases=("none", "small"))(capabilities).always:
        weight = case.weight
        yield case.x, weight.words, weight.scale, weight.zero, case.bias, weight.module


def _pack_planes(capabilities: Capabilities) -> Iterable[Arguments]:
    return ((case.weight.q4, case.weight.qr) for case in nested_weights(capabilities).always)


def _unpack_planes(capabilities: Capabilities) -> Iterable[Arguments]:
    return ((case.weight.hi, case.weight.lo) for case in nested_weights(capabilities).always)


def _nested_reconstruct(capabilities: Capabilities) -> Iterable[Arguments]:
    for case in nested_weights(capabilities).always:
        weight = case.weight
        lo = weight.lo if case.plane == "target" else None
        yield weight.hi, lo, weight.scale, case.plane, case.dtype


def _quantize_activations(capabilities: Capabilities) -> Iterable[Arguments]:
    return ((case.x, case.width) for case in activations()(capabilities).always)


def _nested_linear(capabilities: Capabilities) -> Iterable[Arguments]:
    cases = nested_layers(biases=("none", "small"))(capabilities).always
    return ((*layer_operands(case), case.dtype) for case in cases)


def _hadamard(capabilities: Capabilities) -> Iterable[Arguments]:
    cases = transforms("ordinary", "integers", largest=1024)(capabilities).always
    return ((case.x, case.had_k, case.dtype) for case in cases)


def _kv_quantize(capabilities: Capabilities) -> Iterable[Arguments]:
    return ((case.x, case.offset) for case in vectors()(capabilities).always)


def _kv_dequantize(capabilities: Capabilities) -> Iterable[Arguments]:
    for place, case in enumerate(planes(capabilities).always):
        draft = place % 2
        yield case.hi, None if draft else case.lo, case.scale, "draft" if draft else "target"


def _kv_attention(capabilities: Capabilities) -> Iterable[Arguments]:
    cases = attentions()(capabilities).always
    return ((*operands(case), case.dtype) for case in cases)


_CALLS: Mapping[str, Callable[[Capabilities], Iterable[Arguments]]] = dict(
    zip(
        OPERATIONS,
        (
            _pack_words,
            _unpack_words,
            _dashq_reconstruct,
            _dashq_linear,
            _pack_planes,
            _unpack_planes,
            _nested_reconstruct,
            _quantize_activations,
            _nested_linear,
            _hadamard,
            _kv_quantize,
            _kv_dequantize,
            _kv_attention,
        ),
        strict=True,
    )
)
