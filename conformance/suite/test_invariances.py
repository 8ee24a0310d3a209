"""Numerics, chapter 7: permuted weights, doubled scales, the draft's planes, padding."""

from dataclasses import replace

import numpy as np
from nibblespec.conformance.suite.attention_domains import Attention, attentions, operands
from nibblespec.conformance.suite.compare import expect_same
from nibblespec.conformance.suite.dashq_data import DashqWeight, pack
from nibblespec.conformance.suite.dashq_domains import (
    DashqLayer,
    dashq_layers,
    dashq_weights,
    padded_weights,
)
from nibblespec.conformance.suite.invariance_domains import doubling_weights, spoil_padding
from nibblespec.conformance.suite.kv_data import Planes
from nibblespec.conformance.suite.kv_domains import planes
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_data import make_nested, make_tame_nested
from nibblespec.conformance.suite.nested_domains import (
    NestedCase,
    NestedLayer,
    layer_operands,
    nested_layers,
    nested_weights,
)
from nibblespec.conformance.suite.properties import for_all
from nibblespec.spec.operations import (
    Array,
    DashqLinear,
    DashqReconstruct,
    KvAttention,
    KvDequantize,
    NestedLinear,
    NestedReconstruct,
)

CLEARLY_NORMAL = 2.0**-13
"""Twice the smallest normal number of float16, so that nothing was rounded up to it."""


