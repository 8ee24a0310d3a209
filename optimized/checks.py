"""Checks of tensors, before any work: dtype, device, shape, strides, sizes that must fit.

TypeError for the wrong kind of thing, ValueError for a wrong device, shape, stride or value.
Messages name the argument, what was expected, what was found and, where it helps, what to do.
They look at no element: they cost nothing, also on a GPU and under torch.compile.
"""

from collections.abc import Collection

import torch
from nibblespec.optimized.arrays import FLOAT_DTYPES, SCALE_ZERO_DTYPES
from nibblespec.optimized.layout import DashqLayout, group_count, word_count
from torch import Tensor

FLOATS = tuple(FLOAT_DTYPES.values())
SCALE_ZEROS = tuple(SCALE_ZERO_DTYPES.values())
PLANES = ("draft", "target")

Shape = tuple[int | str, ...]
"""An int is that size, a name any size; "..." as the first stands for any number of axes."""


def check_tensor(
    value: object,
    name: str,
    dtypes: torch.dtype | Collection[torch.dtype],
    shape: Shape,
    device: torch.device | None = None,
    *,
    contiguous: bool = False,
) -> None:
    """Require a tensor of one of the dtypes with the shape, on the device if one is given."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a tensor, found {type(value).__name__}")
    allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else tuple(dtypes)
    if value.dtype not in allowed:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        found = str(value.dtype).removeprefix("torch.")
        raise TypeError(f"{name}: expected dtype {wanted}, found {found}")
    if value.layout is not torch.strided or value.is_nested:
        raise TypeError(f"{name}: expected a dense tensor, found one of layout {value.layout}")
    if not _fits(value, shape):
        wanted = ", ".join(str(size) for size in shape)
        raise ValueError(f"{name}: expected shape [{wanted}], found {list(value.shape)}")
    if device is not None and value.device != device:
        raise ValueError(
            f"{name}: expected a tensor on {device}, where the first tensor is, "
            f"found one on {value.device}"
        )
    if contiguous and not value.is_contiguous():
        raise ValueError(
            f"{name}: expected a contiguous tensor, found strides {list(value.stride())}; "
            f"call .contiguous() once, when it is loaded"
        )


def _fits(value: Tensor, shape: Shape) -> bool:
    leading = shape[:1] == ("...",)
    sizes = shape[1:] if leading else shape
    if value.ndim < len(sizes) or (not leading and value.ndim > len(sizes)):
        return False
    tail = value.shape[value.ndim - len(sizes) :]
    return all(
        isinstance(size, str) or size == found for size, found in zip(sizes, tail, strict=True)
    )


def check_integer(value: object, name: str, low: int, high: int | None = None) -> None:
    """Require an integer in low … high, both included (None: no upper end)."""
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        raise TypeError(f"{name}: expected an integer, found {value!r}")
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"{low} … {high}"
        raise ValueError(f"{name}: expected {wanted}, found {value}")


def check_divides(divisor: int, value: int, name: str, of: str) -> None:
    """Require that `divisor`, the argument `name`, divides `value`, which `of` describes."""
    if value % divisor:
        raise ValueError(f"{name}: expected a divisor of {of} = {value}, found {divisor}")


def check_scale(value: object, name: str) -> None:
    """Require a number that is positive, finite and normal in float32."""
    if isinstance(value, bool) or not isinstance(value, int | float | torch.SymFloat):
        raise TypeError(f"{name}: expected a number, found {value!r}")
    if not torch.finfo(torch.float32).smallest_normal <= value <= torch.finfo(torch.float32).max:
        raise ValueError(
            f"{name}: expected a positive finite normal float32 number, found {value!r}"
        )


def check_dtype(dtype: object) -> None:
    """Require an output dtype."""
    if dtype not in FLOATS:
        raise ValueError(
            f"dtype: expected torch.float16, torch.bfloat16 or torch.float32, found {dtype!r}"
        )


def check_even(value: int, name: str) -> None:
    """Require an even, positive width: two codes share a byte."""
    if value < 1 or value % 2:
        raise ValueError(f"{name}: expected an even number of columns, found {value}")


def check_layout(layout: DashqLayout) -> None:
    """Require sizes of a module that fit each other."""
    if not isinstance(layout, DashqLayout):
        raise TypeError(f"layout: expected a DashqLayout, found {type(layout).__name__}")
    check_integer(layout.nbits, "nbits", 1, 8)
    for name in ("group_size", "rows", "columns"):
        check_integer(getattr(layout, name), name, 1)
    check_integer(layout.stored_columns, "stored_columns", layout.columns)
    check_divides(layout.group_size, layout.stored_columns, "group_size", "stored_columns")


def check_dashq_weight(words: Tensor, scale: Tensor, zero: Tensor, layout: DashqLayout) -> None:
    """Require the tensors of a module."""
    check_layout(layout)
    count = word_count(layout.rows * layout.stored_columns, layout.nbits)
    check_tensor(words, "words", torch.int32, (count,), contiguous=True)
    parameters = (group_count(layout), 1)
    check_tensor(scale, "scale", SCALE_ZEROS, parameters, words.device, contiguous=True)
    check_tensor(zero, "zero", scale.dtype, parameters, words.device, contiguous=True)


def check_planes(
    hi: Tensor, lo: Tensor | None, plane: str, shape: Shape, name: str = ""
) -> Tensor | None:
    """Require planes uint8 of one shape, and return lo, None for the draft."""
    if plane not in PLANES:
        raise ValueError(f"plane: expected draft or target, found {plane!r}")
    check_tensor(hi, f"{name}hi", torch.uint8, shape, contiguous=True)
    if hi.shape[-1] == 0:
        raise ValueError(f"{name}hi: expected at least one column, found {list(hi.shape)}")
    if plane == "draft":
        return None
    check_tensor(lo, f"{name}lo", torch.uint8, tuple(hi.shape), hi.device, contiguous=True)
    return lo


def check_nested_weight(hi: Tensor, lo: Tensor | None, scale: Tensor, plane: str) -> Tensor | None:
    """Require the tensors of a nested layer, and return lo, None for the draft."""
    lo = check_planes(hi, lo, plane, ("N", "K/2"))
    rows, columns = hi.shape[0], 2 * hi.shape[1]
    check_tensor(scale, "scale", torch.float16, (rows, "G"), hi.device, contiguous=True)
    check_integer(scale.shape[1], "groups of scale", 1)
    check_divides(scale.shape[1], columns, "groups of scale", "K")
    return lo


def check_hadamard(x: Tensor, had_k: Tensor | None) -> None:
    """Require a last axis of K·2^k for a matrix of order K, or 2^k without one."""
    check_tensor(x, "x", FLOATS, ("...", "n"))
    order = 1
    if had_k is not None:
        check_tensor(had_k, "had_k", torch.float32, ("K", "K"), x.device)
        order = had_k.shape[0]
        check_integer(order, "order of had_k", 1)
        check_tensor(had_k, "had_k", torch.float32, (order, order), contiguous=True)
    columns = x.shape[-1] // order
    if columns < 1 or columns * order != x.shape[-1] or columns & (columns - 1):
        raise ValueError(f"x: expected a last axis of {order}·2^k elements, found {x.shape[-1]}")
