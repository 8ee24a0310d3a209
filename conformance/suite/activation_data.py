"""Activations of every kind: rows x [M, K] that go into the layers."""

from collections.abc import Callable, Mapping

import numpy as np
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.spec.operations import Array, FloatDtype

Generator = np.random.Generator


def make_activations(kind: str, rows: int, columns: int, dtype: FloatDtype, seed: int) -> Array:
    """Make x [rows, columns] of one kind, a key of KINDS. No two rows are alike."""
    generator = np.random.default_rng(seed)
    values = KINDS[kind](generator, (rows, columns))
    return values.astype(np.float32).astype(DTYPES[dtype])


def _ordinary(generator: Generator, shape: tuple[int, int]) -> Array:
    return generator.standard_normal(shape)


def _outliers(generator: Generator, shape: tuple[int, int]) -> Array:
    """Return a few columns a thousand times larger than the others, and one such token."""
    values = generator.standard_normal(shape)
    values[:, generator.integers(0, shape[1], 1 + shape[1] // 64)] *= 1000
    values[shape[0] // 2] *= 30
    return np.clip(values, -60000, 60000)  # float16 holds up to 65504


def _far_from_zero(generator: Generator, shape: tuple[int, int]) -> Array:
    """Return values around 100, where a range that takes zero in is much too wide."""
    return 100 + generator.standard_normal(shape)


def _one_hot(generator: Generator, shape: tuple[int, int]) -> Array:
    """Return rows with a single element: they pick one column of the weight."""
    values = np.zeros(shape)
    columns = (np.arange(shape[0]) * 7 + generator.integers(0, shape[1])) % shape[1]
    # The last column comes first: a tail that is cut off shows.
    columns[0] = shape[1] - 1
    values[np.arange(shape[0]), columns] = generator.choice([-1.5, 1.0, 2.0], shape[0])
    return values


def _cancelling(generator: Generator, shape: tuple[int, int]) -> Array:
    """Return a positive first and a negative second half: small sums of many large terms."""
    values = generator.uniform(0.5, 1.5, shape)
    values[:, shape[1] // 2 :] *= -1
    return values


def _sparse(generator: Generator, shape: tuple[int, int]) -> Array:
    """Return whole rows of zeros among rows that are half zero."""
    values = generator.standard_normal(shape) * generator.integers(0, 2, shape)
    values[shape[0] // 2] = 0
    return values


KINDS: Mapping[str, Callable[[Generator, tuple[int, int]], Array]] = {
    "ordinary": _ordinary,
    "outliers": _outliers,
    "far from zero": _far_from_zero,
    "one-hot": _one_hot,
    "cancelling": _cancelling,
    "sparse": _sparse,
}
