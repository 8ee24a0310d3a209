"""The packed linear layer of dashq."""

from collections.abc import Callable
from typing import Self

import torch
from nibblespec.optimized.arrays import FLOAT_DTYPES, SCALE_ZERO_DTYPES
from nibblespec.optimized.checks import check_tensor
from nibblespec.optimized.layout import layout_of
from nibblespec.optimized.modules.packed import forward_only, moving
from nibblespec.optimized.operations import Operations
from nibblespec.spec.dashq_packed_linear.v1.dtypes import canonical_dtype
from nibblespec.spec.dashq_packed_linear.v1.layout import word_count
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from torch import Tensor, nn


class DashQLinear(nn.Module):
    """y = x·weightᵀ + bias from packed words; it replaces an nn.Linear.

    Buffers have the names of the checkpoint's tensors: `W_q_packed` int32 [⌈N·Kq / P⌉], `scale` and
    `zero` [num_groups, 1] in scale_zero_dtype, `bias` [N] in linear_dtype or None. They are empty
    until they are loaded, and keep their dtypes: `.to()` and the like only move them. Raises
    ValueError for a dtype that the format does not know.
    """

    W_q_packed: Tensor
    scale: Tensor
    zero: Tensor
    bias: Tensor | None

    def __init__(
        self,
        module: Module,
        operations: Operations,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.operations = operations
        self.layout = layout_of(module)
        self.dtype = _dtype("linear_dtype", module.linear_dtype, FLOAT_DTYPES)
        parameters = _dtype("scale_zero_dtype", module.scale_zero_dtype, SCALE_ZERO_DTYPES)
        empty = torch.empty
        words = empty(word_count(module), dtype=torch.int32, device=device)
        self.register_buffer("W_q_packed", words)
        for name in ("scale", "zero"):
            self.register_buffer(name, empty(module.num_groups, 1, dtype=parameters, device=device))
        zeros = empty(module.out_features, dtype=self.dtype, device=device) if bias else None
        self.register_buffer("bias", zeros)

    @property
    def in_features(self) -> int:
        """K, the width of x."""
        return self.layout.columns

    @property
    def out_features(self) -> int:
        """N, the width of the result."""
        return self.layout.rows

    def forward(self, x: Tensor) -> Tensor:
        """Return linear_dtype [..., N] for x in linear_dtype [..., K].

        Raises TypeError for another dtype and ValueError for another width; a backward pass through
        the result raises RuntimeError.
        """
        check_tensor(x, "x", self.dtype, ("...", self.layout.columns))
        rows = x.reshape(-1, self.layout.columns)
        weight = self.W_q_packed, self.scale, self.zero
        y = self.operations.dashq_linear(rows, *weight, self.bias, self.layout)
        return forward_only(y.view(*x.shape[:-1], self.layout.rows), x)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        moved: Self = super()._apply(moving(fn), recurse)  # type: ignore[no-untyped-call]  # torch has no types for it
        return moved

    def extra_repr(self) -> str:
        """Say what is packed."""
        return ", ".join(f"{name}={value}" for name, value in self.layout._asdict().items())


def _dtype(key: str, name: str, known: dict[str, torch.dtype]) -> torch.dtype:
    found = known.get(canonical_dtype(name) or name)
    if found is None:
        raise ValueError(f"{key}: expected one of {', '.join(known)}, found {name!r}")
    return found
