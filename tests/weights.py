"""Weights of many kinds, as good quantizers get them: what statistics have to stay silent on."""

from collections.abc import Callable, Mapping

import numpy as np
from nibblespec.reference.nested_encoder import encode_residual
from nibblespec.spec.operations import Array
from numpy.random import Generator

Draw = Callable[[Generator, tuple[int, int]], Array]


def _outliers(random: Generator, shape: tuple[int, int]) -> Array:
    """Draw normal weights with a few columns that are 30 times as large, as activations make."""
    weight = random.normal(size=shape)
    weight[:, random.integers(0, shape[1], 3)] *= 30
    return weight


def _rows(random: Generator, shape: tuple[int, int]) -> Array:
    """Draw rows whose sizes differ by orders of magnitude."""
    return random.normal(size=shape) * random.lognormal(0, 2, (shape[0], 1))


def _sparse(random: Generator, shape: tuple[int, int]) -> Array:
    """Draw weights of which nine in ten are zero."""
    return random.normal(size=shape) * (random.random(shape) < 0.1)


def _two_of_four(random: Generator, shape: tuple[int, int]) -> Array:
    """Draw weights of which the smaller two of each four are zero."""
    weight = random.normal(size=(shape[0], -(-shape[1] // 4), 4))
    order = np.argsort(np.abs(weight), axis=-1)
    np.put_along_axis(weight, order[..., :2], 0, axis=-1)
    return weight.reshape(shape[0], -1)[:, : shape[1]]


KINDS: Mapping[str, Draw] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "laplace": lambda random, shape: random.laplace(size=shape),
    "student": lambda random, shape: random.standard_t(3, shape),
    "cauchy": lambda random, shape: random.standard_cauchy(shape).clip(-1000, 1000),
    "uniform": lambda random, shape: random.uniform(-1, 1, shape),
    "outliers": _outliers,
    "rows": _rows,
    "shifted": lambda random, shape: random.normal(5, 1, shape),
    "positive": lambda random, shape: np.abs(random.normal(size=shape)),
    "two clusters": lambda random, shape: (
        random.choice((-1, 1), shape) + random.normal(0, 0.1, shape)
    ),
    "sparse": _sparse,
    "two of four": _two_of_four,
}
"""Kinds of weights; each draws float64 [N, K]."""


def draw(kind: str, rows: int, columns: int, seed: int = 0) -> Array:
    """Return weights of a kind, float32 [rows, columns], always the same."""
    random = np.random.default_rng([seed, rows, columns, len(kind)])
    weight = KINDS[kind](random, (rows, columns))
    return (0.02 * weight).astype(np.float32)


def gptq(weight: Array, group: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Nest a weight with q4 from GPTQ (arXiv 2210.17323), on random correlated inputs.

    Returns q4, qr and scale. Column by column, the error of rounding is passed on to the columns
    that follow, in the proportions that keep the layer's output; qr is fitted to the weight as
    it was.
    """
    random = np.random.default_rng(seed)
    rows, columns = weight.shape
    mixing = random.normal(size=(columns, columns)) / np.sqrt(columns) + 0.5 * np.eye(columns)
    inputs = random.normal(size=(2 * columns, columns)) @ mixing
    hessian = inputs.T @ inputs
    hessian += 0.01 * np.trace(hessian) / columns * np.eye(columns)
    passed_on = np.linalg.cholesky(np.linalg.inv(hessian)).T
    moved = weight.astype(np.float64)
    q4 = np.zeros((rows, columns), np.int8)
    scale = np.zeros((rows, columns // group), np.float16)
    for column in range(columns):
        if column % group == 0:
            largest = np.abs(moved[:, column : column + group]).max(axis=1)
            scale[:, column // group] = largest / 7
        step = scale[:, column // group].astype(np.float64)
        q4[:, column] = np.clip(np.rint(moved[:, column] / step), -8, 7)
        error = (moved[:, column] - q4[:, column] * step) / passed_on[column, column]
        moved[:, column + 1 :] -= np.outer(error, passed_on[column, column + 1 :])
    return q4, encode_residual(weight, q4, scale), scale
