"""The sample of a tensor from which statistics are taken: the same bytes in every run."""

import numpy as np
from nibblespec.conformance.artifacts.reading.blocks import Bytes

STRIDE = 65_536
SAMPLED = 8_192
"""Of every STRIDE bytes of a tensor, from its first byte on, the first SAMPLED are the sample."""

ENOUGH = 1_024
"""Codes that a module needs for statements on its codes (…-STATISTICS-*)."""

LEAST_GROUP = 16
"""Codes that its groups need: in smaller ones, hardly any code is free."""

LEAST_GROUPS = 64
LONGEST_GROUP = 1_024
"""Number and length of groups for which scales that are all equal are no chance."""


def sample(block: Bytes) -> Bytes:
    """Return the part of a block that is in the sample; it begins at a multiple of STRIDE."""
    whole = len(block) // STRIDE * STRIDE
    strides = block[:whole].reshape(-1, STRIDE)[:, :SAMPLED]
    return np.concatenate((strides.reshape(-1), block[whole : whole + SAMPLED]))
