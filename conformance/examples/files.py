"""A checkpoint before it is written: documents and tensors, and how they become files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.spec.operations import Array

INDEX = "model.safetensors.index.json"

_DTYPES = {
    np.dtype(np.uint8): "U8",
    np.dtype(np.int32): "I32",
    np.dtype(np.float16): "F16",
    np.dtype(np.float32): "F32",
    np.dtype(ml_dtypes.bfloat16): "BF16",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a safetensors file holds it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class EmptyFolder:
    """A folder where a file should be."""


Files = dict[str, bytes | Link | EmptyFolder]
"""What a folder holds, by name relative to it."""


@dataclass(slots=True)
class Example:
    """The parts of a checkpoint, free to be edited before they become files."""

    format: str
    documents: dict[str, dict[str, Any]]
    """JSON documents by file name: the manifest and config.json."""
    tensors: dict[str, dict[str, Tensor]]
    """Tensors by file and name."""
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    """Safetensors metadata by file."""
    checksums: bool = False
    """Whether there is a checksums.sha256."""


def tensor(array: Array) -> Tensor:
    """Turn an array into a tensor of the dtype of the same name."""
    return Tensor(_DTYPES[array.dtype], array.shape, np.ascontiguousarray(array).tobytes())


def array(item: Tensor) -> Array:
    """Turn a tensor into a read-only array of the dtype of the same name."""
    dtype = next(dtype for dtype, name in _DTYPES.items() if name == item.dtype)
    return np.frombuffer(item.data, dtype).reshape(item.shape)


def render(example: Example) -> Files:
    """Write all parts of a checkpoint, and an index that agrees with them if there are shards."""
    files: Files = {name: json_bytes(value) for name, value in example.documents.items()}
    for name, tensors in example.tensors.items():
        files[name] = safetensors_bytes(tensors, example.metadata.get(name, {"format": "pt"}))
    if any("-of-" in name for name in example.tensors):
        files[INDEX] = json_bytes(index_of(example.tensors))
    return files


def index_of(tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    """Return the index of shards; of a tensor that is in two of them, the last one counts."""
    total = sum(len(tensor.data) for shard in tensors.values() for tensor in shard.values())
    weight_map = {name: file for file, shard in tensors.items() for name in shard}
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}


def checksums_of(files: Files) -> bytes:
    """Return the lines of checksums.sha256 for the regular files among these."""
    contents = sorted((name, data) for name, data in files.items() if isinstance(data, bytes))
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents)
    return "".join(lines).encode()


def json_bytes(value: object) -> bytes:
    """Write a JSON document as producers do: indented, UTF-8."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Write a safetensors file: wide elements first and the header padded, so all are aligned."""
    ordered = sorted(tensors.items(), key=lambda item: (-_element_bytes(item[1]), item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, item in ordered:
        end = begin + len(item.data)
        header[name] = {"dtype": item.dtype, "shape": item.shape, "data_offsets": [begin, end]}
        begin = end
    return with_header(header, b"".join(item.data for _, item in ordered))


def with_header(header: Mapping[str, Any], data: bytes) -> bytes:
    """Put a header, padded to a multiple of 8 bytes, before a data section."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def split_header(file: bytes) -> tuple[dict[str, Any], bytes]:
    """Take a file of `with_header` apart again."""
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8 : 8 + length]), file[8 + length :]


def _element_bytes(item: Tensor) -> int:
    count = int(np.prod(item.shape, dtype=np.int64))
    return len(item.data) // count if count else 1
