"""Launch configurations: a committed table by device and number of tokens, with a default.

Nothing is tuned when a kernel is called or imported, so that runs do not differ. An entry changes
how fast a layer is and no bit of its result: what the order of a sum follows from, the steps along
K and the parts of K, is not in here.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from nibblespec.optimized.kernels import INTERPRETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The block of a program of a linear layer: n rows of the weight by m tokens."""

    n: int
    m: int
    num_warps: int
    num_stages: int


Table = Mapping[str, tuple[tuple[float, Tiles], ...]]
"""Device → (most tokens, tiles), ascending, the last for any number. Devices are named by their
compute capability, `sm_90`; `default` stands for all that have no entry."""

ANY = float("inf")

_INTERPRETED = (
    (16, Tiles(n=128, m=16, num_warps=4, num_stages=1)),
    (64, Tiles(n=128, m=64, num_warps=4, num_stages=1)),
    (ANY, Tiles(n=128, m=128, num_warps=4, num_stages=1)),
)

DASHQ_LINEAR: Table = {
    "default": (
        (16, Tiles(n=64, m=16, num_warps=4, num_stages=3)),
        (64, Tiles(n=64, m=64, num_warps=4, num_stages=3)),
        (ANY, Tiles(n=64, m=128, num_warps=8, num_stages=3)),
    ),
    # Its accumulators are in tensor memory, which leaves warps few registers: what spills with
    # four warps does not with eight, and the other way round.
    "sm_100": (
        (16, Tiles(n=64, m=16, num_warps=4, num_stages=2)),
        (64, Tiles(n=64, m=64, num_warps=8, num_stages=3)),
        (ANY, Tiles(n=64, m=128, num_warps=4, num_stages=3)),
    ),
    "interpreter": _INTERPRETED,
}
"""`dashq_linear` with whole words, whole groups and factors of 16 bits."""

DASHQ_LINEAR_GENERAL: Table = {
    "default": (
        (16, Tiles(n=64, m=16, num_warps=8, num_stages=1)),
        (ANY, Tiles(n=64, m=64, num_warps=8, num_stages=1)),
    ),
    "interpreter": _INTERPRETED,
}
"""`dashq_linear` of all other layers."""

NESTED_LINEAR: Table = {
    "default": (
        (16, Tiles(n=64, m=16, num_warps=4, num_stages=4)),
        (64, Tiles(n=64, m=64, num_warps=4, num_stages=3)),
        (ANY, Tiles(n=64, m=128, num_warps=8, num_stages=3)),
    ),
    # Without instructions that multiply from shared memory, 128 tokens would spill.
    "sm_80": (
        (16, Tiles(n=64, m=16, num_warps=4, num_stages=4)),
        (64, Tiles(n=64, m=64, num_warps=4, num_stages=3)),
        (ANY, Tiles(n=64, m=64, num_warps=8, num_stages=2)),
    ),
    "interpreter": _INTERPRETED,
}
"""`nested_linear`."""


def configuration(table: Table, device: torch.device, tokens: int) -> Tiles:
    """Return the tiles for so many tokens on a device."""
    rows = table.get(device_name(device), table["default"])
    return next(tiles for most, tiles in rows if tokens <= most)


def device_name(device: torch.device) -> str:
    """Return the name of a device in tables."""
    return "interpreter" if INTERPRETED else _capability(device)


@functools.cache
def _capability(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"