@requirement("NUM-INVARIANT-PERMUTATION")
@for_all(dashq_weights)
def test_permuted_rows_of_a_packed_weight(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """Rows move with their codes, scales and zero points."""
    rows = case.module.out_features
    order = np.random.default_rng(case.seed).permutation(rows)
    words = pack(case.codes[order].reshape(-1), case.module.nbits)
    scale, zero = (
        np.reshape(part.reshape(rows, -1)[order], (-1, 1)) for part in (case.scale, case.zero)
    )
    plain = dashq_reconstruct(case.words, case.scale, case.zero, case.module, case.dtype)
    found = dashq_reconstruct(words, scale, zero, case.module, case.dtype)
    expect_same("dashq_reconstruct of permuted rows", found, plain[order], "in their own order")


@requirement("NUM-INVARIANT-PERMUTATION")
@for_all(nested_weights)
def test_permuted_rows_of_a_nested_weight(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """Rows move with their planes and scales."""
    weight = case.weight
    order = np.random.default_rng(weight.seed).permutation(weight.rows)
    lo = weight.lo if case.plane == "target" else None
    plain = nested_reconstruct(weight.hi, lo, weight.scale, case.plane, case.dtype)
    moved = None if lo is None else lo[order]
    found = nested_reconstruct(weight.hi[order], moved, weight.scale[order], case.plane, case.dtype)
    expect_same("nested_reconstruct of permuted rows", found, plain[order], "in their own order")


@requirement("NUM-INVARIANT-SCALE")
@for_all(doubling_weights)
def test_doubling_a_scale_doubles_its_group_of_a_packed_weight(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """Exactly, and no other group changes."""
    module = case.module
    group = case.seed % module.num_groups
    scale = case.scale.copy()
    scale[group] *= 2
    plain = dashq_reconstruct(case.words, case.scale, case.zero, module, case.dtype)
    found = dashq_reconstruct(case.words, scale, case.zero, module, case.dtype)
    expected = plain.copy().reshape(module.num_groups, -1)
    expected[group] *= 2
    expect_same("dashq_reconstruct", found, expected.reshape(plain.shape), "by doubling")


@requirement("NUM-INVARIANT-SCALE")
@for_all(nested_weights)
def test_doubling_a_scale_doubles_its_group_of_a_nested_weight(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """Exactly, and no other group changes."""
    shape = case.weight
    weight = make_tame_nested(shape.rows, shape.scale.shape[1], shape.group, shape.seed)
    lo = weight.lo if case.plane == "target" else None
    row, group = shape.seed % weight.rows, shape.seed % weight.scale.shape[1]
    scale = weight.scale.copy()
    scale[row, group] *= 2
    plain = nested_reconstruct(weight.hi, lo, weight.scale, case.plane, case.dtype)
    found = nested_reconstruct(weight.hi, lo, scale, case.plane, case.dtype)
    expected = plain.copy()
    expected[row, group * weight.group : (group + 1) * weight.group] *= 2
    expect_same("nested_reconstruct", found, expected, "by doubling")


@requirement("NUM-INVARIANT-SCALE-LINEAR")
@for_all(dashq_layers())
def test_doubling_the_scales_of_a_row_doubles_a_column_of_dashq_linear(
    case: DashqLayer, dashq_linear: DashqLinear
) -> None:
    """Exactly, and no other column changes."""
    weight = case.weight
    row = weight.seed % weight.module.out_features
    scale = weight.scale.copy()
    scale.reshape(weight.module.out_features, -1)[row] *= 2
    plain = dashq_linear(case.x, weight.words, weight.scale, weight.zero, None, weight.module)
    found = dashq_linear(case.x, weight.words, scale, weight.zero, None, weight.module)
    expect_doubled("dashq_linear", found, plain, row)


@requirement("NUM-INVARIANT-SCALE-LINEAR")
@for_all(nested_layers(kinds=("random", "extreme")))
def test_doubling_the_scales_of_a_row_doubles_a_column_of_nested_linear(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """Exactly, and no other column changes."""
    weight = case.weight
    row = weight.seed % weight.rows
    scale = weight.scale.copy()
    scale[row] *= 2
    doubled = replace(case, weight=replace(weight, scale=scale))
    plain = nested_linear(*layer_operands(case), case.dtype)
    found = nested_linear(*layer_operands(doubled), case.dtype)
    expect_doubled("nested_linear", found, plain, row)


@requirement("NUM-INVARIANT-DRAFT")
@for_all(nested_weights)
def test_the_draft_of_nested_reconstruct_ignores_lo(
    case: NestedCase, nested_reconstruct: NestedReconstruct
) -> None:
    """None and any residuals give the same draft weight."""
    weight = case.weight
    other = make_nested(weight.rows, weight.scale.shape[1], weight.group, weight.seed + 1)
    lo = with_allowed_pairs(weight.hi, other.lo)
    plain = nested_reconstruct(weight.hi, None, weight.scale, "draft", case.dtype)
    found = nested_reconstruct(weight.hi, lo, weight.scale, "draft", case.dtype)
    expect_same("nested_reconstruct, draft, with a low plane", found, plain, "without one")


@requirement("NUM-INVARIANT-DRAFT")
@for_all(nested_layers(kinds=("random",), biases=("none", "small")))
def test_the_draft_of_nested_linear_ignores_lo(
    case: NestedLayer, nested_linear: NestedLinear
) -> None:
    """None and the weight's residuals give the same draft result."""
    weight = case.weight
    xq, sx, bias, dtype = case.xq, case.sx, case.bias, case.dtype
    plain = nested_linear(xq, sx, weight.hi, None, weight.scale, bias, "draft", dtype)
    found = nested_linear(xq, sx, weight.hi, weight.lo, weight.scale, bias, "draft", dtype)
    expect_same("nested_linear, draft, with a low plane", found, plain, "without one")


@requirement("NUM-INVARIANT-DRAFT")
@for_all(planes)
def test_the_draft_of_kv_dequantize_ignores_lo(case: Planes, kv_dequantize: KvDequantize) -> None:
    """None and the cache's residuals give the same draft."""
    plain = kv_dequantize(case.hi, None, case.scale, "draft")
    found = kv_dequantize(case.hi, case.lo, case.scale, "draft")
    expect_same("kv_dequantize, draft, with a low plane", found, plain, "without one")


@requirement("NUM-INVARIANT-DRAFT")
@for_all(attentions("ordinary"))
def test_the_draft_of_kv_attention_ignores_lo(case: Attention, kv_attention: KvAttention) -> None:
    """None and the cache's residuals give the same draft."""
    plain = kv_attention(*operands(replace(case, plane="draft")), case.dtype)
    found = kv_attention(
        case.q,
        case.keys.hi,
        case.keys.lo,
        case.keys.scale,
        case.values.hi,
        case.values.lo,
        case.values.scale,
        case.offset,
        case.position,
        "draft",
        case.softmax_scale,
        case.dtype,
    )
    expect_same("kv_attention, draft, with low planes", found, plain, "without them")


@requirement("NUM-INVARIANT-PADDING")
@for_all(padded_weights)
def test_padding_does_not_matter_to_the_weight(
    case: DashqWeight, dashq_reconstruct: DashqReconstruct
) -> None:
    """Other codes, parameters and unused bits in the padding change no bit."""
    spoilt = spoil_padding(case)
    plain = dashq_reconstruct(case.words, case.scale, case.zero, case.module, case.dtype)
    found = dashq_reconstruct(spoilt.words, spoilt.scale, spoilt.zero, case.module, case.dtype)
    expect_same("dashq_reconstruct", found, plain, "with other padding")


@requirement("NUM-INVARIANT-PADDING")
@for_all(dashq_layers(kinds=("ordinary",), padded=True))
def test_padding_does_not_matter_to_the_layer(case: DashqLayer, dashq_linear: DashqLinear) -> None:
    """Other codes, parameters and unused bits in the padding change no bit."""
    weight, spoilt = case.weight, spoil_padding(case.weight)
    module = weight.module
    plain = dashq_linear(case.x, weight.words, weight.scale, weight.zero, case.bias, module)
    found = dashq_linear(case.x, spoilt.words, spoilt.scale, spoilt.zero, case.bias, module)
    expect_same("dashq_linear", found, plain, "with other padding")


def expect_doubled(what: str, found: Array, plain: Array, column: int) -> None:
    """Compare with a result one column of which is doubled, where nothing is subnormal."""
    expected = plain.copy()
    with np.errstate(over="ignore"):  # and then there is nothing to compare
        expected[:, column] *= 2
    exact = (np.abs(plain) >= CLEARLY_NORMAL) & np.isfinite(expected)
    nothing = np.zeros_like(plain)
    expect_same(
        what, np.where(exact, found, nothing), np.where(exact, expected, nothing), "by doubling"
    )


def with_allowed_pairs(hi: Array, lo: Array) -> Array:
    """Make residuals non-negative where the code beside them is -8 (nibble 0)."""
    low = np.where(hi & 15 == 0, lo & 15 | 8, lo & 15)
    high = np.where(hi >> 4 == 0, lo >> 4 | 8, lo >> 4)
    allowed: Array = (low | high << 4).astype(np.uint8)
    return allowed
