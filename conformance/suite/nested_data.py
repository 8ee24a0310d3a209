"""Nested weights with every kind of code and scale, and inputs of the nested layer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from nibblespec.conformance.suite.dashq_data import edge_scales
from nibblespec.spec.operations import Array, Bytes, Float16, Float32, Nibbles

Generator = np.random.Generator
FLOAT16 = np.dtype(np.float16)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedWeight:
    """A nested weight: codes, the planes that hold them, and scales."""

    rows: int
    columns: int
    group: int
    """Columns that share a scale."""
    seed: int
    start: int
    """Where the cycles of edge values begin."""
    q4: Nibbles = field(repr=False)
    qr: Nibbles = field(repr=False)
    hi: Bytes = field(repr=False)
    lo: Bytes = field(repr=False)
    scale: Float16 = field(repr=False)


def make_nested(rows: int, groups: int, group: int, seed: int, start: int = 0) -> NestedWeight:
    """Make a weight in whose groups every kind of code and of scale takes its turn."""
    generator = np.random.default_rng(seed)
    turn = np.arange(rows * groups) + start
    shape = (rows, groups * group)
    q4, qr = (codes.reshape(shape) for codes in edge_nibbles(generator, turn, group))
    scale = edge_scales(generator, turn, FLOAT16)
    scale = np.where((scale == 0) & (turn % 16 < 8), -scale, scale)  # -0 is not negative
    return with_codes(q4, qr, scale.reshape(rows, groups), group, seed, start)


def make_tame_nested(rows: int, groups: int, group: int, seed: int) -> NestedWeight:
    """Make a weight as a quantizer would: scales of one magnitude, all different."""
    generator = np.random.default_rng(seed)
    shape = (rows, groups * group)
    q4 = generator.integers(-8, 8, shape).astype(np.int8)
    qr = allowed_residual(q4, generator.integers(-8, 8, shape).astype(np.int8))
    scale = generator.uniform(0.01, 0.1, (rows, groups)).astype(np.float16)
    return with_codes(q4, qr, scale, group, seed, 0)


def with_codes(
    q4: Nibbles, qr: Nibbles, scale: Float16, group: int, seed: int = 0, start: int = 0
) -> NestedWeight:
    """Put codes [N, K] and scales [N, K/group] together, with their planes."""
    return NestedWeight(
        rows=q4.shape[0],
        columns=q4.shape[1],
        group=group,
        seed=seed,
        start=start,
        q4=q4,
        qr=qr,
        hi=to_plane(q4),
        lo=to_plane(qr),
        scale=scale,
    )


def to_plane(codes: Nibbles) -> Bytes:
    """Pack codes in -8 … 7, [..., K], straight from the definition."""
    excess = (codes.astype(np.int16) + 8).astype(np.uint8)
    plane: Bytes = excess[..., 0::2] + 16 * excess[..., 1::2]
    return plane


def allowed_residual(q4: Nibbles, qr: Nibbles) -> Nibbles:
    """Make the residual non-negative where q4 is -8, so that 16 * q4 + qr fits eight bits."""
    return np.where((q4 == -8) & (qr < 0), qr + 8, qr).astype(np.int8)


def eight_bit(weight: NestedWeight) -> Array:
    """Return q8 = 16 * q4 + qr, int16 [N, K]."""
    codes: Array = 16 * weight.q4.astype(np.int16) + weight.qr
    return codes


def edge_nibbles(generator: Generator, turn: Array, group: int) -> tuple[Nibbles, Nibbles]:
    """Return q4 and qr [groups, group]: positions, random, both extremes of q8, side by side."""
    shape = (turn.size, group)
    position = np.arange(turn.size * group).reshape(shape)
    q4 = np.stack(
        [
            position % 16 - 8,
            generator.integers(-8, 8, shape),
            np.full(shape, 7),
            np.full(shape, -8),
            np.array([-8, 0, 7, -1])[position % 4],
        ]
    )
    qr = np.stack(
        [
            (position // 16 + 3 * position) % 16 - 8,
            generator.integers(-8, 8, shape),
            np.full(shape, 7),
            np.zeros(shape, np.int64),
            np.array([7, -8, 7, -8, 0])[position % 5],
        ]
    )
    each = np.arange(turn.size)
    chosen4 = q4[turn % len(q4), each].astype(np.int8)
    return chosen4, allowed_residual(chosen4, qr[turn % len(qr), each].astype(np.int8))


def make_codes(kind: str, rows: int, columns: int, seed: int) -> Nibbles:
    """Make activation codes int8 [rows, columns] in -127 … 127 of one kind, a key of CODE_KINDS."""
    return CODE_KINDS[kind](np.random.default_rng(seed), (rows, columns)).astype(np.int8)


def make_scales(rows: int, groups: int, seed: int) -> Float32:
    """Make activation scales float32 [rows, groups]: all different, down to the smallest."""
    generator = np.random.default_rng(seed)
    scales = (
        generator.uniform(0.001, 0.1, (rows, groups))
        * 4.0 ** generator.integers(-3, 3, rows)[:, np.newaxis]
    )
    scales[rows // 3, 0] = 1e-8
    return scales.astype(np.float32)


def _one_hot(generator: Generator, shape: tuple[int, int]) -> Array:
    """Pick one column each row, the last one first."""
    codes = np.zeros(shape, np.int64)
    columns = (shape[1] - 1 - 5 * np.arange(shape[0])) % shape[1]
    codes[np.arange(shape[0]), columns] = generator.choice([-127, 1, 127], shape[0])
    return codes


CODE_KINDS: Mapping[str, Callable[[Generator, tuple[int, int]], Array]] = {
    "random": lambda generator, shape: generator.integers(-127, 128, shape),
    "extreme": lambda generator, shape: generator.choice([-127, 127], shape),
    "position": lambda _, shape: np.arange(shape[0] * shape[1]).reshape(shape) % 255 - 127,
    "all positive": lambda generator, shape: generator.integers(100, 128, shape),
    "one-hot": _one_hot,
}
