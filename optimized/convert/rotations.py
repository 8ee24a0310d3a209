"""Orthogonal transforms that are folded into weights: randomized Hadamard matrices.

R·x flips random signs of x and sends it through the Hadamard transform of the specification. It is
seeded, and gives the same bits on every machine, which a random matrix from a factorisation does
not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.portable.hadamard import hadamard
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import (
    ORDERS,
    hadamard_matrix,
    order_for,
)
from torch import Tensor

Rotation = Callable[[Tensor], Tensor]
"""Rotates the last axis of a float32 tensor."""

BLOCK = 1 << 20
"""Elements that are transformed at once: what fits a cache takes little memory too."""


@dataclass(frozen=True, slots=True)
class Rotations:
    """The rotations of a model; identities where they are not wanted."""

    residual: Rotation
    """R1, of the hidden states."""
    value: Callable[[int], Rotation]
    """R2, of the values of a head, by decoder layer."""
    down: Rotation
    """R4, of the input of down_proj: the transform that readers apply."""
    order: int | None
    """Order of R4's matrix; None without R4."""


def rotations(
    hidden: int, head: int, inner: int, *, seed: int, rotate: bool, online: bool
) -> Rotations:
    """Return the rotations of a model by its widths: R1 and R2 if `rotate`, R4 if `online`.

    Raises ConversionError for a width for which there is no Hadamard matrix.
    """
    return Rotations(
        residual=_randomized(hidden, (seed, 1), "hidden_size") if rotate else _identity,
        value=lambda layer: (
            _randomized(head, (seed, 2, layer), "head_dim") if rotate else _identity
        ),
        down=_transform(inner, "intermediate_size") if online else _identity,
        order=_order(inner, "intermediate_size") if online else None,
    )


def _identity(x: Tensor) -> Tensor:
    return x


def _randomized(width: int, seed: tuple[int, ...], key: str) -> Rotation:
    transform = _transform(width, key)
    draws = np.random.default_rng(seed).integers(0, 2, width)
    signs = torch.from_numpy(1 - 2 * draws).to(torch.float32)
    return lambda x: transform(x * signs)


def _transform(width: int, key: str) -> Rotation:
    order = _order(width, key)
    matrix = torch.from_numpy(hadamard_matrix(order).copy()) if order > 1 else None

    def transform(x: Tensor) -> Tensor:
        flat = x.reshape(-1, width)
        rows = max(1, BLOCK // width)
        parts = [hadamard(part, matrix, torch.float32) for part in torch.split(flat, rows)]
        return torch.cat(parts).view(x.shape)

    return transform


def _order(width: int, key: str) -> int:
    order = order_for(width)
    if order is None:
        known = ", ".join(map(str, ORDERS))
        raise ConversionError(
            f"config.json: {key}: expected a power of two times one of {known}, found {width}: "
            "no Hadamard matrix is known here; convert without rotation"
            f"{' and without the online transform' if key == 'intermediate_size' else ''}"
        )
    return order
