"""The sizes of a packed dashq module, as numbers that an operation can take."""

from typing import NamedTuple

from nibblespec.spec.dashq_packed_linear.v1.manifest import Module


class DashqLayout(NamedTuple):
    """What the words of a module hold: N rows of Kq codes, of which the first K are the weight."""

    nbits: int
    group_size: int
    rows: int
    """N, out_features."""
    columns: int
    """K, in_features."""
    stored_columns: int
    """Kq, quant_in_features: a multiple of group_size, at least K."""


def layout_of(module: Module) -> DashqLayout:
    """Return the layout of a module of the manifest."""
    return DashqLayout(
        module.nbits,
        module.group_size,
        module.out_features,
        module.in_features,
        module.quant_in_features,
    )


def codes_per_word(nbits: int) -> int:
    """Return P = ⌊32/b⌋."""
    return 32 // nbits


def word_count(count: int, nbits: int) -> int:
    """Return ⌈count / P⌉, the words that `count` codes take (DQ1-PACKING-COUNT)."""
    return -(-count // codes_per_word(nbits))


def group_count(layout: DashqLayout) -> int:
    """Return the groups of the whole matrix, num_groups of the manifest."""
    return layout.rows * (layout.stored_columns // layout.group_size)
