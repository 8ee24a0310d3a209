"""Domains of sizes: rows, outputs, groups and queries on both sides of where blocks end.

Kernels are tuned for ranges of sizes, and a range may be as narrow as 3 … 4. In each case one
size runs over all of them and the others are small.
"""

from nibblespec.conformance.suite.attention_domains import Attention, make_attention
from nibblespec.conformance.suite.dashq_data import make_module, make_tame_weight
from nibblespec.conformance.suite.dashq_domains import DashqLayer, make_layer
from nibblespec.conformance.suite.gate import require
from nibblespec.conformance.suite.nested_data import make_tame_nested
from nibblespec.conformance.suite.nested_domains import (
    PLANES,
    NestedLayer,
    even,
    make_nested_layer,
)
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

BORDERS = (*range(1, 18), 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)

SHAPES = (
    *((rows, 3, 3) for rows in BORDERS),
    *((3, outputs, 3) for outputs in BORDERS),
    *((3, 3, groups) for groups in BORDERS if groups <= 33),
)
"""Rows, outputs and groups of a row."""


def dashq_blocks(capabilities: Capabilities) -> Domain[DashqLayer]:
    """Packed layers of every size."""
    widths, dtypes = bit_widths(capabilities), float_dtypes(capabilities)
    scale_dtypes = scale_zero_dtypes(capabilities)
    small = sorted(group_sizes(capabilities))[:3]

    def case(place: int, rows: int, outputs: int, groups: int) -> DashqLayer:
        module = make_module(
            widths[place % len(widths)],
            outputs,
            groups,
            small[place % len(small)],
            0,
            scale_dtypes[place // 3 % len(scale_dtypes)],
            dtypes[place % len(dtypes)],
        )
        weight = make_tame_weight(module, dtypes[0], place)
        return make_layer(weight, rows, "ordinary", "none", place)

    return only(*(case(place, *shape) for place, shape in enumerate(SHAPES)))


def nested_blocks(capabilities: Capabilities) -> Domain[NestedLayer]:
    """Nested layers of every size, in the mode of integer sums."""
    dtypes = float_dtypes(capabilities)
    small = sorted(group_sizes(capabilities))[:3]
    first = capabilities.prefill_f16_from

    def case(place: int, rows: int, outputs: int, groups: int) -> NestedLayer:
        size = small[place % len(small)]
        weight = make_tame_nested(outputs, even(groups, size), size, place)
        plane, dtype = PLANES[place % len(PLANES)], dtypes[place % len(dtypes)]
        return make_nested_layer(
            weight, rows, weight.columns, "random", "none", plane, dtype, place
        )

    require(first is None or first > 1, "the mode of integer sums")
    most = BORDERS[-1] if first is None else first - 1
    return only(
        *(
            case(place, min(rows, most), outputs, groups)
            for place, (rows, outputs, groups) in enumerate(SHAPES)
        )
    )


def attention_blocks(capabilities: Capabilities) -> Domain[Attention]:
    """Attention calls of every number of queries, keys, sequences and heads."""
    dtypes = float_dtypes(capabilities)
    dims = head_dims(capabilities)
    counts = [
        *((1, 1, 1, queries, 0, 1) for queries in BORDERS if queries <= 33),
        *((1, 1, 2, 1, keys - 1, 0) for keys in BORDERS),
        *((batch, 1, 1, 1, 2, 0) for batch in (1, 2, 3, 4, 5, 8, 9)),
        *((1, heads, 1, 1, 2, 0) for heads in (4, 5, 8, 9, 16, 17)),
        *((1, 1, ratio, 1, 2, 0) for ratio in (4, 5, 7, 8, 9, 16, 17)),
    ]
    return only(
        *(
            make_attention(
                ("ordinary", "flat")[place % 2],
                count,
                dims[place % len(dims)],
                PLANES[place % len(PLANES)],
                (dtypes[place % len(dtypes)], dtypes[place // 2 % len(dtypes)]),
                None,
                place,
            )
            for place, count in enumerate(counts)
        )
    )
