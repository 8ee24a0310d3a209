"""The tensors of a checkpoint's files: where each is, and reading one at a time."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from nibblespec.spec.json_strict import MAX_BYTES, parse
from nibblespec.spec.tensors import TensorSpec
from safetensors import SafetensorError, safe_open
from torch import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

DTYPES: Mapping[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""dtypes by their names in safetensors headers."""


class LoadError(ValueError):
    """A checkpoint that cannot be loaded; the message names the file and the tensor."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a file. `begin` counts bytes from the start of the file."""

    file: Path
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def stored_tensors(files: Iterable[Path]) -> dict[str, Stored]:
    """Return all tensors of safetensors files by name, from their headers.

    Raises LoadError for a file that is missing, cut off or no safetensors file, and for a name that
    is in two files.
    """
    found: dict[str, Stored] = {}
    for file in files:
        for one in _header(file):
            if one.name in found:
                raise LoadError(f"{one}: is in {found[one.name].file.name} too; expected it once")
            found[one.name] = one
    return found


def _header(file: Path) -> list[Stored]:
    if not file.is_file():  # opening a pipe would wait for ever
        what = "is no file" if file.exists() else "is missing"
        raise LoadError(f"{file}: {what}; expected a file of tensors")
    try:
        with safe_open(file, framework="pt"):
            pass  # it checks sizes, offsets and names
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
    except (OSError, SafetensorError, ValueError) as error:
        raise LoadError(f"{file}: is no complete safetensors file: {error}") from error
    found = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin = 8 + size + entry["data_offsets"][0]
        found.append(stored_tensor(file, name, entry["dtype"], tuple(entry["shape"]), begin))
    return found


def stored_tensor(file: Path, name: str, dtype: str, shape: tuple[int, ...], begin: int) -> Stored:
    """Return a tensor of a file by its header. Raises LoadError for a dtype that torch lacks."""
    if dtype not in DTYPES:
        raise LoadError(f"{file}: {name}: expected dtype {', '.join(DTYPES)}, found {dtype}")
    return Stored(file, name, DTYPES[dtype], shape, begin)


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a Hugging Face folder: those of the index, or the only one.

    Raises LoadError where there are others besides, which nothing would read.
    """
    present = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX
    if not index.exists():
        if [file.name for file in present] != [SINGLE]:
            names = ", ".join(file.name for file in present) or "none"
            raise LoadError(f"{folder}: expected {SINGLE} alone or {INDEX}, found {names}")
        return present
    named = [folder / name for name in dict.fromkeys(_weight_map(index).values())]
    for file in present:
        if file not in named:
            raise LoadError(f"{file}: is not in {INDEX}; remove it, or make the index anew")
    return named


def check_index(folder: Path, stored: Mapping[str, Stored]) -> None:
    """Require that the index, where there is one, says of every tensor which file holds it."""
    index = folder / INDEX
    if not index.exists():
        return
    listed = _weight_map(index)
    for name in listed.keys() - stored.keys():
        raise LoadError(f"{index}: {name}: expected it in {listed[name]}, which lacks it")
    for name, one in stored.items():
        if listed.get(name) != one.file.name:
            found = listed.get(name, "no file")
            raise LoadError(f"{one}: expected the index to name this file, found {found}")


def _weight_map(index: Path) -> dict[str, str]:
    if not index.is_file():
        raise LoadError(f"{index}: is no file; expected an index of tensors")
    try:
        with index.open("rb") as stream:
            value = parse(stream.read(MAX_BYTES + 1)).value
    except OSError as error:
        raise LoadError(f"{index}: {error.strerror}") from error
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise LoadError(f"{index}: expected an object weight_map of file names")
    for name in names.values():
        if Path(name).name != name:
            raise LoadError(f"{index}: expected names of files in this folder, found {name!r}")
    return names


def check_specs(specs: Iterable[TensorSpec], stored: Mapping[str, Stored], folder: Path) -> None:
    """Require the tensors that a manifest implies, with their dtypes, shapes and files."""
    for spec in specs:
        one = stored.get(spec.name)
        if one is None:
            if spec.required:
                where = folder / spec.file if spec.file else folder
                raise LoadError(f"{where}: {spec.name}: is missing, although the manifest has it")
            continue
        if spec.file and one.file.name != spec.file:
            raise LoadError(f"{one}: expected it in {spec.file}")
        if one.dtype != DTYPES[spec.dtype]:
            raise LoadError(f"{one}: expected dtype {spec.dtype}, found {_name(one.dtype)}")
        fits = len(one.shape) == len(spec.shape) and all(
            size is None or size == found for size, found in zip(spec.shape, one.shape, strict=True)
        )
        if not fits:
            raise LoadError(f"{one}: expected shape {list(spec.shape)}, found {list(one.shape)}")


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def read_tensor(one: Stored, device: torch.device) -> Tensor:
    """Read a tensor into memory of its own; on the meta device, nothing is read.

    Raises LoadError where the file has changed.
    """
    if device.type == "meta":
        return torch.empty(one.shape, dtype=one.dtype, device=device)
    tensor = torch.empty(one.shape, dtype=one.dtype, device="cpu")
    size = prod(one.shape) * one.dtype.itemsize
    if size == 0:
        return tensor.to(device)
    try:
        # Not through a memory map: a page that is mapped and copied counts twice.
        with one.file.open("rb") as stream:
            stream.seek(one.begin)
            read = stream.readinto(tensor.view(-1).view(torch.uint8).numpy().data)
    except OSError as error:
        raise LoadError(f"{one}: {error.strerror}") from error
    if read != size:
        raise LoadError(f"{one}: expected {size} bytes, found {read}; the file has been cut off")
    return tensor.to(device)
