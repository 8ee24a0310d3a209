"""Sums with a fixed order, and parts of a size that memory holds."""

import torch
from torch import Tensor

PART_ELEMENTS = 1 << 25
"""Elements of the largest temporary tensor that a part of a call makes: 128 MB in float32."""


def tree_sum(terms: Tensor) -> Tensor:
    """Return the sum over the first axis: neighbours first, then neighbouring sums, and so on.

    Every step is elementwise, so that an element of the sum does not depend on the other axes, and
    zeros at the end change nothing.
    """
    while terms.shape[0] > 1:
        pairs = terms[0:-1:2] + terms[1::2]
        terms = torch.cat([pairs, terms[-1:]]) if terms.shape[0] % 2 else pairs
    return terms[0]


def rows_of_a_part(elements_of_a_row: int) -> int:
    """Return how many rows to compute at a time, each of which takes that many elements."""
    return max(1, PART_ELEMENTS // max(1, elements_of_a_row))


def constant(value: float, like: Tensor) -> Tensor:
    """Return a float32 number on the device of a tensor.

    A quotient of a tensor and a Python number is computed as a product with the reciprocal on
    some devices; with a tensor it is a quotient.
    """
    return torch.full((), value, dtype=torch.float32, device=like.device)
