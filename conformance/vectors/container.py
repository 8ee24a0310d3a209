"""The vectors' tensors as safetensors files, with every dtype that the operations use."""

import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.conformance.examples.files import Tensor, safetensors_bytes
from nibblespec.spec.operations import Array

DTYPES: Mapping[str, np.dtype[Any]] = {
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
}
"""NumPy dtypes by the names of safetensors headers."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(array: Array) -> str:
    """Return the name of an array's dtype in a safetensors header."""
    return _NAMES[array.dtype]


def encode(tensors: Mapping[str, Array]) -> bytes:
    """Write a safetensors file, the same bytes for the same tensors in any order."""
    stored = {
        name: Tensor(dtype_name(array), array.shape, as_little_endian(array))
        for name, array in tensors.items()
    }
    return safetensors_bytes(stored, {})


def decode(file: bytes) -> dict[str, Array]:
    """Read a file that `encode` wrote; the arrays are read-only views of its bytes."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    data = memoryview(file)[8 + length :]
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = from_little_endian(data[begin:end], entry["dtype"], tuple(entry["shape"]))
    return found


def as_little_endian(array: Array) -> bytes:
    """Return the elements of an array as a safetensors file stores them."""
    unsigned = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return unsigned.astype(f"<u{array.dtype.itemsize}").tobytes()


def from_little_endian(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of a dtype by its name in a header; `data` has its bytes, and no more."""
    wanted = DTYPES[dtype]
    unsigned = np.frombuffer(data, f"<u{wanted.itemsize}").astype(f"u{wanted.itemsize}")
    return unsigned.view(wanted).reshape(shape)
