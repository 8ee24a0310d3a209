"""The model that is converted: config.json and where each tensor lies in the safetensors files.

Tensors are read by rows with plain reads, not through a memory map: mapped pages would count as
this process's memory until the system takes them back.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.spec.json_strict import MAX_BYTES
from torch import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

MOST_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library (ST-HEADER-LIMIT)."""

_TABLE = "rotary_emb.inv_freq"

FLOATS: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
}
"""dtypes of weights, as headers name them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    """Its first byte, counted from the start of the file."""
    size: int
    """Bytes."""

    def __str__(self) -> str:
        return f"{self.file.name}: {self.name}"


@dataclass(frozen=True, slots=True)
class Source:
    """A model's folder."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Stored]


def open_source(folder: Path) -> Source:
    """Read config.json and the headers of all tensors.

    Raises ConversionError where a file is missing, damaged or not what it should be.
    """
    if not folder.is_dir():
        raise ConversionError(f"{folder}: expected the folder of a Hugging Face model, found none")
    config = _json_object(folder / "config.json")
    if config.get("quantization_config") is not None:
        raise ConversionError(
            f"{folder}: config.json has quantization_config: the model is quantized already; "
            "convert the model that it was made from"
        )
    tensors: dict[str, Stored] = {}
    for file, names in _files(folder).items():
        header = {stored.name: stored for stored in _header(file)}
        missing = sorted((names or set()) - header.keys())
        if missing:
            raise ConversionError(f"{file}: the index names {missing[0]}, which the file lacks")
        if twice := sorted(header.keys() & tensors.keys()):
            other = tensors[twice[0]].file.name
            raise ConversionError(f"{file}: {twice[0]}: is in {other} too; expected it once")
        # A table of the rotary embedding, which old files hold: config.json says it all.
        tensors |= {key: one for key, one in header.items() if not key.endswith(_TABLE)}
    if not tensors:
        raise ConversionError(f"{folder}: expected tensors, found none")
    return Source(folder, config, tensors)


def _files(folder: Path) -> dict[Path, set[str] | None]:
    """Return the files of tensors, with the names that the index expects in each."""
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).is_file():
            raise ConversionError(
                f"{folder}: expected {SINGLE} or {INDEX}, found neither; a model in another form "
                "becomes one with transformers: from_pretrained, then save_pretrained"
            )
        return {folder / SINGLE: None}
    weight_map = _json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in weight_map.values()
    ):
        raise ConversionError(f"{index}: expected an object weight_map of file names")
    files: dict[Path, set[str] | None] = {}
    for name, file in sorted(weight_map.items(), key=lambda item: (item[1], item[0])):
        names = files.setdefault(folder / file, set())
        assert names is not None
        names.add(name)
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise ConversionError(
            f"{index}: names {', '.join(absent[:3])}, not in the folder; is the download complete?"
        )
    return files


def read_whole(path: Path, most_bytes: int, expected: str) -> bytes:
    """Read a file. Raises ConversionError for a larger one, and where there is no regular file."""
    try:
        if not path.is_file():  # opening a pipe would wait for ever, a device may never end
            found = "is no file" if path.exists() else "is not there"
            raise ConversionError(f"{path}: {found}; expected {expected}")
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except OSError as error:
        raise ConversionError(f"{path}: {error.strerror}; expected {expected}") from error
    if len(data) > most_bytes:
        raise ConversionError(
            f"{path}: expected {expected}, of at most {most_bytes:,} bytes, found a larger file"
        )
    return data


def _json_object(path: Path) -> dict[str, Any]:
    data = read_whole(path, MAX_BYTES, f"the model's {path.name}")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path}: expected a JSON document: {error}") from error
    if not isinstance(value, dict):
        raise ConversionError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _header(file: Path) -> list[Stored]:
    """Return the tensors of a safetensors file, in the order of its header."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
            raise ConversionError(
                f"{file}: expected a safetensors file, found another or half of one"
            )
        text = stream.read(length)
    try:
        header = json.loads(text)
        found = [
            _stored(file, name, entry, 8 + length)
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConversionError(
            f"{file}: expected the header of a safetensors file: {error}"
        ) from None
    beyond = [stored.name for stored in found if stored.begin + stored.size > size]
    if beyond:
        raise ConversionError(
            f"{file}: is cut off: {beyond[0]} would end past its {size:,} bytes; download it again"
        )
    return found


def _stored(file: Path, name: str, entry: Mapping[str, Any], data: int) -> Stored:
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(extent) for extent in entry["shape"])
    dtype = str(entry["dtype"])
    expected = math.prod(shape) * FLOATS[dtype].itemsize if dtype in FLOATS else end - begin
    if begin < 0 or end - begin != expected or expected < 0 or any(n < 0 for n in shape):
        raise ValueError(f"{name}: data_offsets do not fit dtype and shape")
    return Stored(name, dtype, shape, file, data + begin, end - begin)


def read_bytes(stored: Stored, begin: int, count: int) -> bytearray:
    """Read bytes of a tensor, from its byte `begin` on. Raises ConversionError at a file's end."""
    data = bytearray(count)
    with stored.file.open("rb", buffering=0) as stream:
        stream.seek(stored.begin + begin)
        view, done = memoryview(data), 0
        while done < count:
            step = os.readv(stream.fileno(), [view[done:]])
            if step == 0:
                raise ConversionError(f"{stored}: the file became shorter while it was read")
            done += step
    return data


def read_rows(stored: Stored, first: int, last: int) -> Tensor:
    """Read rows first … last − 1 of a tensor of FLOATS, seen as a matrix [rows, last extent]."""
    dtype = FLOATS[stored.dtype]
    columns = stored.shape[-1]
    if first == last or columns == 0:
        return torch.empty(last - first, columns, dtype=dtype)
    row = columns * dtype.itemsize
    data = read_bytes(stored, first * row, (last - first) * row)
    return torch.frombuffer(data, dtype=dtype).view(last - first, columns)


def require(source: Source, name: str, shape: tuple[int, ...]) -> Stored:
    """Return the tensor of a name. Raises ConversionError where it lacks, or is another one."""
    if name not in source.tensors:
        raise ConversionError(
            f"{source.folder}: expected the tensor {name}, found none of that name; "
            "is a shard missing, or is this another architecture?"
        )
    stored = source.tensors[name]
    if stored.shape != shape:
        raise ConversionError(
            f"{stored}: expected shape {list(shape)}, as config.json implies, "
            f"found {list(stored.shape)}"
        )
    require_float(stored)
    return stored


def require_finite(stored: Stored, values: Tensor) -> None:
    """Raise ConversionError unless all these elements of a tensor are finite."""
    if not bool(values.isfinite().all()):
        raise ConversionError(f"{stored}: expected finite elements, found an infinity or a NaN")


def require_float(stored: Stored) -> None:
    """Raise ConversionError unless the tensor has a dtype of unquantized weights."""
    if stored.dtype not in FLOATS:
        raise ConversionError(
            f"{stored}: expected {', '.join(FLOATS)}, found {stored.dtype}; "
            "is the model quantized already?"
        )
