"""The header of one safetensors file: literal bytes for each fault, and sound neighbours."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nibblespec.conformance.artifacts.capped import MAX_FINDINGS
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.reading import safetensors_headers
from nibblespec.conformance.artifacts.reading.safetensors_headers import (
    MAX_HEADER_BYTES,
    Header,
    check_header,
    header_length,
    read_header,
)
from nibblespec.conformance.artifacts.reading.tensor_entries import DTYPE_BITS
from safetensors import SafetensorError, deserialize

ONE = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}


def file_of(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Write a file; a header that is bytes stands as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def one(data: bytes = b"data", **changes: object) -> bytes:
    """Write a file of one scalar tensor `a`, changed."""
    return file_of({"a": {**ONE, **changes}}, data)


def two(first: list[int], second: list[int], size: int) -> bytes:
    """Write a file of two U8 tensors at these offsets."""
    entries = {
        name: {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
        for name, (begin, end) in {"a": first, "b": second}.items()
    }
    return file_of(entries, bytes(size))


def check(data: bytes) -> tuple[Header | None, list[Finding]]:
    """Check a file of these bytes."""
    length = header_length(data[:8], len(data), "x.safetensors")
    if isinstance(length, Finding):
        return None, [length]
    report = check_header(data[8 : 8 + length], len(data), "x.safetensors")
    return report.header, report.findings


def tensor_names(data: bytes) -> set[str]:
    """Return the names of the tensors that this reader finds in a sound file."""
    header, _ = check(data)
    assert header is not None
    return set(header.tensors)


def broken(data: bytes) -> set[str]:
    """Return the requirements that a file breaks, those aside that say what is merely unusual."""
    unusual = {"ST-TENSOR-ALIGNMENT", "JSON-INTEGER-EXACT"}
    return {found.requirement for found in check(data)[1]} - unusual


FAULTS = {
    "no bytes": (b"", "ST-FILE-PREFIX"),
    "seven bytes": (bytes(7), "ST-FILE-PREFIX"),
    "a length beyond the limit": (file_of({}, length=MAX_HEADER_BYTES + 1), "ST-HEADER-LIMIT"),
    "a length of 2^64 - 1": (b"\xff" * 8, "ST-HEADER-LIMIT"),
    "a web page": (b"<!DOCTYPE html>", "ST-HEADER-LIMIT"),
    "a length beyond the file": (file_of({}, length=3), "ST-HEADER-END"),
    "the limit itself, in a short file": (file_of({}, length=MAX_HEADER_BYTES), "ST-HEADER-END"),
    "a header of length 0": (file_of(b""), "ST-HEADER-START"),
    "a header that begins with a space": (file_of(b" {}"), "ST-HEADER-START"),
    "a header that is an array": (file_of([]), "ST-HEADER-START"),
    "a header that is cut off": (file_of(b'{"a":'), "JSON-SYNTAX"),
    "padding with zero bytes": (file_of(b"{}\0\0"), "JSON-SYNTAX"),
    "a header in UTF-16": (file_of(b"{\0}\0"), "JSON-ENCODING"),
    "a byte that is no UTF-8": (file_of(b'{"\xff":1}'), "JSON-ENCODING"),
    "a tensor twice": (
        file_of(b'{"a":%b,"a":%b}' % ((json.dumps(ONE).encode(),) * 2), b"data"),
        "JSON-DUPLICATE-KEY",
    ),
    "metadata null": (file_of({"__metadata__": None}), "ST-METADATA"),
    "metadata with a number": (file_of({"__metadata__": {"version": 1}}), "ST-METADATA"),
    "metadata with an object": (file_of({"__metadata__": {"a": {}}}), "ST-METADATA"),
    "an entry that is null": (file_of({"a": None}), "ST-TENSOR-ENTRY"),
    "an entry that is an array": (file_of({"a": ["F32", [], [0, 4]]}, b"data"), "ST-TENSOR-ENTRY"),
    "an entry without dtype": (
        file_of({"a": {"shape": [], "data_offsets": [0, 4]}}, b"data"),
        "ST-TENSOR-ENTRY",
    ),
    "a dtype that is a number": (one(dtype=32), "ST-TENSOR-ENTRY"),
    "a shape that is a number": (one(shape=1), "ST-TENSOR-ENTRY"),
    "three offsets": (one(data_offsets=[0, 4, 4]), "ST-TENSOR-ENTRY"),
    "one offset": (one(data_offsets=[4]), "ST-TENSOR-ENTRY"),
    "a negative offset": (one(data_offsets=[-4, 0]), "ST-TENSOR-ENTRY"),
    "a float offset": (one(data_offsets=[0, 4.0]), "ST-TENSOR-ENTRY"),
    "an offset true": (one(dtype="U8", data_offsets=[True, 2]), "ST-TENSOR-ENTRY"),
    "an offset that is a string": (one(data_offsets=["0", 4]), "ST-TENSOR-ENTRY"),
    "a negative extent": (one(shape=[-1]), "ST-TENSOR-ENTRY"),
    "a float extent": (one(shape=[1.0]), "ST-TENSOR-ENTRY"),
    "an extent true": (one(shape=[True]), "ST-TENSOR-ENTRY"),
    "a dtype in small letters": (one(dtype="f32"), "ST-TENSOR-DTYPE"),
    "a dtype of the future": (one(dtype="I4"), "ST-TENSOR-DTYPE"),
    "65 axes": (one(shape=[1] * 65), "ST-TENSOR-RANK"),
    "a name of 2,049 characters": (file_of({"x" * 2049: ONE}, b"data"), "ST-TENSOR-NAME"),
    "a shape that overflows": (one(shape=[2**31, 2**31]), "ST-TENSOR-EXTENT"),
    "an empty shape that overflows": (
        one(b"", shape=[0, 2**31, 2**31], data_offsets=[0, 0]),
        "ST-TENSOR-EXTENT",
    ),
    "offsets the wrong way round": (one(data_offsets=[4, 0]), "ST-TENSOR-SPAN"),
    "a span that is too short": (one(shape=[2]), "ST-TENSOR-SPAN"),
    "a span that is too long": (one(dtype="F16"), "ST-TENSOR-SPAN"),
    "an empty tensor with bytes": (one(shape=[0]), "ST-TENSOR-SPAN"),
    "half a byte": (one(dtype="F4", shape=[7]), "ST-TENSOR-SPAN"),
    "two tensors at one place": (two([0, 4], [0, 4], 4), "ST-DATA-OVERLAP"),
    "one byte of overlap": (two([0, 4], [3, 6], 6), "ST-DATA-OVERLAP"),
    "an empty tensor inside another": (two([0, 4], [2, 2], 4), "ST-DATA-OVERLAP"),
    "a tensor inside another": (two([0, 6], [2, 4], 6), "ST-DATA-OVERLAP"),
    "a byte between tensors": (two([0, 4], [5, 6], 6), "ST-DATA-HOLE"),
    "a byte before the first tensor": (two([1, 4], [4, 6], 6), "ST-DATA-HOLE"),
    "a byte too few": (two([0, 4], [4, 6], 5), "ST-DATA-END"),
    "a byte too many": (two([0, 4], [4, 6], 7), "ST-DATA-END"),
    "data of no tensor": (file_of({}, b"data"), "ST-DATA-END"),
    "a tensor beyond what a float64 holds": (
        one(dtype="U8", shape=[2**59], data_offsets=[0, 2**59]),
        "ST-DATA-END",
    ),
    "a tensor far beyond the file": (
        one(shape=[2**40], data_offsets=[0, 2**42]),
        "ST-DATA-END",
    ),
}

SOUND = {
    "no tensors": file_of({}),
    "no tensors, and metadata": file_of({"__metadata__": {"format": "pt"}}),
    "a scalar": one(),
    "a header that is padded with spaces": file_of(b"{}      "),
    "an empty tensor": one(b"", shape=[3, 0], data_offsets=[0, 0]),
    "an empty tensor after another": two([0, 4], [4, 4], 4),
    "an empty tensor before another": two([0, 0], [0, 4], 4),
    "64 axes": one(shape=[1] * 64),
    "four bits in pairs": one(dtype="F4", shape=[8]),
    "six bits in fours": one(b"dat", dtype="F6_E2M3", shape=[4], data_offsets=[0, 3]),
    "tensors out of order": two([4, 6], [0, 4], 6),
    "a key that nobody knows": one(note="hello"),
    "a name that is empty": file_of({"": ONE}, b"data"),
    "a name of 2,048 characters": file_of({"x" * 2048: ONE}, b"data"),
    "escapes in a name": file_of(rb'{"\u0061\ud83d\ude00":%b}' % json.dumps(ONE).encode(), b"data"),
    "the largest shape": one(b"", shape=[2**29 - 1, 2**29, 0], data_offsets=[0, 0]),
}


@pytest.mark.parametrize(("data", "requirement"), FAULTS.values(), ids=FAULTS)
def test_a_fault_breaks_its_requirement_and_no_other(data: bytes, requirement: str) -> None:
    assert broken(data) == {requirement}


@pytest.mark.parametrize("data", SOUND.values(), ids=SOUND)
def test_a_sound_file_breaks_nothing(data: bytes) -> None:
    assert broken(data) == set()


@pytest.mark.parametrize("data", SOUND.values(), ids=SOUND)
def test_the_library_reads_what_is_sound(data: bytes) -> None:
    assert {name for name, _ in deserialize(data)} == tensor_names(data)


STRICTER = (
    {"a name of 2,049 characters"}
    | {"a tensor twice", "a header that begins with a space", "65 axes", "metadata null"}
    | {
        "an entry that is an array",
        "an empty shape that overflows",
    }
)
"""Faults that the library lets pass; the text says why it does not."""


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - STRICTER))
def test_the_library_refuses_what_is_not(name: str) -> None:
    with pytest.raises(SafetensorError):
        deserialize(FAULTS[name][0])


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_every_dtype_has_the_size_that_the_library_gives_it(dtype: str) -> None:
    size = DTYPE_BITS[dtype]  # 8 elements
    data = one(bytes(size), dtype=dtype, shape=[8], data_offsets=[0, size])
    deserialize(data)
    assert broken(data) == set()


@pytest.mark.parametrize(
    ("padding", "count"), [(b"", 0), (b" ", 1), (b"  ", 1), (b"    ", 0), (b"        ", 0)]
)
def test_tensors_off_their_alignment_are_an_information(padding: bytes, count: int) -> None:
    text = json.dumps({"a": ONE}).encode()
    text += b" " * (-len(text) % 8) + padding
    _, findings = check(file_of(text, b"data"))
    assert [(found.requirement, found.severity) for found in findings] == [
        ("ST-TENSOR-ALIGNMENT", "info")
    ] * count


def test_a_finding_names_the_place_what_was_expected_and_what_was_found() -> None:
    _, [found] = check(one(shape=[2, 3]))
    assert (found.file, found.tensor, found.pointer) == ("x.safetensors", "a", "/a/data_offsets")
    assert found.expected == "24 bytes for F32 [2, 3]"
    assert found.found == "[0, 4]: 4 bytes"


def test_a_malformed_entry_is_located_to_the_number() -> None:
    _, [found] = check(one(shape=[1, -1]))
    assert (found.pointer, found.found) == ("/a/shape/1", "-1")


def test_a_stranger_is_recognized() -> None:
    _, [found] = check(b"version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in found.hint


def test_the_header_is_returned_without_the_tensors_that_cannot_be() -> None:
    entries = {"a": ONE, "b": {**ONE, "dtype": "I4"}, "c": None}
    header, _ = check(file_of({"__metadata__": {"format": "pt"}, **entries}, b"data"))
    assert header is not None
    assert list(header.tensors) == ["a"]
    assert header.broken == {"b", "c"}
    assert header.metadata == {"format": "pt"}


def test_a_million_faults_are_counted_and_not_listed() -> None:
    _, findings = check(file_of({f"tensor {i}": None for i in range(20_000)}))
    assert len(findings) == MAX_FINDINGS + 1
    assert findings[-1].message.startswith("and 19,000 more")


@pytest.mark.parametrize("shape", [[10**300], [10**300, 0], [0] * 64, [2**62] * 64])
def test_absurd_numbers_end_in_findings(shape: list[int]) -> None:
    assert all(len(found.found) < 1000 for found in check(one(shape=shape))[1])


# Files on disk


def test_a_file_is_read_up_to_the_end_of_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(one())
    os.truncate(path, 2**40)  # sparse: reading all of it would never end
    report = read_header(path, "x.safetensors")
    assert [found.requirement for found in report.findings] == ["ST-DATA-END"]


def kinds(report: safetensors_headers.HeaderReport) -> list[tuple[str, str]]:
    return [(found.requirement, found.found) for found in report.findings]


def test_a_pipe_is_reported_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.safetensors")
    report = read_header(tmp_path / "x.safetensors", "x")
    assert kinds(report) == [("ST-FILE-REGULAR", "a pipe")]


def test_a_folder_is_reported(tmp_path: Path) -> None:
    assert kinds(read_header(tmp_path, "x")) == [("ST-FILE-REGULAR", "a folder")]


def test_a_device_is_reported_and_not_opened() -> None:
    assert kinds(read_header(Path("/dev/zero"), "x")) == [("ST-FILE-REGULAR", "a device")]


@pytest.mark.parametrize(
    ("target", "found"),
    [("nowhere", "a link that leads nowhere"), ("x", "a link that leads to itself")],
)
def test_a_link_without_a_file_is_reported(tmp_path: Path, target: str, found: str) -> None:
    (tmp_path / "x").symlink_to(target)
    assert kinds(read_header(tmp_path / "x", "x")) == [("ST-FILE-REGULAR", found)]


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(file_of(b"{}      "))
    (tmp_path / "x").symlink_to("blob")
    assert kinds(read_header(tmp_path / "x", "x")) == []


def test_a_file_that_changes_meanwhile_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(one())
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        result = real(descriptor)
        path.write_bytes(one() + b"more")
        return result

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(OSError, match="changed while it was read"):
        read_header(path, "x")


def test_a_pipe_that_takes_the_place_of_a_file_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "x")
    regular = os.stat_result((stat.S_IFREG, *[0] * 9))
    monkeypatch.setattr(Path, "stat", lambda _: regular)
    with pytest.raises(OSError, match="changed while it was read"):
        read_header(tmp_path / "x", "x")


# Any bytes


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_mutated_file_ends_in_findings_and_the_library_refuses_no_more(
    data: st.DataObject,
) -> None:
    """No exception on any bytes, and what this reader finds sound, the library reads."""
    original = bytearray(data.draw(st.sampled_from(list(SOUND.values()))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(original) - 1))
        original[at] = data.draw(st.integers(0, 255))
    mutant = bytes(original)
    if not broken(mutant):
        assert {name for name, _ in deserialize(mutant)} == tensor_names(mutant)
