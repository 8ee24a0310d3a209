"""Sizes beyond one block, one grid and 16 bits of an index, for every operation."""

from nibblespec.conformance.suite.a8_data import Activations
from nibblespec.conformance.suite.attention_domains import Attention, operands
from nibblespec.conformance.suite.compare import expect_equal, expect_within
from nibblespec.conformance.suite.dashq_data import DashqWeight, pack
from nibblespec.conformance.suite.dashq_domains import DashqLayer
from nibblespec.conformance.suite.hadamard_domains import Transform
from nibblespec.conformance.suite.kv_data import Planes, Vectors
from nibblespec.conformance.suite.large_domains import (
    large_activations,
    large_nested_layers,
    large_nested_weights,
    large_packed_layers,
    large_packed_weights,
    large_transforms,
    long_attentions,
    long_sequences,
    many_vectors_to_read,
    many_vectors_to_write,
)
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_domains import NestedCase, NestedLayer, layer_operands
from nibblespec.conformance.suite.packing_domains import CodeSequence
from nibblespec.conformance.suite.properties import for_all
from nibblespec.reference import activations, dashq, kv, nested
from nibblespec.reference.bounds_attention import kv_attention_bounded
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.reference.bounds_nested import nested_linear_bounded
from nibblespec.spec.operations import (
    Capabilities,
    DashqLinear,
    DashqReconstruct,
    Hadamard,
    KvAttention,
    KvDequantize,
    KvQuantize,
    NestedLinear,
    NestedReconstruct,
    PackPlanes,
    PackWords,
    QuantizeActivations,
    UnpackPlanes,
    UnpackWords,
)


@requirement("DQ1-PACKING-ORDER")
@for_all(long_sequences)
def test_long_sequences_are_packed(case: CodeSequence, pack_words: PackWords) -> None:
    """More codes than 16 bits count."""
    expect_equal("pack_words", pack_words(case.codes, case.nbits), pack(case.codes, case.nbits))


@requirement("DQ1-PACKING-ORDER")
@for_all(long_sequences)
def test_long_sequences_are_unpacked(case: CodeSequence, unpack_words: UnpackWords) -> None:
    """More codes than 16 bits count."""
    found = unpack_words(pack(case.codes, case.nbits), case.nbits, case.count)
    expect_equal("unpack_words", found, case.codes)


@requirement("DQ1-PACKING-ROWS", "DQ1-RECONSTRUCT-GROUPS")
@for_all(large_packed_weights)
def test_large_packed_weights(
    case: DashqWeight, capabilities: Capabilities, dashq_reconstruct: DashqReconstruct
) -> None:
    """More weights than 16 bits count, and more groups."""
    arguments = case.words, case.scale, case.zero, case.module, case.dtype
    expected = dashq.dashq_reconstruct(*arguments, capabilities.dashq_rounding)
    expect_equal("dashq_reconstruct", dashq_reconstruct(*arguments), expected)


@requirement("DQ1-LINEAR-FORMULA")
@for_all(large_packed_layers)
def test_large_packed_layers(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Many rows, many outputs, many columns."""
    weight = case.weight
    arguments = case.x, weight.words, weight.scale, weight.zero, case.bias, weight.module
    bounded = dashq_linear_bounded(
        *arguments, capabilities.dashq_rounding, capabilities.linear_weight_rounding
    )
    expect_within("dashq_linear", dashq_linear(*arguments), bounded)


@requirement("BN1-PLANES-ORDER")
@for_all(large_nested_weights)
def test_large_planes_are_packed(case: NestedCase, pack_planes: PackPlanes) -> None:
    """More bytes than 16 bits count."""
    weight = case.weight
    hi, lo = pack_planes(weight.q4, weight.qr)
    expect_equal("pack_planes, hi", hi, weight.hi)
    expect_equal("pack_planes, lo", lo, weight.lo)


@requirement("BN1-PLANES-ORDER")
@for_all(large_nested_weights)
def test_large_planes_are_unpacked(case: NestedCase, unpack_planes: UnpackPlanes) -> None:
    """More bytes than 16 bits count."""
    weight = case.weight
    q4, qr = unpack_planes(weight.hi, weight.lo)
    expect_equal("unpack_planes, q4", q4, weight.q4)
    expect_equal("unpack_planes, qr", qr, weight.qr)


@requirement("BN1-WEIGHT-GROUPS")
@for_all(large_nested_weights)
def test_large_nested_weights(case: NestedCase, nested_reconstruct: NestedReconstruct) -> None:
    """More weights than 16 bits count."""
    weight = case.weight
    arguments = weight.hi, weight.lo, weight.scale, case.plane, case.dtype
    expected = nested.nested_reconstruct(*arguments)
    expect_equal("nested_reconstruct", nested_reconstruct(*arguments), expected)


@requirement("BN1-ACT-CODES", "BN1-ACT-SCALE")
@for_all(large_activations)
def test_large_activations(case: Activations, quantize_activations: QuantizeActivations) -> None:
    """Many tokens, and long ones whose largest element is the last."""
    codes, scale = quantize_activations(case.x, case.width)
    expected_codes, expected_scale = activations.quantize_activations(case.x, case.width)
    expect_equal("quantize_activations, scale", scale, expected_scale)
    expect_equal("quantize_activations, codes", codes, expected_codes)


@requirement("NUM-LINEAR-NESTED")
@for_all(large_nested_layers)
def test_large_nested_layers(case: NestedLayer, nested_linear: NestedLinear) -> None:
    """Many rows, many outputs, many columns."""
    arguments = layer_operands(case)
    found = nested_linear(*arguments, case.dtype)
    expect_within("nested_linear", found, nested_linear_bounded(*arguments))


@requirement("NUM-HADAMARD-BOUND")
@for_all(large_transforms)
def test_transforms_of_many_rows(case: Transform, hadamard: Hadamard) -> None:
    """More rows than a block has."""
    bounded = hadamard_bounded(case.x, case.had_k)
    expect_within("hadamard", hadamard(case.x, case.had_k, case.dtype), bounded)


@requirement("BN1-KV-CODES", "BN1-KV-RESIDUAL", "BN1-KV-SCALE")
@for_all(many_vectors_to_write)
def test_prompts_are_written(case: Vectors, kv_quantize: KvQuantize) -> None:
    """As many tokens at once as a prompt has."""
    hi, lo, scale = kv_quantize(case.x, case.offset)
    expected_hi, expected_lo, expected_scale = kv.kv_quantize(case.x, case.offset)
    expect_equal("kv_quantize, hi", hi, expected_hi)
    expect_equal("kv_quantize, lo", lo, expected_lo)
    expect_equal("kv_quantize, scale", scale, expected_scale)


@requirement("BN1-KV-TARGET")
@for_all(many_vectors_to_read)
def test_prompts_are_read(case: Planes, kv_dequantize: KvDequantize) -> None:
    """As many tokens at once as a prompt has."""
    arguments = case.hi, case.lo, case.scale
    expected = kv.kv_dequantize(*arguments, "target")
    expect_equal("kv_dequantize, target", kv_dequantize(*arguments, "target"), expected)


@requirement("NUM-ATTENTION-BOUND")
@for_all(long_attentions)
def test_long_caches_and_many_heads(case: Attention, kv_attention: KvAttention) -> None:
    """More keys than one split holds; more heads than fit a warp."""
    found = kv_attention(*operands(case), case.dtype)
    expect_within("kv_attention", found, kv_attention_bounded(*operands(case)))
