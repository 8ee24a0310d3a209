"""What stands between packed layers, computed so that a token does not depend on its neighbours.

Libraries choose blocks, and with them the order of a sum, by the shape of a call, and take another
path for the last elements of an array. The same call on the same row gives the same bits, though:
so each row is a call of its own, on a tensor of its own. In calls of more than `ROWS` rows, which
fill a cache and verify no draft, all rows are one call.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

ROWS = 64
"""Rows of the largest call whose rows are independent of each other."""


def by_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of rows, [M, K] → [M, N], to x [..., K], and return [..., N].

    Up to `ROWS` rows, the result of a row has the bits of a call with that row alone.
    """
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] > ROWS:
        y = function(rows)
    else:
        # The copy begins at an address as aligned as that of any other row.
        y = torch.cat([function(row.clone()) for row in torch.split(rows, 1)])
    return y.view(*x.shape[:-1], y.shape[-1])


class RMSNorm(nn.Module):
    """x / √(mean of x² + eps) in float32, rounded to x's dtype, times `weight` [K] (None: ones)."""

    weight: nn.Parameter | None

    def __init__(self, weight: Tensor | None, eps: float) -> None:
        super().__init__()
        self.eps = eps
        parameter = None if weight is None else nn.Parameter(weight, requires_grad=False)
        self.register_parameter("weight", parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return x's dtype [..., K]."""
        return by_rows(self._rows, x)

    def _rows(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        y = scaled.to(x.dtype)
        return y if self.weight is None else self.weight * y


class DenseLinear(nn.Module):
    """x·weightᵀ with a dense weight [N, K] of x's dtype: an output layer that is not nested."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x's dtype [..., N] for x [..., K]."""
        return by_rows(self._rows, x)

    def _rows(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)


class SiLU(nn.Module):
    """x · sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x's dtype and shape."""
        return by_rows(nn.functional.silu, x)


class RotaryEmbedding(nn.Module):
    """The rotary embedding of transformers, position by position."""

    def __init__(self, inner: nn.Module) -> None:
        """Take a module that maps x and position_ids [B, M] to cosines and sines [B, M, D]."""
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, x's dtype [B, M, D]."""
        if position_ids.shape[1] > ROWS:
            cosine, sine = self.inner(x, position_ids=position_ids)
            return cosine, sine
        parts = [self.inner(x, position_ids=one) for one in torch.split(position_ids, 1, dim=1)]
        cosines, sines = zip(*parts, strict=True)
        return torch.cat(cosines, dim=1), torch.cat(sines, dim=1)
