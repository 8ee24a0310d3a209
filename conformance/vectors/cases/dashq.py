"""Cases of dashq_reconstruct."""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
from nibblespec.conformance.vectors.case import Case, exact
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, LARGEST, SHORT, SMALLEST
from nibblespec.conformance.vectors.cases.packed import (
    Packed,
    any_weight,
    describe,
    description,
    packed,
    tensors,
)
from nibblespec.reference.dashq import dashq_reconstruct
from nibblespec.reference.rounding import Float64
from nibblespec.reference.words import codes_per_word, pack_words
from nibblespec.spec.operations import DashqRounding

EVALUATIONS: tuple[DashqRounding, ...] = ("fused", "stepwise", "bf16-params")

EVALUATION_ID = {
    "fused": "NUM-EVALUATION-FUSED",
    "stepwise": "NUM-EVALUATION-STEPWISE",
    "bf16-params": "NUM-EVALUATION-BF16-PARAMS",
}

OPERATION = "dashq_reconstruct"


def cases() -> Iterator[Case]:
    """Yield weights of every bit width, in every evaluation and every dtype."""
    for nbits in range(1, 9):
        yield from _each(
            any_weight(f"{OPERATION}/int{nbits}-straddle", describe(5, 21, nbits, 7)),
            "rows and groups end inside words",
            ("DQ1-PACKING-ROWS", "DQ1-RECONSTRUCT-GROUPS", "DQ1-PACKING-ORDER"),
        )
    for nbits, group in ((4, 32), (3, 64), (2, 128)):
        yield from _each(
            any_weight(f"{OPERATION}/int{nbits}-g{group}", describe(3, 128, nbits, group)),
            f"groups of {group}",
            ("DQ1-RECONSTRUCT-GROUPS", "DQ1-RECONSTRUCT-ZERO-POINT"),
        )
    for dtype in ("bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"):
        module = describe(3, 32, 4, 8, scale_zero_dtype=dtype)
        yield from _each(
            any_weight(f"{OPERATION}/int4-params-{SHORT[dtype]}", module),
            f"scale and zero in {dtype}",
            ("DQ1-RECONSTRUCT-PARAMETERS", "DQ1-RECONSTRUCT-ZERO-POINT"),
        )
    yield from _roundings()
    yield from _padding()
    yield from _shapes()


def _roundings() -> Iterator[Case]:
    for dtype in LARGEST:
        yield from _each(
            _edges(dtype),
            f"zero points and scales in {dtype}: zero, subnormal, the largest, out of range",
            (
                "NUM-ROUND-ZERO",
                "NUM-ROUND-SUBNORMAL",
                "NUM-ROUND-OVERFLOW",
                "DQ1-RECONSTRUCT-ZERO-POINT",
            ),
        )
    steps = np.array([1.0, 3, 5, 7, 9, 11])
    for name, scales in (("bf16", 1 + steps * 2.0**-8), ("f16", 1 + steps * 2.0**-10)):
        yield from _each(
            _grouped(f"{OPERATION}/int4-ties-{name}", "float16", [0, 8, 7.5], scales),
            f"products that are ties of {'bfloat16' if name == 'bf16' else 'float16'}, both signs",
            ("NUM-ROUND-NEAREST",),
        )
    zeros = [2.0**-25, 3 * 2.0**-24, -(2.0**-24), 8 + 3 * 2.0**-22, 15 - 2.0**-21]
    yield from _each(
        _grouped(f"{OPERATION}/int4-ties-f32", "float32", zeros, np.array([1, 1 + 2.0**-23, 0.75])),
        "differences and products that are ties of float32",
        ("NUM-ROUND-NEAREST",),
    )
    # 0x464B and 0x26E0; 0x9F59 and 0x279F
    for name, zero, scale, number in (
        ("three-evaluations", 6.29296875, 0.02685546875, "3.1"),
        ("float32-rounding", -0.007175445556640625, 0.0297698974609375, "3.2"),
    ):
        yield from _each(
            _grouped(f"{OPERATION}/int4-{name}", "float16", [zero], np.array([scale])),
            f"the example of Numerics, {number}, with all sixteen codes",
            ("NUM-ROUND-ONCE",),
        )


