"""One entry of a safetensors header: a tensor's dtype, shape and bytes, and the rules on them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.json_strict import pointer

MAX_NAME = 2048
MAX_RANK = 64
MAX_TENSOR_BITS = 2**63

DTYPE_BITS: Mapping[str, int] = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}
"""Bits of one element, by the name of its dtype (ST-TENSOR-DTYPE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a header. `begin` and `end` are bytes of the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_entry(name: str, value: object) -> TensorEntry | None:
    """Read one entry of a parsed header, None where it is malformed (ST-TENSOR-ENTRY)."""
    if not isinstance(value, dict):
        return None
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        return None
    if len(offsets) != 2 or not all(_natural(number) for number in (*shape, *offsets)):
        return None
    return TensorEntry(name=name, dtype=dtype, shape=tuple(shape), begin=offsets[0], end=offsets[1])


def _natural(value: object) -> bool:
    """Say whether a JSON value is an integer of at least 0; true, 4.0 and "4" are not."""
    return type(value) is int and value >= 0


def entry_problem(name: str, value: object) -> Problem:
    """Say what is wrong with an entry that read_entry refused."""
    path, expected, found = _first_fault(value)
    return Problem(
        message="the entry of a tensor is malformed",
        pointer=pointer(name, *path),
        tensor=name,
        expected=expected,
        found=found,
    )


def _first_fault(value: object) -> tuple[tuple[str | int, ...], str, str]:
    """Return path, expected and found of the first thing that makes an entry malformed."""
    if not isinstance(value, dict):
        return (), "an object with dtype, shape and data_offsets", show(value)
    for key, kind in (("dtype", str), ("shape", list), ("data_offsets", list)):
        if not isinstance(value.get(key), kind):
            found = show(value[key]) if key in value else "nothing"
            return (key,), "a string" if kind is str else "an array", found
    if len(value["data_offsets"]) != 2:
        return ("data_offsets",), "an array of 2", show(value["data_offsets"])
    integer = "an integer of at least 0, without fraction and exponent"
    return next(
        ((key, index), integer, show(number))
        for key in ("shape", "data_offsets")
        for index, number in enumerate(value[key])
        if not _natural(number)
    )


def _dtype(entry: TensorEntry) -> Iterator[Problem]:
    if entry.dtype not in DTYPE_BITS:
        yield Problem(
            message="the dtype is unknown",
            pointer=pointer(entry.name, "dtype"),
            tensor=entry.name,
            expected=", ".join(DTYPE_BITS),
            found=entry.dtype[:40],
        )


def _rank(entry: TensorEntry) -> Iterator[Problem]:
    if len(entry.shape) > MAX_RANK:
        yield Problem(
            message="a tensor has more axes than any reader can hold",
            pointer=pointer(entry.name, "shape"),
            tensor=entry.name,
            expected=f"at most {MAX_RANK} extents",
            found=f"{len(entry.shape):,} extents",
        )


def _extent(entry: TensorEntry) -> Iterator[Problem]:
    if len(entry.shape) > MAX_RANK or entry.dtype not in DTYPE_BITS:
        return
    if prod(size or 1 for size in entry.shape) * DTYPE_BITS[entry.dtype] >= MAX_TENSOR_BITS:
        yield Problem(
            message="the shape is too large for 64-bit arithmetic",
            pointer=pointer(entry.name, "shape"),
            tensor=entry.name,
            expected="extents whose product, times the bits per element, is below 2^63",
            found=shape_text(entry.shape),
        )


def _span(entry: TensorEntry) -> Iterator[Problem]:
    if len(entry.shape) > MAX_RANK or entry.dtype not in DTYPE_BITS:
        return
    bits = prod(entry.shape) * DTYPE_BITS[entry.dtype]
    if bits < MAX_TENSOR_BITS and bits != 8 * (entry.end - entry.begin):
        needed = f"{bits // 8:,}" if bits % 8 == 0 else f"{bits / 8:,}"
        yield Problem(
            message="the byte span of a tensor is not what its shape and dtype need",
            pointer=pointer(entry.name, "data_offsets"),
            tensor=entry.name,
            expected=f"{needed} bytes for {entry.dtype} {shape_text(entry.shape)}",
            found=f"[{entry.begin}, {entry.end}]: {bytes_text(entry.end - entry.begin)}",
        )


ENTRY_RULES: Mapping[str, Rule[TensorEntry]] = {
    "ST-TENSOR-DTYPE": _dtype,
    "ST-TENSOR-RANK": _rank,
    "ST-TENSOR-EXTENT": _extent,
    "ST-TENSOR-SPAN": _span,
}
"""What one well-formed entry has to satisfy by itself."""


def shape_fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Say whether a shape is the expected one, in which None is any size."""
    return len(shape) == len(expected) and all(
        size in (given, None) for given, size in zip(shape, expected, strict=True)
    )


def entry_text(entry: TensorEntry) -> str:
    """Write a tensor's dtype and shape for a message."""
    return f"{entry.dtype[:40]} {shape_text(entry.shape)}"


def shape_text(shape: tuple[int | None, ...]) -> str:
    """Write a shape for a message, shortened where it is absurdly long; None is any size."""
    sizes = ["any" if size is None else str(size)[:24] for size in shape[:8]]
    return f"[{', '.join(sizes)}{', …' if len(shape) > 8 else ''}]"


def bytes_text(count: int) -> str:
    """Write a number of bytes for a message."""
    return "1 byte" if count == 1 else f"{count:,} bytes"
