"""Sizes of blocks that depend on nothing but the amount of work."""

import triton
from nibblespec.optimized.kernels import INTERPRETED

FLAT_BLOCK = 65536 if INTERPRETED else 8192
"""Elements per program of a kernel that goes through memory once: 64 per thread of four warps.

The interpreter pays by the program, not by the element.
"""


def flat_block(count: int, largest: int = FLAT_BLOCK, smallest: int = 128) -> int:
    """Return the elements of a block, a power of two, for `count` elements in a row."""
    return max(smallest, min(largest, int(triton.next_power_of_2(count))))
