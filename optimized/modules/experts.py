"""The experts of a mixture, packed one by one."""

from collections.abc import Callable
from typing import Any

import torch
from nibblespec.optimized.modules.dashq_linear import DashQLinear
from torch import Tensor, nn

LISTS = ("gate_up_proj_list", "up_proj_list", "down_proj_list")
"""Names under which a manifest lists the experts of a module."""


class PackedExperts(nn.Module):
    """Experts, each with packed layers; it replaces the fused experts of transformers.

    Layers have the checkpoint's names: `gate_up_proj_list.i` (2·F rows: gates, then ups) or, for
    experts without a gate, `up_proj_list.i` (F rows), and `down_proj_list.i`.
    """

    down_proj_list: nn.ModuleList

    def __init__(
        self,
        up: list[DashQLinear],
        down: list[DashQLinear],
        activation: Callable[[Tensor], Tensor],
        *,
        gated: bool,
    ) -> None:
        """Take the layers; `activation` maps what the first gives, [T, 2·F or F], to [T, F]."""
        super().__init__()
        self.activation = activation
        self.first = "gate_up_proj_list" if gated else "up_proj_list"
        self.add_module(self.first, nn.ModuleList(up))
        self.down_proj_list = nn.ModuleList(down)

    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Return [T, H], the weighted sum of the chosen experts' outputs for each token.

        hidden: [T, H] in linear_dtype; chosen: int64 [T, k], numbers of experts; weights: [T, k].
        Numbers past the last expert mean none, as transformers has it.
        """
        ups: Any = getattr(self, self.first)
        result = torch.zeros_like(hidden)
        for number in torch.unique(chosen).tolist():
            if number >= len(self.down_proj_list):
                continue
            token, slot = torch.where(chosen == number)
            inner = self.activation(ups[number](hidden[token]))
            y = self.down_proj_list[number](inner) * weights[token, slot, None]
            result.index_add_(0, token, y.to(result.dtype))
        return result
