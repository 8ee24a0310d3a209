"""Packed buffers keep their dtypes: a scale that is rounded to another one is another weight."""

from collections.abc import Callable

from torch import Tensor


def moving(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return of what `.to()`, `.half()` and the like do to tensors only the move to a device."""

    def move(tensor: Tensor) -> Tensor:
        changed = change(tensor)
        return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

    return move
