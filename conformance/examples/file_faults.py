"""Faults of a safetensors file that either format can have."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nibblespec.conformance.examples.faults import (
    Fault,
    change_bytes,
    change_header,
    contents,
)
from nibblespec.conformance.examples.files import (
    EmptyFolder,
    Files,
    Link,
    split_header,
    with_header,
)


def file_faults(file: str, plain: str) -> Mapping[str, Fault]:
    """Return the faults of `file`; `plain` is a tensor in it that no manifest describes.

    Its dtype is BF16, and it is the last one in the data section.
    """
    header = partial(change_header, file)
    raw = partial(change_bytes, file)
    return {
        "empty-file": Fault(
            summary="a tensor file of zero bytes",
            requirements=("ST-FILE-PREFIX",),
            damage=raw(lambda _: b""),
        ),
        "web-page": Fault(
            summary="an error page that was saved as a tensor file",
            requirements=("ST-HEADER-LIMIT",),
            damage=raw(lambda _: b"<!DOCTYPE html><title>404</title>"),
        ),
        "cut-header": Fault(
            summary="a tensor file that ends inside its header",
            requirements=("ST-HEADER-END",),
            damage=raw(lambda data: data[:100]),
        ),
        "no-header": Fault(
            summary="a tensor file whose header has the length 0",
            requirements=("ST-HEADER-START",),
            damage=raw(lambda _: bytes(8)),
        ),
        "header-syntax": Fault(
            summary="a header that is no JSON",
            requirements=("JSON-SYNTAX",),
            damage=raw(lambda data: data.replace(b'"dtype":', b'"dtype" ', 1)),
        ),
        "header-duplicate": Fault(
            summary="a header with the same tensor twice",
            requirements=("JSON-DUPLICATE-KEY",),
            damage=raw(_repeat_first),
        ),
        "metadata-number": Fault(
            summary="metadata with a number for a value",
            requirements=("ST-METADATA",),
            damage=header(lambda found: found["__metadata__"].update(version=1)),
        ),
        "entry-float": Fault(
            summary="an offset that is written as 0.0",
            requirements=("ST-TENSOR-ENTRY",),
            damage=header(lambda found: found[plain]["data_offsets"].__setitem__(0, 0.0)),
        ),
        "long-name": Fault(
            summary="a tensor with a name of 3,000 characters",
            requirements=("ST-TENSOR-NAME",),
            damage=header(_add_long_name),
        ),
        "unknown-dtype": Fault(
            summary="a dtype that safetensors does not have",
            requirements=("ST-TENSOR-DTYPE",),
            damage=header(lambda found: found[plain].update(dtype="I4")),
        ),
        "rank": Fault(
            summary="a tensor of 66 axes",
            requirements=("ST-TENSOR-RANK",),
            damage=header(lambda found: found[plain]["shape"].extend([1] * 65)),
        ),
        "huge-shape": Fault(
            summary="a shape that overflows 64 bits",
            requirements=("ST-TENSOR-EXTENT",),
            damage=header(lambda found: found[plain].update(shape=[2**40, 2**40])),
        ),
        "span": Fault(
            summary="a tensor with twice the bytes that its shape needs",
            requirements=("ST-TENSOR-SPAN",),
            damage=header(lambda found: found[plain].update(dtype="U8")),
        ),
        "overlap": Fault(
            summary="a tensor that begins inside another",
            requirements=("ST-DATA-OVERLAP",),
            damage=partial(_move_last, file=file, by=-8),
        ),
        "hole": Fault(
            summary="bytes that belong to no tensor",
            requirements=("ST-DATA-HOLE",),
            damage=partial(_move_last, file=file, by=8),
        ),
        "truncated": Fault(
            summary="a tensor file that was cut off",
            requirements=("ST-DATA-END",),
            damage=raw(lambda data: data[:-10]),
        ),
        "trailing": Fault(
            summary="bytes after the last tensor",
            requirements=("ST-DATA-END",),
            damage=raw(lambda data: data + b"more"),
        ),
        "misaligned": Fault(
            summary="a header that is not padded, so that tensors are not aligned",
            requirements=("ST-TENSOR-ALIGNMENT",),
            damage=raw(_pad_by_one),
        ),
        "lost-link": Fault(
            summary="a tensor file that is a link to nowhere",
            requirements=("ST-FILE-REGULAR",),
            damage=lambda files: files.update({file: Link(f"../../blobs/{'0' * 64}")}),
        ),
        "folder-for-file": Fault(
            summary="a folder with the name of a tensor file",
            requirements=("ST-FILE-REGULAR",),
            damage=lambda files: files.update({file: EmptyFolder()}),
        ),
        "pickle": Fault(
            summary="a pickle beside the tensor files",
            requirements=("ST-FILE-PICKLE",),
            damage=lambda files: files.update({"pytorch_model.bin": b"\x80\x04N."}),
        ),
    }


def _add_long_name(header: dict[str, Any]) -> None:
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    header["x" * 3000] = {"dtype": "U8", "shape": [0], "data_offsets": [end, end]}


def _repeat_first(data: bytes) -> bytes:
    """Append the header's last entry to it once more."""
    header, rest = split_header(data)
    name = list(header)[-1]
    text = with_header(header, b"")[8:].rstrip()
    again = with_header({name: header[name]}, b"")[8:].rstrip()
    text = text[:-1] + b"," + again[1:]
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + rest


def _pad_by_one(data: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    return (length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :]


def _move_last(files: Files, file: str, by: int) -> None:
    """Move the last tensor of a file, and the end of the file with it."""
    header, data = split_header(contents(files, file))
    entry: dict[str, Any] = max(
        (entry for name, entry in header.items() if name != "__metadata__"),
        key=lambda entry: entry["data_offsets"][1],
    )
    begin, end = entry["data_offsets"]
    entry["data_offsets"] = [begin + by, end + by]
    files[file] = with_header(header, data[: begin + min(by, 0)] + bytes(max(by, 0)) + data[begin:])
