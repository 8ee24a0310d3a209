"""All correct backends: other algorithms, other declared evaluations, partial claims."""

from dataclasses import replace

import numpy as np
from nibblespec.reference.activations import SMALLEST_SCALE
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.reference.rounding import Array, Float32, round_float32
from nibblespec.reference.words import unpack_words
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    OPERATIONS,
    Capabilities,
    Codes,
    DashqRounding,
    FloatDtype,
    LinearWeightRounding,
    Nibbles,
    Words,
)

from tests.teeth import variants_attention, variants_hadamard, variants_linear
from tests.teeth.variant import Variant, claiming, computing

DASHQ = OPERATIONS[:4]
BITNEST = OPERATIONS[4:]
REFERENCE = ReferenceBackend().capabilities()
EVALUATIONS: tuple[tuple[DashqRounding, LinearWeightRounding], ...] = (
    ("fused", "unrounded"),
    ("stepwise", "rounded"),
    ("bf16-params", "unrounded"),
)


def unpack_by_integers(words: Words, nbits: int, count: int) -> Codes:
    """Take words apart as Python's integers."""
    per_word = 32 // nbits
    numbers = words.view(np.uint32).tolist()
    codes = [
        numbers[i // per_word] >> (nbits * (i % per_word)) & (2**nbits - 1) for i in range(count)
    ]
    return np.array(codes, np.uint8)


def reconstruct_by_table(
    words: Words, scale: Array, zero: Array, module: Module, dtype: FloatDtype
) -> Array:
    """Look weights up in a table of all codes for each group."""
    rows, columns = module.out_features, module.quant_in_features
    codes = unpack_words(words, module.nbits, rows * columns).reshape(rows, columns)
    every_code = np.arange(2**module.nbits, dtype=np.float32)
    with np.errstate(all="ignore"):
        difference = every_code - zero.astype(np.float32)
        table = round_float32(difference * scale.astype(np.float32), dtype)
    group = np.arange(rows * columns).reshape(rows, columns) // module.group_size
    return table[group, codes][:, : module.in_features].copy()


def quantize_by_wider_division(x: Array, group: int) -> tuple[Nibbles, Float32]:
    """Divide in float64 and round to float32: the same as a float32 division."""
    width = x.shape[1] if group == -1 else group
    wide = x.astype(np.float64).reshape(len(x), -1, width)
    scale = np.maximum((np.abs(wide).max(axis=2) / 127).astype(np.float32), SMALLEST_SCALE)
    quotient = (wide / scale[:, :, np.newaxis].astype(np.float64)).astype(np.float32)
    return np.rint(quotient).astype(np.int8).reshape(x.shape), scale


VARIANTS: tuple[Variant, ...] = (
    computing("words-as-integers", "Python's integers", unpack_words=unpack_by_integers),
    computing("table-of-weights", "a table for each group", dashq_reconstruct=reconstruct_by_table),
    computing(
        "division-in-float64",
        "quotients in float64, rounded to float32",
        quantize_activations=quantize_by_wider_division,
    ),
    *(
        claiming(
            f"declares-{evaluation}-{rounding}",
            f"declares the evaluation {evaluation} and {rounding} weights",
            ReferenceBackend(
                dashq_rounding=evaluation, linear_weight_rounding=rounding
            ).capabilities(),
            ("dashq_reconstruct", "dashq_linear"),
        )
        for evaluation, rounding in EVALUATIONS
    ),
    *(
        claiming(
            f"prefill-f16-from-{first}",
            f"declares the mode prefill-f16 from {first} rows on",
            ReferenceBackend(prefill_f16_from=first).capabilities(),
            ("nested_linear",),
        )
        for first in (1, 2, 17, 65)
    ),
    *variants_linear.VARIANTS,
    *variants_hadamard.VARIANTS,
    *variants_attention.VARIANTS,
    claiming(
        "int4-only",
        "claims 4-bit dashq weights in groups of 32, without padding, in bfloat16",
        Capabilities(
            operations=DASHQ,
            bit_widths=(4,),
            group_sizes=(32,),
            dtypes=("bfloat16",),
            scale_zero_dtypes=("float16",),
            padded_inputs=False,
        ),
    ),
    claiming(
        "published-packages-only",
        "claims the bitnest operations for groups and heads of 128, and the published orders",
        replace(
            REFERENCE,
            operations=BITNEST,
            group_sizes=(128,),
            head_dims=(128,),
            hadamard_orders=(28, 148, 172),
            dtypes=("bfloat16",),
        ),
    ),
    claiming(
        "no-matrix-in-float16",
        "claims transforms without a matrix, in float16",
        replace(REFERENCE, operations=("hadamard",), dtypes=("float16",), hadamard_orders=()),
    ),
    claiming(
        "packing-only",
        "claims the two packings",
        replace(
            REFERENCE, operations=("pack_words", "unpack_words", "pack_planes", "unpack_planes")
        ),
    ),
)