def _padding() -> Iterator[Case]:
    for name, nbits, columns, stored, group in (
        ("padded", 4, 33, 40, 8),
        ("padded-groups", 3, 19, 40, 8),
        ("padded-column", 8, 15, 16, 16),
    ):
        weight = any_weight(
            f"{OPERATION}/int{nbits}-{name}", describe(3, columns, nbits, group, stored)
        )
        first = -(-columns // group)
        for parameter in (weight.scale, weight.zero):
            # Groups that lie in the padding entirely have the largest parameters there are.
            parameter.reshape(3, stored // group)[:, first:] = LARGEST["float16"]
        yield from _each(
            weight,
            f"columns from {columns} to {stored} are padding",
            ("DQ1-RECONSTRUCT-CROP", "DQ1-PACKING-ROWS"),
            (("fused", "stepwise")),
        )


def _shapes() -> Iterator[Case]:
    fused: tuple[DashqRounding, ...] = ("fused",)
    order = ("DQ1-PACKING-ORDER", "DQ1-RECONSTRUCT-GROUPS")
    one = any_weight(f"{OPERATION}/int8-one-weight", describe(1, 1, 8, 1))
    yield from _each(one, "one weight", order, fused)
    single = any_weight(f"{OPERATION}/int4-g1", describe(4, 9, 4, 1))
    yield from _each(single, "each code is a group", order, fused)
    for nbits in (3, 7):
        name = f"{OPERATION}/int{nbits}-unused-bits"
        weight = any_weight(name, describe(3, 10, nbits, 5))
        words = weight.words.view(np.uint32)
        unused = 32 - nbits * codes_per_word(nbits)
        words |= np.uint32((2**unused - 1) << (32 - unused))
        words[-1] |= np.uint32(0xFFFFFFFF << (nbits * (30 % codes_per_word(nbits))) & 0xFFFFFFFF)
        yield from _each(
            weight, "all bits that hold no code are set", ("DQ1-PACKING-SPARE-READ",), fused
        )
    for nbits in (4, 8):
        name = f"{OPERATION}/int{nbits}-highest"
        weight = any_weight(name, describe(3, 16, nbits, 8))
        weight.words[:] = pack_words(np.full(48, 2**nbits - 1, np.uint8), nbits)
        yield from _each(weight, "bit 31 of every word is set", ("DQ1-PACKING-SIGN",), fused)


def _edges(dtype: str) -> Packed:
    """Return a weight with every pair of an unusual zero point and an unusual scale."""
    small, large = SMALLEST[dtype], LARGEST[dtype]
    zeros = [0, -0.0, 0.5, 3, 15, -3.5, 40, small, -small, large, -large]
    scales = np.array([0, small, 5 * small, 0.3125, 1, large / 4, large])
    return _grouped(f"{OPERATION}/int4-edges-{SHORT[dtype]}", dtype, zeros, scales)


def _grouped(name: str, dtype: str, zeros: list[float], scales: Float64) -> Packed:
    """Return a weight with the codes 0 … 15 in each group, a scale a row and a zero a group."""
    rows, groups = len(scales), len(zeros)
    module = describe(rows, 16 * groups, 4, 16, scale_zero_dtype=dtype)
    return packed(
        name,
        np.tile(np.arange(16), rows * groups).reshape(rows, 16 * groups),
        np.repeat(scales, groups)[:, np.newaxis],
        np.tile(np.array(zeros, np.float64), rows)[:, np.newaxis],
        module,
    )


def _each(
    weight: Packed,
    shows: str,
    requirements: tuple[str, ...],
    evaluations: Iterable[DashqRounding] = EVALUATIONS,
) -> Iterator[Case]:
    """Yield a weight in these evaluations and all dtypes."""
    for evaluation, dtype in product(evaluations, DTYPES):
        values = dashq_reconstruct(
            weight.words, weight.scale, weight.zero, weight.module, dtype, evaluation
        )
        yield Case(
            id=f"{weight.name}-{SHORT[dtype]}-{evaluation}",
            shows=shows,
            requirements=(
                *requirements,
                EVALUATION_ID[evaluation],
                "DQ1-RECONSTRUCT-FORMULA",
                "DQ1-RECONSTRUCT-DTYPE",
            ),
            parameters={
                "module": description(weight.module),
                "dtype": dtype,
                "evaluation": evaluation,
            },
            inputs=tensors(weight),
            outputs={"weight": exact(values)},
        )
