"""What every kernel call goes through: checks of its arguments, then the launch itself.

Checks raise TypeError (wrong kind of thing, wrong dtype) or ValueError (wrong device, shape,
stride or value) before anything is launched. Messages name the argument, what was expected and
what was found.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from nibblespec.optimized.kernels import DEVICE, INTERPRETED

Shape = tuple[int | str, ...]
"""A shape: an int is that size, a name is any size. `("M", 64)` is a matrix 64 wide."""

FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
"""dtypes of inputs, outputs and reconstructed weights."""

MAX_GRID = 2**31 - 1
"""Programs that one launch can have along the first axis of the grid."""


class Kernel(Protocol):
    """A function under @triton.jit, compiled or interpreted."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:  # noqa: ANN401  # Triton has no types
        """Return the launcher for a grid."""


def check_tensor(
    value: object, name: str, dtypes: torch.dtype | Collection[torch.dtype], shape: Shape
) -> None:
    """Require a contiguous tensor of one of `dtypes`, of this shape, on the kernels' device."""
    allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else tuple(dtypes)
    wanted = f"{' or '.join(map(dtype_name, allowed))} [{', '.join(map(str, shape))}]"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor {wanted}, found {type(value).__name__}")
    found = f"{dtype_name(value.dtype)} {list(value.shape)}"
    if value.dtype not in allowed:
        raise TypeError(f"{name}: expected {wanted}, found {found}")
    fits = len(value.shape) == len(shape) and all(
        isinstance(want, str) or want == have for want, have in zip(shape, value.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name}: expected {wanted}, found {found}")
    if value.device.type != DEVICE:
        why = ": without a CUDA device kernels are interpreted" if INTERPRETED else ""
        raise ValueError(f"{name}: expected a tensor on {DEVICE}{why}, found one on {value.device}")
    if not value.is_contiguous():
        raise ValueError(
            f"{name}: expected a contiguous tensor, found strides {list(value.stride())} "
            f"for shape {list(value.shape)}; call .contiguous()"
        )


def check_same_device(**tensors: torch.Tensor | None) -> None:
    """Require that all tensors that are given lie on one device."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    first_name, first = next(iter(given.items()))
    for name, tensor in given.items():
        if tensor.device != first.device:
            raise ValueError(
                f"{name}: expected a tensor on {first.device}, where {first_name} is, "
                f"found one on {tensor.device}"
            )


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name as manifests write it: `float16`, not `torch.float16`."""
    return str(dtype).removeprefix("torch.")


def launch(
    kernel: Kernel,
    programs: int,
    *arguments: torch.Tensor | int | float | None,
    exact: bool,
    num_warps: int = 4,
    num_stages: int = 2,
    **constants: object,
) -> None:
    """Run `programs` programs of a kernel on the current stream of its first tensor's device.

    exact: no product may be fused with the sum that takes it, since that changes bits. constants:
    the kernel's constexpr parameters. No programs: nothing to do. Raises ValueError where a grid
    would be too large.
    """
    if programs == 0:
        return
    if programs > MAX_GRID:
        raise ValueError(f"grid: expected at most {MAX_GRID} programs, found {programs}")
    first = next(argument for argument in arguments if isinstance(argument, torch.Tensor))
    with _on(first.device):
        kernel[(programs,)](
            *arguments,
            num_warps=num_warps,
            num_stages=num_stages,
            enable_fp_fusion=not exact,
            **constants,
        )


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one, whichever it is, while a kernel is launched."""
    if INTERPRETED:
        # The interpreter computes in NumPy, where overflow would warn.
        return np.errstate(all="ignore")
    if device.type != "cuda":
        raise ValueError(f"launch: expected tensors on cuda, found them on {device}")
    return torch.cuda.device(device) if device.index is not None else nullcontext()
