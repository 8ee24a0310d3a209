"""Activations at the edges of A8: ties of the division, the floor of the scale, zeros."""

from dataclasses import dataclass, field

import numpy as np
from nibblespec.conformance.suite.activation_data import KINDS, make_activations
from nibblespec.conformance.suite.floor_ties import floor_ties
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.spec.operations import Array, FloatDtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Activations to quantize; `width` is what quantize_activations takes as its group."""

    kind: str
    rows: int
    groups: int
    width: int
    dtype: FloatDtype
    seed: int
    x: Array = field(repr=False)


A8_KINDS = (*KINDS, "ties", "near ties", "floor", "magnitudes")


def make_a8(
    kind: str, rows: int, groups: int, width: int, dtype: FloatDtype, seed: int, *, per_token: bool
) -> Activations:
    """Make x [rows, groups * width] of one kind (of A8_KINDS), one scale a token or a group."""
    generator = np.random.default_rng(seed)
    columns = groups * width
    span = columns if per_token else width
    shape = (rows, columns // span, span)
    if kind in KINDS:
        x = make_activations(kind, rows, columns, dtype, seed)
    elif kind == "ties":
        x = _ties(generator, shape, dtype)
    elif kind == "near ties":
        x = _near_ties(generator, shape)
    elif kind == "floor":
        # Magnitudes on both sides of 127e-8, and zeros.
        largest = 127e-8 * np.array([0, 0.01, 0.9, 1.0, 1.1, 3])
        turn = np.arange(shape[0] * shape[1]).reshape(*shape[:2], 1) % largest.size
        x = generator.uniform(-1, 1, shape) * largest[turn]
        below = np.resize(np.outer(floor_ties(127), (1, -1)), span)
        x = np.where(largest[turn] == largest[2], below, x)
    else:
        exponent = np.arange(shape[0] * shape[1]).reshape(*shape[:2], 1) * 5 % 23 - 11
        x = generator.standard_normal(shape) * 2.0**exponent
    return Activations(
        kind=kind,
        rows=rows,
        groups=groups,
        width=-1 if per_token else width,
        dtype=dtype,
        seed=seed,
        x=x.reshape(rows, columns).astype(np.float32).astype(DTYPES[dtype]),
    )


def _ties(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Make scales that are exact small integers and quotients that end in a half.

    The scale c times a power of two comes from an element 127 * c; odd c other than 1 (which do
    not fit bfloat16) make products with 1/c, the usual shortcut, miss the tie.
    """
    odd = np.array([1] if dtype == "bfloat16" else [3, 1, 5, 7, 11, 13])
    scale = odd[np.arange(shape[0] * shape[1]) % odd.size].reshape(*shape[:2], 1)
    bits = {"float16": 11, "bfloat16": 8, "float32": 24}[dtype]
    limit = np.minimum(2**bits // (2 * scale) - 1, 126)
    halves = generator.integers(-limit - 1, limit, shape) + 0.5
    halves[..., -1] = 127 * generator.choice([-1, 1], shape[:2])
    x: Array = halves * scale * 2.0 ** generator.integers(-6, 1, (*shape[:2], 1))
    return x


def _near_ties(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Make quotients within a few units of a tie, so that only correct division sees its side."""
    largest = generator.uniform(0.5, 2, (*shape[:2], 1)).astype(np.float32)
    scale = largest / np.float32(127)
    halves = generator.integers(-126, 126, shape).astype(np.float32) + np.float32(0.5)
    x: Array = halves * scale
    x = x * (1 + generator.integers(-2, 3, shape).astype(np.float32) * np.float32(2.0**-23))
    x[..., -1] = largest[..., 0]
    return x
