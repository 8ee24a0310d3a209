"""The nested linear layer of bitnest, and the switch between its two readings."""

from collections.abc import Callable
from typing import Self

import torch
from nibblespec.optimized.checks import PLANES
from nibblespec.optimized.modules.packed import forward_only, moving
from nibblespec.optimized.operations import Operations
from nibblespec.spec.bitnest_package.v1.manifest import Layer
from torch import Tensor, nn


class NestedLinear(nn.Module):
    """A layer that is its own draft: from `hi` alone, or from `hi` and `lo`; it replaces nn.Linear.

    Buffers have the names of the package's tensors: `hi` and `lo` uint8 [N, K/2], `scale` float16
    [N, G], `bias` float16 [N] or None. They are empty until they are loaded, and keep their
    dtypes: `.to()` and the like only move them. `plane` says which model is read, and may be
    changed between calls.
    """

    hi: Tensor
    lo: Tensor
    scale: Tensor
    bias: Tensor | None
    had_k: Tensor | None

    def __init__(
        self,
        layer: Layer,
        operations: Operations,
        *,
        activation_group: int = -1,
        hadamard_order: int | None = None,
        had_k: Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Take a layer's description from the manifest.

        activation_group: columns of x that share a scale, −1 for all. hadamard_order: that of the
        transform of x (R4), None for no transform; from order 2 on, `had_k` is its matrix, float32
        [K, K]. It belongs to the package, not to the layer, and is not in the state dict.
        """
        super().__init__()
        rows, columns = layer.shape
        self.operations = operations
        self.in_features = columns
        self.out_features = rows
        self.activation_group = activation_group
        self.hadamard_order = hadamard_order
        self.plane = "target"
        for name in ("hi", "lo"):
            plane = torch.empty(rows, columns // 2, dtype=torch.uint8, device=device)
            self.register_buffer(name, plane)
        scale = torch.empty(rows, layer.groups, dtype=torch.float16, device=device)
        self.register_buffer("scale", scale)
        bias = torch.empty(rows, dtype=torch.float16, device=device) if layer.has_bias else None
        self.register_buffer("bias", bias)
        self.register_buffer("had_k", had_k, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x's dtype [..., N] for x float16, bfloat16 or float32 [..., K].

        x goes through the Hadamard transform, if there is one (in float32, unrounded), is quantized
        to int8, and multiplied. A backward pass through the result raises RuntimeError. Implements
        chapters 8 to 10 of the specification.
        """
        rows, group = x.reshape(-1, self.in_features), self.activation_group
        if self.hadamard_order is None:
            codes, scales = self.operations.quantize_activations(rows, group)
        else:
            codes, scales = self.operations.quantize_transformed(rows, self.had_k, group)
        lo = None if self.plane == "draft" else self.lo
        y = self.operations.nested_linear(
            codes, scales, self.hi, lo, self.scale, self.bias, self.plane, x.dtype
        )
        return forward_only(y.view(*x.shape[:-1], self.out_features), x)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        moved: Self = super()._apply(moving(fn), recurse)  # type: ignore[no-untyped-call]  # torch has no types for it
        return moved

    def extra_repr(self) -> str:
        """Say what is nested, and how it is read."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        steps = f"activation_group={self.activation_group}, hadamard_order={self.hadamard_order}"
        return f"{sizes}, {steps}, plane={self.plane}"


def select_plane(model: nn.Module, plane: str) -> None:
    """Let every nested layer of a model read as the draft or as the target from now on.

    Nothing is loaded or copied. Raises ValueError for another name.
    """
    if plane not in PLANES:
        raise ValueError(f"plane: expected {' or '.join(PLANES)}, found {plane!r}")
    for module in model.modules():
        if isinstance(module, NestedLinear):
            module.plane = plane
