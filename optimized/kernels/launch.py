"""What every kernel call goes through: the launch, with what it requires of tensors.

Dtypes, shapes and sizes are checked before, by `nibblespec.optimized.checked`. What kernels take
for granted on top of that, where tensors are and how they lie in memory, is checked here.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from nibblespec.optimized.kernels import DEVICE, INTERPRETED

if INTERPRETED:
    from nibblespec.optimized.kernels.interpreter import adapted

MAX_GRID = 2**31 - 1
"""Programs that one launch can have along the first axis of the grid."""


class Kernel(Protocol):
    """A function under @triton.jit, compiled or interpreted."""

    @property
    def arg_names(self) -> list[str]:
        """Names of the parameters."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:  # noqa: ANN401  # Triton has no types
        """Return the launcher for a grid."""


def launch(
    kernel: Kernel,
    programs: int,
    *arguments: torch.Tensor | float | None,
    exact: bool,
    num_warps: int = 4,
    num_stages: int = 2,
    **constants: object,
) -> None:
    """Run `programs` programs of a kernel on the current stream of its tensors' device.

    arguments: the kernel's parameters in their order, tensors contiguous, on one device, the first
    of them a tensor. exact: no product may be fused with the sum that takes it, since that changes
    bits. constants: the kernel's constexpr parameters. No programs: nothing to do.

    Raises ValueError, before anything is launched, for a tensor that lies elsewhere or has gaps,
    and for a grid that is too large.
    """
    device = check_tensors(kernel, arguments)
    if programs > MAX_GRID:
        raise ValueError(f"grid: expected at most {MAX_GRID} programs, found {programs}")
    if programs == 0:
        return
    with _on(device):
        kernel[(programs,)](
            *arguments,
            num_warps=num_warps,
            num_stages=num_stages,
            enable_fp_fusion=not exact,
            **constants,
        )


def check_tensors(
    kernel: Kernel, arguments: tuple[torch.Tensor | float | None, ...]
) -> torch.device:
    """Require contiguous tensors on one device of the kernels' kind, and return it."""
    named = dict(zip(kernel.arg_names, arguments, strict=False))
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    device = next(iter(tensors.values())).device
    if device.type != DEVICE:
        why = "kernels are interpreted here" if INTERPRETED else "kernels are compiled here"
        raise ValueError(f"expected tensors on {DEVICE} ({why}), found them on {device}")
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise ValueError(
                f"{name}: expected a tensor on {device}, where the first one is, "
                f"found it on {tensor.device}"
            )
        if not tensor.is_contiguous():
            raise ValueError(
                f"{name}: expected a contiguous tensor, found strides {list(tensor.stride())} "
                f"for shape {list(tensor.shape)}"
            )
    return device


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Make `device`, whatever its index, the current one while a kernel is launched."""
    return _interpreting() if INTERPRETED else torch.cuda.device(device)


@contextmanager
def _interpreting() -> Iterator[None]:
    """Silence NumPy, which the interpreter computes in: that numbers overflow is no news."""
    with adapted(), np.errstate(all="ignore"):
        yield
