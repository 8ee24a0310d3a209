"""What packed modules have in common: buffers that keep their dtypes, and no backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def moving(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return of what `.to()`, `.half()` and the like do to tensors only the move to a device.

    A scale that is rounded to another dtype is another weight.
    """

    def move(tensor: Tensor) -> Tensor:
        changed = change(tensor)
        return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

    return move


def forward_only(y: Tensor, x: Tensor) -> Tensor:
    """Return y, which was computed from x, so that a backward pass through it raises RuntimeError.

    Operations have no derivatives: without this, x would get no gradient, and only a warning. Under
    a compiler, which asks for derivatives itself, y is left as it is.
    """
    if not (x.requires_grad and torch.is_grad_enabled()) or torch.compiler.is_compiling():
        return y
    result: Tensor = _ForwardOnly.apply(y.detach(), x)  # type: ignore[no-untyped-call]
    return result


class _ForwardOnly(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, y: Tensor, x: Tensor) -> Tensor:  # noqa: ANN401
        del x
        return y.view_as(y)

    @staticmethod
    def backward(_: Any, *__: Tensor) -> Any:  # noqa: ANN401
        raise RuntimeError(
            "backward: expected none, since packed weights are for inference and have no "
            "gradients, found one; call the model under torch.no_grad(), or train the model that "
            "the checkpoint was made from"
        )
