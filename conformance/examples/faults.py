"""What a fault is, and how to damage the files of an example on purpose."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nibblespec.conformance.examples.files import (
    Example,
    Files,
    array,
    json_bytes,
    split_header,
    tensor,
    with_header,
)
from nibblespec.spec.operations import Array

Edit = Callable[[Example], None]
"""Changes a checkpoint before it is written: index and checksums follow."""

Damage = Callable[[Files], None]
"""Changes files as they are, behind the back of everything that describes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a checkpoint is not as it should be."""

    summary: str
    requirements: tuple[str, ...]
    """Ids of what it breaks, and of nothing else."""
    edit: Edit | None = None
    damage: Damage | None = None


def contents(files: Files, name: str) -> bytes:
    """Return the bytes of a regular file. Raises TypeError where it is none."""
    data = files[name]
    if not isinstance(data, bytes):
        raise TypeError(f"{name}: expected a regular file, found {data}")
    return data


def change_json(name: str, change: Callable[[dict[str, Any]], None]) -> Damage:
    """Return the damage that changes the JSON document `name`."""

    def damage(files: Files) -> None:
        value = json.loads(contents(files, name))
        change(value)
        files[name] = json_bytes(value)

    return damage


def change_header(name: str, change: Callable[[dict[str, Any]], None]) -> Damage:
    """Return the damage that changes the header of a safetensors file and no data."""

    def damage(files: Files) -> None:
        header, data = split_header(contents(files, name))
        change(header)
        files[name] = with_header(header, data)

    return damage


def change_bytes(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Return the damage that changes a file as bytes."""

    def damage(files: Files) -> None:
        files[name] = change(contents(files, name))

    return damage


def change_document(name: str, change: Callable[[dict[str, Any]], None]) -> Edit:
    """Return the edit that changes a document of the example."""

    def edit(example: Example) -> None:
        change(example.documents[name])

    return edit


def change_values(file: str, name: str, change: Callable[[bytes], bytes]) -> Edit:
    """Return the edit that changes the bytes of a tensor, and not how many there are."""

    def edit(example: Example) -> None:
        found = example.tensors[file][name]
        example.tensors[file][name] = replace(found, data=change(found.data))

    return edit


def replace_values(file: str, name: str, change: Callable[[Array], Array]) -> Edit:
    """Return the edit that changes a tensor as an array, whose dtype and shape stay."""

    def edit(example: Example) -> None:
        found = example.tensors[file][name]
        example.tensors[file][name] = tensor(change(array(found)))

    return edit


def set_value(file: str, name: str, index: int, bits: int) -> Edit:
    """Return the edit that gives the element at a flat index of a tensor other bits."""

    def edit(example: Example) -> None:
        found = example.tensors[file][name]
        size = array(found).itemsize
        data = bytearray(found.data)
        data[index * size : (index + 1) * size] = bits.to_bytes(size, "little")
        example.tensors[file][name] = replace(found, data=bytes(data))

    return edit


def named(faults: Mapping[str, Fault]) -> Mapping[str, Fault]:
    """Return faults by name, in the order of their names."""
    return dict(sorted(faults.items()))
