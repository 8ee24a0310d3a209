"""Modules of the dashq format with everything in them that a reader may get wrong.

Plain NumPy, from a few numbers and a seed. Kinds of codes, scales and zero points go round in
cycles of 5, 8 and 7 groups, so that no two neighbouring groups are alike and all kinds meet.
"""

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.conformance.suite.signatures import DTYPES
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Array, Codes, FloatDtype, Words

Generator = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class DashqWeight:
    """A packed weight with its codes: words, scale and zero are what an operation takes."""

    module: Module
    dtype: FloatDtype
    """The output dtype to ask for."""
    seed: int
    start: int
    """Where the cycles of edge values begin."""
    codes: Codes = field(repr=False)
    """[N, Kq]"""
    words: Words = field(repr=False)
    scale: Array = field(repr=False)
    zero: Array = field(repr=False)


def make_module(
    nbits: int,
    rows: int,
    groups: int,
    group_size: int,
    padding: int = 0,
    scale_zero_dtype: str = "float16",
    linear_dtype: str = "bfloat16",
) -> Module:
    """Describe a module of `rows` rows of `groups` groups, the last `padding` columns padding."""
    columns = groups * group_size
    return Module(
        nbits=nbits,
        group_size=group_size,
        in_features=columns - padding,
        out_features=rows,
        quant_in_features=columns,
        num_groups=rows * groups,
        packing=f"int{nbits}_packed_u32",
        scale_zero_dtype=scale_zero_dtype,
        linear_dtype=linear_dtype,
    )


def make_weight(module: Module, dtype: FloatDtype, seed: int, start: int = 0) -> DashqWeight:
    """Fill a module with codes, scales and zero points of every kind.

    Spare bits of the words are set at random: a reader ignores them.
    """
    generator = np.random.default_rng(seed)
    groups = np.arange(module.num_groups) + start
    codes = edge_codes(generator, module, groups)
    scale_dtype = DTYPES[module.scale_zero_dtype]
    scale = edge_scales(generator, groups, scale_dtype)
    # No quantizer writes a negative scale, but the formula has no exception for one.
    scale = np.where(groups % 13 == 4, -scale, scale)
    return DashqWeight(
        module=module,
        dtype=dtype,
        seed=seed,
        start=start,
        codes=codes,
        words=fill_spare_bits(generator, pack(codes.reshape(-1), module.nbits), codes.size, module),
        scale=scale.reshape(-1, 1),
        zero=edge_zeros(generator, groups, module.nbits, scale_dtype).reshape(-1, 1),
    )


def make_tame_weight(module: Module, dtype: FloatDtype, seed: int) -> DashqWeight:
    """Fill a module as a quantizer would: no edge values, so that sums stay far from overflow."""
    generator = np.random.default_rng(seed)
    top = 2**module.nbits - 1
    shape = (module.out_features, module.quant_in_features)
    codes = generator.integers(0, top, shape, np.uint8, endpoint=True)
    scale_dtype = DTYPES[module.scale_zero_dtype]
    parameters = (module.num_groups, 1)
    return DashqWeight(
        module=module,
        dtype=dtype,
        seed=seed,
        start=0,
        codes=codes,
        words=fill_spare_bits(generator, pack(codes.reshape(-1), module.nbits), codes.size, module),
        scale=generator.uniform(0.25, 1.0, parameters).astype(np.float32).astype(scale_dtype),
        zero=generator.uniform(-1.0, top + 1.0, parameters).astype(np.float32).astype(scale_dtype),
    )


def pack(codes: Codes, nbits: int) -> Words:
    """Pack a sequence of codes, spare bits zero, straight from the definition."""
    per_word = 32 // nbits
    words = np.zeros(-(-codes.size // per_word), np.uint32)
    for slot in range(per_word):
        of_slot = codes[slot::per_word].astype(np.uint32)
        words[: of_slot.size] |= of_slot << np.uint32(nbits * slot)
    return words.view(np.int32)


def spare_bits(count: int, nbits: int) -> Words:
    """Return words in which exactly the bits that hold none of `count` codes are set."""
    return ~pack(np.full(count, 2**nbits - 1, np.uint8), nbits)


def fill_spare_bits(generator: Generator, words: Words, count: int, module: Module) -> Words:
    """Set each bit that holds no code, the tail of the last word too, at random."""
    noise = generator.integers(-(2**31), 2**31, words.shape, np.int64).astype(np.int32)
    filled: Words = words | (noise & spare_bits(count, module.nbits))
    return filled


def edge_codes(generator: Generator, module: Module, groups: Array) -> Codes:
    """Return codes [N, Kq]; a group is position-coded, random, all-maximum, all-zero or mixed."""
    top = 2**module.nbits - 1
    shape = (module.num_groups, module.group_size)
    position = np.arange(module.num_groups * module.group_size).reshape(shape)
    kinds = np.stack(
        [
            position & top,
            generator.integers(0, top, shape, endpoint=True),
            np.full(shape, top),
            np.zeros(shape, np.int64),
            np.array([0, (top + 1) // 2, top])[position % 3],
        ]
    )
    chosen = kinds[groups % len(kinds), np.arange(module.num_groups)].astype(np.uint8)
    matrix: Codes = chosen.reshape(module.out_features, module.quant_in_features)
    return matrix


def edge_scales(generator: Generator, groups: Array, dtype: np.dtype[Any]) -> Array:
    """Return one scale per group: ordinary, power of two, subnormal, maximal, zero."""
    count = groups.size
    tiny, largest = extremes(dtype)
    ordinary = generator.uniform(2.0**-6, 2.0**-2, count)
    kinds = np.stack(
        [
            ordinary,
            np.full(count, tiny),
            generator.uniform(0.5, 1.0, count),
            np.full(count, largest),
            2.0 ** generator.integers(-4, 4, count),
            np.zeros(count),
            generator.integers(2, 8, count) * tiny,
            # One bit below bfloat16's last: weights that are ties in bfloat16.
            (2 * generator.integers(128, 256, count) + 1) * 2.0**-12,
        ]
    )
    return to_dtype(kinds[groups % len(kinds), np.arange(count)], dtype)


def edge_zeros(generator: Generator, groups: Array, nbits: int, dtype: np.dtype[Any]) -> Array:
    """Return one zero point per group: fractional, zero, negative, above the codes, a code."""
    top = 2**nbits - 1
    count = groups.size
    kinds = np.stack(
        [
            generator.uniform(0, top, count),
            np.zeros(count),
            generator.uniform(-top - 1, 0, count),
            generator.integers(0, top, count, endpoint=True),
            generator.uniform(top, 2 * top + 1, count),
            np.full(count, extremes(dtype)[0]),
            generator.choice([-1.0, 1.0], count) * generator.uniform(100, 400, count),
        ]
    )
    return to_dtype(kinds[groups % len(kinds), np.arange(count)], dtype)


def extremes(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the smallest subnormal and the largest finite number of a dtype."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it
    return float(info.smallest_subnormal), float(info.max)


def to_dtype(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round float64 to a dtype of the formats; beyond its range lies its largest number."""
    _, limit = extremes(dtype)
    return np.clip(values, -limit, limit).astype(np.float32).astype(dtype)
