"""Keys and values to quantize, at the edges of the nested cache, and caches to read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from nibblespec.conformance.suite.floor_ties import floor_ties
from nibblespec.conformance.suite.nested_data import allowed_residual, edge_nibbles, to_plane
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.spec.operations import Array, Bytes, Float32, FloatDtype

Generator = np.random.Generator
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """Arguments of kv_quantize: x [..., H, L, D], and the offset of each head."""

    kind: str
    shape: Shape
    dtype: FloatDtype
    seed: int
    x: Array = field(repr=False)
    offset: Array | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """A nested cache, or a part of it: uint8 [..., D/2] twice and float32 [...]."""

    shape: Shape
    seed: int
    hi: Bytes = field(repr=False)
    lo: Bytes = field(repr=False)
    scale: Float32 = field(repr=False)


def make_vectors(
    kind: str, shape: Shape, dtype: FloatDtype, offset_dtype: FloatDtype | None, seed: int
) -> Vectors:
    """Make vectors of one kind (of KINDS) with an offset in `offset_dtype`, or None.

    The offset is added before x is rounded to its dtype, so that the difference is of that kind,
    nearly, and has more digits than either.
    """
    generator = np.random.default_rng(seed)
    x = KINDS[kind](generator, shape, dtype).astype(np.float64)
    offset = None
    if offset_dtype is not None:
        size = generator.choice([0.1, 3.0, 40.0], (shape[-3], shape[-1]))
        wide = size * generator.uniform(-1, 1, (shape[-3], shape[-1]))
        offset = wide.astype(np.float32).astype(DTYPES[offset_dtype])
        x = x + offset.astype(np.float64)[:, np.newaxis, :]
    return Vectors(
        kind=kind,
        shape=shape,
        dtype=dtype,
        seed=seed,
        x=x.astype(np.float32).astype(DTYPES[dtype]),
        offset=offset,
    )


def make_planes(shape: Shape, seed: int, *, tame: bool = False) -> Planes:
    """Make a cache of vectors [..., D] with every kind of code; `tame`: scales near 1/8."""
    generator = np.random.default_rng(seed)
    count, head_dim = int(np.prod(shape[:-1])), shape[-1]
    q4, qr = edge_nibbles(generator, np.arange(count) + seed, head_dim)
    if tame:
        q4 = generator.integers(-7, 8, q4.shape).astype(np.int8)
        qr = allowed_residual(q4, generator.integers(-8, 8, q4.shape).astype(np.int8))
    scale = generator.uniform(0.1, 0.2, count)
    if not tame:
        scale *= 10.0 ** generator.integers(-6, 7, count)
        scale[:: 1 + count // 3] = 1e-8
    return Planes(
        shape=shape,
        seed=seed,
        hi=to_plane(q4).reshape(*shape[:-1], head_dim // 2),
        lo=to_plane(qr).reshape(*shape[:-1], head_dim // 2),
        scale=scale.astype(np.float32).reshape(shape[:-1]),
    )


def _ordinary(generator: Generator, shape: Shape, _dtype: FloatDtype) -> Array:
    return generator.standard_normal(shape)


def _channel(generator: Generator, shape: Shape, _dtype: FloatDtype) -> Array:
    """Return vectors with one large channel, the same in each token, and one large token."""
    x = generator.standard_normal(shape)
    x[..., int(generator.integers(shape[-1]))] *= 50
    x[..., shape[-2] // 2, :] *= 20
    return x


def _far_from_zero(generator: Generator, shape: Shape, _dtype: FloatDtype) -> Array:
    """Return vectors around 20: a lane that reads 0 would widen nothing, a mean would help."""
    return 20 + generator.standard_normal(shape)


def _floor(generator: Generator, shape: Shape, _dtype: FloatDtype) -> Array:
    """Return vectors on both sides of the smallest scale, ties of the smallest, and zeros."""
    largest = 7e-8 * np.array([0, 0.01, 0.9, 1, 1.1, 3])
    turn = np.arange(int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1) % largest.size
    x = generator.uniform(-1, 1, shape) * largest[turn]
    below = np.resize(np.outer(floor_ties(7), (1, -1, 1 / 16, -1 / 16)), shape[-1])
    return np.where(largest[turn] == largest[2], below, x)


def _ties(generator: Generator, shape: Shape, dtype: FloatDtype) -> Array:
    """Return vectors with an exact scale c: ties of the code, and ties of the residual.

    Every second element is a multiple of c/2, the others of c/32, and one is 7 * c. Odd c other
    than 1 need more than the eight bits of bfloat16.
    """
    odd = np.array([1] if dtype == "bfloat16" else [3, 1, 5, 7])
    turn = np.arange(int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1)
    halves = generator.integers(-14, 14, shape) / 2
    fine = generator.integers(-223, 224, shape) / 32
    x = np.where(np.arange(shape[-1]) % 2, halves, fine)
    x[..., -1] = 7
    scaled: Array = x * odd[turn % odd.size] * 2.0 ** (turn % 5 - 3)
    return scaled


def _contraction(generator: Generator, shape: Shape, dtype: FloatDtype) -> Array:
    """Return vectors full of elements whose residual an FMA of d - q4 * s would change."""
    largest, d = _fma_sensitive(generator, dtype)
    x = np.empty((int(np.prod(shape[:-1])), shape[-1]), np.float32)
    for place, vector in enumerate(x):
        chosen = place % len(largest)
        vector[:-1] = np.resize(d[chosen], shape[-1] - 1)
        vector[-1] = largest[chosen, 0]
        vector[:] *= 2.0 ** (place % 7 - 3)
    return x.reshape(shape)


def _fma_sensitive(generator: Generator, dtype: FloatDtype) -> tuple[Float32, list[Float32]]:
    """Return largest elements [n, 1], and for each the elements beside it that an FMA changes.

    An odd multiple of a 32nd of the largest element is midway between two residuals, but for the
    rounding of the scale; which side it falls on depends on every other rounding too.
    """
    draws = generator.uniform(1, 2, (2048, 1)).astype(np.float32).astype(DTYPES[dtype])
    largest = np.unique(draws.astype(np.float32))[:, np.newaxis]
    generator.shuffle(largest)
    d = (largest * np.arange(-31, 32, 2) / 32).astype(np.float32).astype(DTYPES[dtype])
    d = d.astype(np.float32)
    scale = largest / np.float32(7)
    step = scale / np.float32(16)
    q4 = np.clip(np.rint(d / scale), -8, 7)
    fused = (d.astype(np.float64) - q4.astype(np.float64) * scale).astype(np.float32)
    one, two = (np.clip(np.rint(rest / step), -8, 7) for rest in (fused, d - q4 * scale))
    useful = (one != two).any(axis=1)
    return largest[useful], [d[row][one[row] != two[row]] for row in np.flatnonzero(useful)]


KINDS: Mapping[str, Callable[[Generator, Shape, FloatDtype], Array]] = {
    "ordinary": _ordinary,
    "channel": _channel,
    "far from zero": _far_from_zero,
    "floor": _floor,
    "ties": _ties,
    "contraction": _contraction,
}
