"""Packed dashq weights for cases of reconstruction and of the linear layer."""

from dataclasses import dataclass

import numpy as np
from nibblespec.conformance.vectors.case import Tensor
from nibblespec.conformance.vectors.streams import grid, integers
from nibblespec.reference.rounding import Array, Float64, round_float64
from nibblespec.reference.words import pack_words
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Words
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Packed:
    """The arguments of `dashq_reconstruct`; `name` is the beginning of its tensors' names."""

    name: str
    words: Words
    scale: Array
    zero: Array
    module: Module


def describe(
    rows: int,
    columns: int,
    nbits: int,
    group_size: int,
    stored: int | None = None,
    scale_zero_dtype: str = "float16",
    linear_dtype: str = "bfloat16",
) -> Module:
    """Describe a module [rows, columns] of which `stored` columns are in the words."""
    quant_columns = columns if stored is None else stored
    return Module(
        nbits=nbits,
        group_size=group_size,
        in_features=columns,
        out_features=rows,
        quant_in_features=quant_columns,
        num_groups=rows * quant_columns // group_size,
        packing=f"int{nbits}_packed_u32",
        scale_zero_dtype=scale_zero_dtype,
        linear_dtype=linear_dtype,
    )


def description(module: Module) -> dict[str, str | int]:
    """Return a module as a manifest describes it."""
    fields: dict[str, str | int] = module.model_dump(exclude_none=True)
    return fields


def packed(
    name: str, codes: NDArray[np.int64], scale: Float64, zero: Float64, module: Module
) -> Packed:
    """Pack codes [N, Kq] beside parameters [num_groups, 1], rounded to scale_zero_dtype."""
    return Packed(
        name,
        pack_words(codes.reshape(-1).astype(np.uint8), module.nbits),
        round_float64(scale, module.scale_zero_dtype),
        round_float64(zero, module.scale_zero_dtype),
        module,
    )


def any_weight(name: str, module: Module, zero_exponent: int = -21) -> Packed:
    """Return any codes, scales around 0.03, zero points from below 0 to above the highest code.

    Scales have more digits than scale_zero_dtype holds, so that they fill it; zero points do
    unless they are multiples of a larger power of two.
    """
    highest = 2**module.nbits - 1
    groups = (module.num_groups, 1)
    codes = integers(f"{name} codes", (module.out_features, module.quant_in_features), 0, highest)
    scale = grid(f"{name} scale", groups, 2**21, 2**23, -27)
    unit = 2**-zero_exponent
    zero = grid(f"{name} zero", groups, -2 * unit, (highest + 2) * unit, zero_exponent)
    return packed(name, codes, scale, zero, module)


def tensors(weight: Packed) -> dict[str, Tensor | None]:
    """Return the inputs words, scale and zero."""
    return {
        "words": Tensor(f"{weight.name}/words", weight.words),
        "scale": Tensor(f"{weight.name}/scale", weight.scale),
        "zero": Tensor(f"{weight.name}/zero", weight.zero),
    }
