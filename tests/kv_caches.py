"""Nested caches and queries for the tests of attention."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from nibblespec.reference.kv import kv_quantize
from nibblespec.reference.rounding import Array


@dataclass(frozen=True)
class Cache:
    """Queries and the planes of keys and values, as `kv_attention` takes them."""

    q: Array
    keys: tuple[Array, ...]
    values: tuple[Array, ...]

    def call(
        self, offset: Array | None = None, position: int | None = None, plane: str = "target"
    ) -> dict[str, Any]:
        """Return all arguments but dtype; the default position is the last that fits."""
        names = ("k_hi", "k_lo", "k_scale", "v_hi", "v_lo", "v_scale")
        planes = dict(zip(names, self.keys + self.values, strict=True))
        last = self.keys[2].shape[2] - self.q.shape[2]
        return {
            "q": self.q,
            **planes,
            "v_offset": offset,
            "position": last if position is None else position,
            "plane": plane,
            "softmax_scale": self.q.shape[3] ** -0.5,
        }


def cache(
    seed: int,
    length: int,
    head_dim: int = 8,
    queries: int = 1,
    query_heads: int = 1,
    heads: int = 1,
    batch: int = 1,
    spread: float = 1,
) -> Cache:
    """Draw a cache with keys around 0 and values around 3."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(batch, heads, length, head_dim)) * spread
    values = rng.normal(size=keys.shape) + 3
    q = rng.normal(size=(batch, query_heads, queries, head_dim)).astype(np.float32)
    return Cache(
        q,
        kv_quantize(keys.astype(np.float32), None),
        kv_quantize(values.astype(np.float32), None),
    )
