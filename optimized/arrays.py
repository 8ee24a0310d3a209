"""NumPy arrays as torch tensors and back, without a copy.

The dtypes that NumPy lacks are those of ml_dtypes; in memory they are the same as torch's.
"""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

FLOAT_DTYPES: dict[str, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
"""dtypes of inputs, outputs and reconstructed weights, under the names of the manifests."""

SCALE_ZERO_DTYPES: dict[str, torch.dtype] = {
    **FLOAT_DTYPES,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
"""dtypes of dashq scales and zero points."""

_NUMPY: dict[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.int32: np.dtype(np.int32),
}
_TORCH = {there: here for here, there in _NUMPY.items()}


def to_tensor(array: Array) -> Tensor:
    """Return a CPU tensor of the array's dtype and shape that shares its memory.

    A read-only array is fine, as long as nobody writes to the tensor; an array that is not
    C-contiguous is copied. Raises TypeError for what is no array or has a dtype that no operation
    takes.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a NumPy array, found {type(array).__name__}")
    dtype = _TORCH.get(array.dtype)
    if dtype is None:
        names = ", ".join(str(known) for known in _TORCH)
        raise TypeError(f"expected an array of dtype {names}, found {array.dtype}")
    array = np.asarray(array, order="C")
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype, device="cpu")
    # Not torch.from_numpy: it warns of read-only arrays. The buffer keeps the array alive.
    buffer: Any = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    buffer.array = array
    return torch.frombuffer(buffer, dtype=dtype).view(array.shape)


def to_array(tensor: Tensor) -> Array:
    """Return a NumPy array with the tensor's dtype, shape and, of a CPU tensor, memory.

    Raises TypeError for a dtype that no operation returns.
    """
    dtype = _NUMPY.get(tensor.dtype)
    if dtype is None:
        names = ", ".join(str(known) for known in _NUMPY)
        raise TypeError(f"expected a tensor of dtype {names}, found {tensor.dtype}")
    flat = tensor.detach().cpu().contiguous().view(-1)
    array: Array = flat.view(torch.uint8).numpy().view(dtype).reshape(tensor.shape)
    return array
