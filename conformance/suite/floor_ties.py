"""Numbers that tell the smallest scale, the float32 number 1e-8, from the float64 number 1e-8."""

import numpy as np
from nibblespec.spec.operations import Float32


def floor_ties(most: int) -> Float32:
    """Return magnitudes up to `most` smallest scales whose code depends on which 1e-8 divides.

    They are a unit or none from a tie. The two scales differ by 6e-9 of their size, less than a
    float32 number shows, so that no other numbers tell them apart.
    """
    smallest = np.float64(np.float32(1e-8))
    ties = ((np.arange(most) + 0.5) * smallest).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(side)) for side in (0, 1)]
    x = np.concatenate((ties, *beside)).astype(np.float64)
    one, other = (np.rint((x / scale).astype(np.float32)) for scale in (smallest, 1e-8))
    found: Float32 = x[(one != other) & (x <= most * smallest)].astype(np.float32)
    return found
