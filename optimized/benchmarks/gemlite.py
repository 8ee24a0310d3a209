"""gemlite's INT4 layer, where that package is installed."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from nibblespec.optimized.layout import DashqLayout
from torch import Tensor

PACKAGE = "gemlite"


def is_installed() -> bool:
    """Say whether gemlite can be imported."""
    return find_spec(PACKAGE) is not None


def gemlite_linear(
    codes: Tensor, scale: Tensor, zero: Tensor, layout: DashqLayout
) -> Callable[[Tensor], Tensor]:
    """Return gemlite's layer with a weight: x float16 [M, K] → [M, N].

    codes: uint8 [N * K]; scale and zero: float16 [num_groups, 1]. float16 is what all of gemlite's
    kernels take. It is used as it comes, without a search of its own for configurations.
    """
    core: Any = import_module(f"{PACKAGE}.core")
    layer = core.GemLiteLinear(
        layout.nbits,
        group_size=layout.group_size,
        in_features=layout.columns,
        out_features=layout.rows,
        input_dtype=core.DType.FP16,
        output_dtype=core.DType.FP16,
    )
    codes = codes.view(layout.rows, layout.columns)
    layer.pack(codes, scale.to(torch.float16), zero.to(torch.float16), None)
    result: Callable[[Tensor], Tensor] = layer
    return result
