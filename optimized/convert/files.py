"""Safetensors files whose tensors are written in any order, piece by piece."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.source import SINGLE
from torch import Tensor

BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Bits of an element, by the names of headers."""

NAMES: Mapping[torch.dtype, str] = {
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
}
"""Names of the dtypes that are written."""


SHARDS = "model-[0-9]*-of-[0-9]*.safetensors"
"""Pattern of the names of shards."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor that will be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * BITS[self.dtype] // 8


class TensorFiles:
    """Files of a folder that are being filled. Every byte has to be written, once."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._left: dict[str, int] = {}

    def add(self, descriptor: int, planned: Planned, begin: int) -> None:
        """Make room for a tensor in an open file."""
        self._places[planned.name] = descriptor, begin
        self._left[planned.name] = planned.size

    def write_bytes(self, name: str, begin: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes of a tensor, from its byte `begin` on."""
        descriptor, start = self._places[name]
        self._left[name] -= len(data)
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], start + begin + done)

    def write(self, name: str, first: int, values: Tensor) -> None:
        """Write elements of a tensor, in row-major order, from its element `first` on."""
        flat = values.detach().contiguous().view(-1)
        if flat.numel():
            data = flat.view(torch.uint8).numpy().data
            self.write_bytes(name, first * values.element_size(), data)

    def check(self) -> None:
        """Raise AssertionError unless every tensor was written, to its last byte."""
        wrong = [name for name, left in self._left.items() if left]
        if wrong:
            raise AssertionError(f"{wrong[0]}: {self._left[wrong[0]]:,} bytes were not written")


@contextmanager
def tensor_files(
    folder: Path, plan: Mapping[str, Sequence[Planned]], metadata: Mapping[str, Mapping[str, str]]
) -> Iterator[TensorFiles]:
    """Open the files of a plan (file name → tensors) to be filled; sync them at the end.

    Raises ConversionError where there is no room for them.
    """
    space = os.statvfs(folder)
    free, size = (
        space.f_bavail * space.f_frsize,
        sum(t.size for all_ in plan.values() for t in all_),
    )
    if size > free:
        raise ConversionError(
            f"{folder.absolute().parent}: expected {size:,} bytes of space, found {free:,}"
        )
    files = TensorFiles()
    with ExitStack() as stack:
        descriptors = []
        for name, tensors in plan.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
            _begin(files, descriptor, tensors, metadata[name])
        yield files
        files.check()
        for descriptor in descriptors:
            os.fsync(descriptor)


def _begin(
    files: TensorFiles, descriptor: int, tensors: Sequence[Planned], metadata: Mapping[str, str]
) -> None:
    """Write the header: wide elements first, so that all are aligned."""
    ordered = sorted(tensors, key=lambda tensor: -BITS[tensor.dtype])
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for tensor in ordered:
        begin, end = end, end + tensor.size
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.pwrite(descriptor, len(text).to_bytes(8, "little") + text, 0)
    os.truncate(descriptor, 8 + len(text) + end)
    for tensor in ordered:
        files.add(descriptor, tensor, 8 + len(text) + header[tensor.name]["data_offsets"][0])


def shards(tensors: Sequence[Planned], most_bytes: int) -> dict[str, list[Planned]]:
    """Distribute tensors over files of at most `most_bytes`, or of one tensor."""
    groups: list[list[Planned]] = [[]]
    filled = 0
    for tensor in tensors:
        if groups[-1] and filled + tensor.size > most_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += tensor.size
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    return {
        f"model-{number:05}-of-{len(groups):05}.safetensors": group
        for number, group in enumerate(groups, start=1)
    }


def index_of(plan: Mapping[str, Sequence[Planned]]) -> dict[str, Any]:
    """Return the index of shards."""
    return {
        "metadata": {"total_size": sum(t.size for tensors in plan.values() for t in tensors)},
        "weight_map": {t.name: file for file, tensors in plan.items() for t in tensors},
    }


def write_json(folder: Path, name: str, value: object) -> None:
    """Write a JSON document as producers do: indented, UTF-8."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate is no UTF-8; how Python escapes it, JSON does too.
    write_file(folder / name, text.encode(errors="backslashreplace"))


def write_file(path: Path, data: bytes) -> None:
    """Write a file and sync it."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
