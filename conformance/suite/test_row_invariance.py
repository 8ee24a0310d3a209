"""Numerics, chapter 7: a row of the result depends on that row of the input alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from nibblespec.conformance.suite.a8_data import Activations
from nibblespec.conformance.suite.attention_domains import Attention, operands
from nibblespec.conformance.suite.compare import expect_same
from nibblespec.conformance.suite.dashq_domains import DashqLayer
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.hadamard_domains import Transform
from nibblespec.conformance.suite.invariance_domains import (
    Rows,
    many_activations,
    many_queries,
    many_tokens,
    many_vectors,
    mirrored_dashq,
    mirrored_nested,
    taken_apart,
    wide_transforms,
)
from nibblespec.conformance.suite.kv_data import Planes, Vectors
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.nested_domains import NestedLayer, layer_operands
from nibblespec.conformance.suite.properties import for_all
from nibblespec.spec.operations import (
    Array,
    Capabilities,
    DashqLinear,
    Hadamard,
    KvAttention,
    KvDequantize,
    KvQuantize,
    NestedLinear,
    QuantizeActivations,
)


@requirement("NUM-INVARIANT-ROWS", "NUM-INVARIANT-PERMUTATION")
@for_all(many_activations)
def test_rows_of_quantize_activations(
    case: Activations, quantize_activations: QuantizeActivations
) -> None:
    """Codes and scales of a token, alone and among others."""
    expect_rows_alone(
        "quantize_activations",
        case.rows,
        lambda rows: quantize_activations(case.x[rows], case.width),
    )


@requirement("NUM-INVARIANT-ROWS", "NUM-INVARIANT-PERMUTATION")
@for_all(mirrored_nested)
def test_rows_of_nested_linear(
    case: NestedLayer, capabilities: Capabilities, nested_linear: NestedLinear
) -> None:
    """A token of one row, of a verification and of a block: the same order of summation."""
    first = capabilities.prefill_f16_from
    # Within one mode: where many rows are a prefill, the compared calls have to be one too.
    least = first if first is not None and case.rows >= first else 1
    expect_rows_alone(
        "nested_linear",
        case.rows,
        lambda rows: (
            nested_linear(
                *layer_operands(replace(case, xq=case.xq[rows], sx=case.sx[rows])), case.dtype
            ),
        ),
        least=least,
    )


@requirement("NUM-INVARIANT-ROWS", "NUM-INVARIANT-PERMUTATION")
@for_all(wide_transforms)
def test_rows_of_hadamard(case: Transform, hadamard: Hadamard) -> None:
    """Sums that cancel, so that another order of butterflies shows."""
    x = case.x.reshape(-1, case.x.shape[-1])
    expect_rows_alone("hadamard", len(x), lambda rows: (hadamard(x[rows], case.had_k, case.dtype),))


@requirement("NUM-INVARIANT-ROWS", "NUM-INVARIANT-PERMUTATION")
@for_all(many_vectors)
def test_tokens_of_kv_quantize(case: Vectors, kv_quantize: KvQuantize) -> None:
    """Planes and scale of a token, alone and among others."""

    def call(rows: Array) -> tuple[Array, ...]:
        hi, lo, scale = kv_quantize(case.x[..., rows, :], case.offset)
        return np.moveaxis(hi, -2, 0), np.moveaxis(lo, -2, 0), np.moveaxis(scale, -1, 0)

    expect_rows_alone("kv_quantize", case.shape[-2], call)


@requirement("NUM-INVARIANT-ROWS", "NUM-INVARIANT-PERMUTATION")
@for_all(many_tokens)
def test_tokens_of_kv_dequantize(case: Planes, kv_dequantize: KvDequantize) -> None:
    """What a reader sees of a token, alone and among others."""

    def call(rows: Array) -> tuple[Array, ...]:
        hi, lo, scale = case.hi[..., rows, :], case.lo[..., rows, :], case.scale[..., rows]
        draft = kv_dequantize(hi, None, scale, "draft")
        target = kv_dequantize(hi, lo, scale, "target")
        return np.moveaxis(draft, -2, 0), np.moveaxis(target, -2, 0)

    expect_rows_alone("kv_dequantize", case.shape[-2], call)


@requirement("NUM-INVARIANT-ROWS")
@for_all(many_queries)
def test_queries_of_kv_attention(case: Attention, kv_attention: KvAttention) -> None:
    """Query m at position p is the only query of a call at position p + m."""

    def call(rows: Array) -> tuple[Array, ...]:
        part = replace(case, q=case.q[:, :, rows], position=case.position + int(rows[0]))
        return (np.moveaxis(kv_attention(*operands(part), case.dtype), 2, 0),)

    expect_rows_alone("kv_attention", case.queries, call, permute=False)


@requirement("NUM-INVARIANT-ROWS")
@for_all(many_queries)
def test_kv_attention_over_caches_of_another_length(
    case: Attention, kv_attention: KvAttention
) -> None:
    """What a query sees, in a cache that ends with the last query and in a much longer one."""
    seen = case.position + case.queries
    plain = kv_attention(*operands(case), case.dtype)
    for length in (seen, seen + 300):
        places = np.minimum(np.arange(length), seen - 1)
        other = with_cache(case, partial(np.take, indices=places, axis=2))
        found = kv_attention(*operands(other), case.dtype)
        expect_same(f"kv_attention over {length} positions", found, plain, "over as many as drawn")


@requirement("NUM-INVARIANT-ROWS")
@for_all(many_queries)
def test_kv_attention_beside_another_sequence(case: Attention, kv_attention: KvAttention) -> None:
    """A sequence alone, and as the second one of a batch."""
    both = with_cache(case, lambda part: np.concatenate([np.roll(part, 1, axis=2), part]))
    both = replace(both, q=np.concatenate([-case.q, case.q]))
    alone = kv_attention(*operands(case), case.dtype)
    found = kv_attention(*operands(both), case.dtype)
    expect_same("kv_attention, second sequence", found[1:], alone, "of the sequence alone")


@requirement("NUM-INVARIANT-ROWS-DASHQ")
@for_all(mirrored_dashq)
def test_rows_of_dashq_linear(
    case: DashqLayer, capabilities: Capabilities, dashq_linear: DashqLinear
) -> None:
    """Where that is declared: a matrix library's blocks depend on the number of rows."""
    require(capabilities.row_invariant_dashq_linear, "row_invariant_dashq_linear")
    weight = case.weight
    rest = weight.words, weight.scale, weight.zero, case.bias, weight.module
    expect_rows_alone("dashq_linear", case.rows, lambda rows: (dashq_linear(case.x[rows], *rest),))


def with_cache(case: Attention, change: Callable[[Array], Array]) -> Attention:
    """Change planes [B, Hkv, L, D/2] and scales [B, Hkv, L] of keys and values."""
    keys, values = (
        replace(planes, hi=change(planes.hi), lo=change(planes.lo), scale=change(planes.scale))
        for planes in (case.keys, case.values)
    )
    return replace(case, keys=keys, values=values)


def expect_rows_alone(
    what: str, count: int, call: Rows, *, least: int = 1, permute: bool = True
) -> None:
    """Compare one call of `count` rows with calls of some of them, and of all in another order.

    `call` takes indices of rows and returns results whose first axis is rows.
    """
    together = call(np.arange(count))
    for start, stop in taken_apart(count, least=least):
        how = f"in a call of {count} rows"
        for part, whole in zip(call(np.arange(start, stop)), together, strict=True):
            expect_same(f"{what}, rows {start} … {stop - 1} alone", part, whole[start:stop], how)
    if permute:
        order = np.random.default_rng(count).permutation(count)
        for permuted, whole in zip(call(order), together, strict=True):
            expect_same(f"{what} of permuted rows", permuted, whole[order], "in their own order")
