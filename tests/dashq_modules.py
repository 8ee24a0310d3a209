"""Packed modules for the tests of dashq: a description and tensors that fit it."""

from dataclasses import dataclass

import numpy as np
from nibblespec.reference.rounding import DTYPES, Array, round_float64
from nibblespec.reference.words import pack_words
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Words


@dataclass(frozen=True)
class Packed:
    """The arguments of `dashq_reconstruct`; codes are uint8 [N, Kq]."""

    words: Words
    scale: Array
    zero: Array
    module: Module
    codes: Array


def describe(
    rows: int,
    columns: int,
    nbits: int = 4,
    group_size: int = 8,
    quant_columns: int | None = None,
    scale_zero_dtype: str = "float16",
    linear_dtype: str = "bfloat16",
) -> Module:
    """Describe a module [rows, columns]."""
    stored = columns if quant_columns is None else quant_columns
    return Module(
        nbits=nbits,
        group_size=group_size,
        in_features=columns,
        out_features=rows,
        quant_in_features=stored,
        num_groups=rows * stored // group_size,
        packing=f"int{nbits}_packed_u32",
        scale_zero_dtype=scale_zero_dtype,
        linear_dtype=linear_dtype,
    )


def random_packed(
    module: Module, seed: int = 0, zero_range: tuple[float, float] = (-3.0, 20.0)
) -> Packed:
    """Draw codes over the whole range, fractional zero points and scales around 0.01."""
    rng = np.random.default_rng(seed)
    dtype = module.scale_zero_dtype
    shape = (module.out_features, module.quant_in_features)
    codes = rng.integers(0, 2**module.nbits, shape, np.uint8)
    zero = rng.uniform(*zero_range, (module.num_groups, 1))
    scale = rng.uniform(0.002, 0.03, (module.num_groups, 1))
    if dtype.startswith("float8"):
        zero, scale = zero.astype(np.float32), scale.astype(np.float32)
        return packed(codes, scale.astype(DTYPES[dtype]), zero.astype(DTYPES[dtype]), module)
    return packed(codes, round_float64(scale, dtype), round_float64(zero, dtype), module)


def packed(codes: Array, scale: Array, zero: Array, module: Module) -> Packed:
    """Pack codes [N, Kq] beside parameters [num_groups, 1]."""
    words = pack_words(codes.reshape(-1), module.nbits)
    return Packed(words=words, scale=scale, zero=zero, module=module, codes=codes)
