"""Domains of sizes beyond one block, one grid and 16 bits of an index, as real layers have them.

A few cases for each operation: a kernel that treats the first 4096 columns only, or counts codes in
16 bits, agrees with the specification on everything smaller.
"""

from nibblespec.conformance.suite.a8_data import Activations, make_a8
from nibblespec.conformance.suite.attention_domains import Attention, make_attention
from nibblespec.conformance.suite.dashq_data import DashqWeight, make_module, make_tame_weight
from nibblespec.conformance.suite.dashq_domains import DashqLayer, make_layer
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.hadamard_domains import Transform, make_transform
from nibblespec.conformance.suite.kv_data import Planes, Vectors, make_planes, make_vectors
from nibblespec.conformance.suite.nested_data import make_nested, make_tame_nested
from nibblespec.conformance.suite.nested_domains import (
    NestedCase,
    NestedLayer,
    even,
    make_nested_layer,
)
from nibblespec.conformance.suite.packing_domains import CodeSequence, make_codes
from nibblespec.conformance.suite.properties import Domain
from nibblespec.conformance.suite.strategies import (
    bit_widths,
    float_dtypes,
    group_sizes,
    head_dims,
    only,
    scale_zero_dtypes,
)
from nibblespec.spec.operations import Capabilities

ROWS, OUTPUTS, COLUMNS = 1030, 4100, 18944
"""18944 is the widest input of a published package."""

CODES = 70_001
WEIGHTS = 2**18 + 1


def long_sequences(capabilities: Capabilities) -> Domain[CodeSequence]:
    """More codes than 16 bits count, of the narrowest and of the widest claimed width."""
    widths = bit_widths(capabilities)
    return only(*(make_codes(nbits, CODES, "random", 0) for nbits in {widths[0], widths[-1]}))


def large_packed_weights(capabilities: Capabilities) -> Domain[DashqWeight]:
    """More weights than 16 bits count and, where groups are small, more groups than that."""
    size = min(group_sizes(capabilities))
    rows = 257
    groups = -(-WEIGHTS // (rows * size))
    module = make_module(
        bit_widths(capabilities)[-1],
        rows,
        groups,
        size,
        0,
        scale_zero_dtypes(capabilities)[0],
        float_dtypes(capabilities)[0],
    )
    return only(make_tame_weight(module, float_dtypes(capabilities)[-1], 0))


def large_packed_layers(capabilities: Capabilities) -> Domain[DashqLayer]:
    """Many rows, many outputs, many columns."""
    size, dtypes = max(group_sizes(capabilities)), float_dtypes(capabilities)

    def case(rows: int, outputs: int, columns: int) -> DashqLayer:
        module = make_module(
            bit_widths(capabilities)[-1],
            outputs,
            max(1, columns // size),
            size,
            0,
            scale_zero_dtypes(capabilities)[0],
            dtypes[rows % len(dtypes)],
        )
        weight = make_tame_weight(module, dtypes[0], rows)
        return make_layer(weight, rows, "ordinary", "none", rows)

    return only(case(ROWS, 3, 1), case(1, OUTPUTS, 1), case(2, 3, COLUMNS))


def large_nested_weights(capabilities: Capabilities) -> Domain[NestedCase]:
    """More bytes of a plane than 16 bits count."""
    size = group_sizes(capabilities)[0]
    groups = even(16, size)
    weight = make_nested(-(-2 * WEIGHTS // (groups * size)), groups, size, 0)
    dtype = float_dtypes(capabilities)[-1]
    return only(NestedCase(weight=weight, plane="target", dtype=dtype))


def large_nested_layers(capabilities: Capabilities) -> Domain[NestedLayer]:
    """Many rows, many outputs, many columns."""
    size, dtypes = group_sizes(capabilities)[0], float_dtypes(capabilities)
    first = capabilities.prefill_f16_from
    require(first is None or first > 1, "the mode of integer sums")

    def case(rows: int, outputs: int, columns: int) -> NestedLayer:
        rows = rows if first is None else min(rows, first - 1)
        weight = make_tame_nested(outputs, even(max(1, columns // size), size), size, rows)
        dtype = dtypes[rows % len(dtypes)]
        return make_nested_layer(
            weight, rows, weight.columns, "random", "none", "target", dtype, rows
        )

    return only(case(ROWS, 3, 1), case(1, OUTPUTS, 1), case(2, 3, COLUMNS))


def large_activations(capabilities: Capabilities) -> Domain[Activations]:
    """Many tokens, and long ones whose largest element is the last."""
    size, dtypes = group_sizes(capabilities)[0], float_dtypes(capabilities)
    long = make_a8("ties", 3, COLUMNS // size, size, dtypes[0], 0, per_token=True)
    many = make_a8("magnitudes", ROWS, 2, size, dtypes[-1], 0, per_token=False)
    return only(long, many)


def large_transforms(capabilities: Capabilities) -> Domain[Transform]:
    """Many rows; long ones are ordinary (published widths)."""
    dtype = float_dtypes(capabilities)[-1]
    return only(make_transform(1, 16, (ROWS,), "integers", "signs", (dtype, dtype), 0))


def many_vectors_to_write(capabilities: Capabilities) -> Domain[Vectors]:
    """As many tokens as a prompt has."""
    dtype = float_dtypes(capabilities)[0]
    shape = (2, ROWS, min(head_dims(capabilities)))
    return only(make_vectors("ordinary", shape, dtype, None, 0))


def many_vectors_to_read(capabilities: Capabilities) -> Domain[Planes]:
    """As many tokens as a prompt has."""
    return only(make_planes((2, ROWS, min(head_dims(capabilities))), 0))


def long_attentions(capabilities: Capabilities) -> Domain[Attention]:
    """Attention over a long cache, and over one of many heads."""
    dtype, dim = float_dtypes(capabilities)[-1], min(head_dims(capabilities))
    return only(
        make_attention(
            "ordinary", (1, 1, 2, 2, OUTPUTS, 1), dim, "target", (dtype, dtype), None, 0
        ),
        make_attention("ordinary", (3, 9, 4, 1, 3, 0), dim, "target", (dtype, dtype), dtype, 0),
    )
