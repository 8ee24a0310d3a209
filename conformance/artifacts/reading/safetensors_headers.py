"""The header of one safetensors file: read, and checked before anything trusts it.

Hostile input comes first: sizes are checked before memory is claimed, arithmetic is exact, and no
byte of the data section is read. `check_header` works on bytes alone, wherever they come from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nibblespec.conformance.artifacts.capped import capped
from nibblespec.conformance.artifacts.findings import (
    Finding,
    Problem,
    Rule,
    apply_rules,
    finding,
)
from nibblespec.conformance.artifacts.json_findings import as_problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.folder import Start, read_start
from nibblespec.conformance.artifacts.reading.tensor_entries import (
    DTYPE_BITS,
    ENTRY_RULES,
    MAX_NAME,
    TensorEntry,
    bytes_text,
    entry_problem,
    read_entry,
)
from nibblespec.spec import json_strict
from nibblespec.spec.json_strict import pointer

PREFIX_BYTES = 8
MAX_HEADER_BYTES = 100_000_000

_STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"version ", "this is a Git LFS pointer: fetch the file itself (git lfs pull)"),
    (b"<", "this looks like a web page: download the file again"),
    (b"PK\x03\x04", "this is a zip archive or a PyTorch pickle, renamed"),
    (b"\x80", "this looks like a Python pickle, renamed"),
    (b"GGUF", "this is a GGUF file, renamed"),
)


_LOSES_KEYS = ("JSON-DUPLICATE-KEY", "JSON-SURROGATES")
"""Problems after which some of the tensors may not be in what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header of one file says."""

    file: str
    size: int
    """Bytes of the whole file."""
    data_start: int
    """Where the data section begins: 8 + n."""
    tensors: Mapping[str, TensorEntry]
    """The tensors whose entries are sound."""
    broken: frozenset[str]
    """Names of the tensors whose entries are malformed or contradict themselves."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HeaderReport:
    """The findings on one file, and its header where it could be read."""

    header: Header | None
    findings: list[Finding]


def header_length(prefix: bytes, size: int, file: str) -> int | Finding:
    """Return n from the first 8 bytes of a file of `size` bytes, or what makes it unusable.

    Implements ST-FILE-PREFIX, ST-HEADER-LIMIT and ST-HEADER-END.
    """
    if size < PREFIX_BYTES:
        return finding(
            "ST-FILE-PREFIX",
            Problem(
                message="the file is too short to hold the length of its header",
                expected=f"at least {PREFIX_BYTES} bytes",
                found=bytes_text(size),
                hint="the file was never written, or its download broke off",
            ),
            file,
        )
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        hints = (hint for start, hint in _STRANGERS if prefix.startswith(start))
        return finding(
            "ST-HEADER-LIMIT",
            Problem(
                message="the header is longer than any reader accepts",
                expected=f"at most {bytes_text(MAX_HEADER_BYTES)}",
                found=bytes_text(length),
                hint=next(hints, "this is no safetensors file"),
            ),
            file,
        )
    if PREFIX_BYTES + length > size:
        return finding(
            "ST-HEADER-END",
            Problem(
                message="the file ends inside its header",
                expected=f"at least {bytes_text(PREFIX_BYTES + length)}",
                found=bytes_text(size),
                hint="the file is cut off: write or download it again",
            ),
            file,
        )
    return length


def check_header(raw: bytes, size: int, file: str) -> HeaderReport:
    """Check the n bytes of the header of a file of `size` bytes.

    Implements ST-HEADER-START, ST-METADATA, the ST-TENSOR-* and ST-DATA-* statements of one file,
    and the JSON-* statements on the header's text.
    """
    if raw[:1] != b"{":
        problem = Problem(
            message="the header does not begin with '{'",
            expected="'{' (0x7B)",
            found=f"0x{raw[0]:02X}" if raw else "a header of length 0",
            hint="this is no safetensors file",
        )
        return HeaderReport(None, [finding("ST-HEADER-START", problem, file)])
    document = json_strict.parse(raw)
    findings = [
        finding(problem.requirement, as_problem(problem, where="in the header: "), file)
        for problem in document.problems
    ]
    if not isinstance(document.value, dict):
        return HeaderReport(None, findings)
    header = _header(document.value, PREFIX_BYTES + len(raw), size, file)
    unsound: set[str] = set()
    findings.extend(capped(_content_findings(document.value, header, unsound)))
    lost = any(problem.requirement in _LOSES_KEYS for problem in document.problems)
    reversed_spans = any(entry.begin > entry.end for entry in header.tensors.values())
    if not (lost or header.broken or reversed_spans):
        findings.extend(capped(apply_rules(LAYOUT_RULES, header, file)))
    return HeaderReport(_without(header, unsound), findings)


def header_extent(there: tuple[bytes, ...], size: int) -> int:
    """Say how far to read a file: its first 8 bytes, and the header if they make sense."""
    if not there:
        return min(size, PREFIX_BYTES)
    length = header_length(there[0], size, "")
    return length if len(there) == 1 and isinstance(length, int) else 0


def check_start(start: Start) -> HeaderReport:
    """Check the start of a file that was read as far as `header_extent` says.

    Implements ST-FILE-REGULAR, and what `header_length` and `check_header` do.
    """
    if start.irregular:
        problem = Problem(
            message="a name that ends in .safetensors is no regular file",
            expected="a regular file, or a link to one",
            found=start.irregular,
        )
        return HeaderReport(None, [finding("ST-FILE-REGULAR", problem, start.file)])
    prefix, raw, *_ = *start.pieces, b"", b""
    length = header_length(prefix, start.size, start.file)
    if isinstance(length, Finding):
        return HeaderReport(None, [length])
    return check_header(raw, start.size, start.file)


def read_header(path: Path, file: str) -> HeaderReport:
    """Read and check the header of a file, named `file` in findings.

    Raises OSError where the file cannot be read, or changes meanwhile.
    """
    return check_start(read_start(path, file, header_extent))


def _header(value: Mapping[str, object], data_start: int, size: int, file: str) -> Header:
    """Take what is well formed from a parsed header."""
    entries = {
        name: read_entry(name, entry) if len(name) <= MAX_NAME else None
        for name, entry in value.items()
        if name != _METADATA
    }
    metadata = value.get(_METADATA)
    pairs = metadata.items() if isinstance(metadata, dict) else ()
    return Header(
        file=file,
        size=size,
        data_start=data_start,
        tensors={name: entry for name, entry in entries.items() if entry is not None},
        broken=frozenset(name for name, entry in entries.items() if entry is None),
        metadata={key: text for key, text in pairs if isinstance(text, str)},
    )


_METADATA = "__metadata__"


def _without(header: Header, unsound: set[str]) -> Header:
    """Move tensors that cannot be what their entries say to the broken ones."""
    if not unsound:
        return header
    sound = {name: entry for name, entry in header.tensors.items() if name not in unsound}
    return replace(header, tensors=sound, broken=header.broken | unsound)


def _content_findings(
    value: Mapping[str, object], header: Header, unsound: set[str]
) -> Iterator[Finding]:
    """Judge the parts of a header one by one; add the tensors that fail to `unsound`."""
    for problem in _metadata_problems(value):
        yield finding("ST-METADATA", problem, header.file)
    for name in sorted(header.broken):
        if len(name) > MAX_NAME:
            yield finding("ST-TENSOR-NAME", _name_problem(name), header.file)
        else:
            yield finding("ST-TENSOR-ENTRY", entry_problem(name, value[name]), header.file)
    for entry in header.tensors.values():
        for found in apply_rules(ENTRY_RULES, entry, header.file):
            unsound.add(entry.name)
            yield found


def _name_problem(name: str) -> Problem:
    return Problem(
        message="the name of a tensor is too long",
        tensor=f"{name[:60]}…",
        expected=f"at most {MAX_NAME:,} characters",
        found=f"{len(name):,} characters",
    )


def _metadata_problems(value: Mapping[str, object]) -> Iterator[Problem]:
    if _METADATA not in value:
        return
    metadata = value[_METADATA]
    if not isinstance(metadata, dict):
        yield Problem(
            message="the metadata is no object",
            pointer=pointer(_METADATA),
            expected="an object whose values are strings",
            found=show(metadata),
        )
        return
    wrong = [key for key, text in metadata.items() if not isinstance(text, str)]
    if wrong:
        yield Problem(
            message="the metadata has values that are no strings",
            pointer=pointer(_METADATA, wrong[0]) if len(wrong[0]) <= MAX_NAME else "",
            expected="strings",
            found=show(metadata[wrong[0]]) + (f" and {len(wrong) - 1} more" if wrong[1:] else ""),
        )


def _in_order(header: Header) -> list[TensorEntry]:
    """Return the tensors by where they lie."""
    return sorted(header.tensors.values(), key=lambda entry: (entry.begin, entry.end))


def _overlap(header: Header) -> Iterator[Problem]:
    ahead: TensorEntry | None = None
    for entry in _in_order(header):
        if ahead is not None and entry.begin < ahead.end:
            yield Problem(
                message="the bytes of a tensor begin inside those of another",
                pointer=pointer(entry.name, "data_offsets"),
                tensor=entry.name,
                expected=f"{ahead.end} or more, where {ahead.name} ends",
                found=str(entry.begin),
            )
        if ahead is None or entry.end >= ahead.end:
            ahead = entry


def _hole(header: Header) -> Iterator[Problem]:
    covered = 0
    for entry in _in_order(header):
        if entry.begin > covered:
            yield Problem(
                message="bytes of the data section belong to no tensor",
                pointer=pointer(entry.name, "data_offsets"),
                tensor=entry.name,
                expected=f"this tensor to begin at {covered}",
                found=f"{bytes_text(entry.begin - covered)} before it, at {entry.begin}",
            )
        covered = max(covered, entry.end)


def _end(header: Header) -> Iterator[Problem]:
    end = header.data_start + max((entry.end for entry in header.tensors.values()), default=0)
    if header.size < end:
        yield Problem(
            message="the file is cut off: its last tensors are not all there",
            expected=bytes_text(end),
            found=bytes_text(header.size),
            hint="write or download the file again",
        )
    if header.size > end:
        yield Problem(
            message="bytes follow the last tensor",
            expected=bytes_text(end),
            found=bytes_text(header.size),
            hint="write the file again from its tensors",
        )


def _alignment(header: Header) -> Iterator[Problem]:
    astray = [
        entry
        for entry in header.tensors.values()
        if (header.data_start + entry.begin) % max(1, DTYPE_BITS.get(entry.dtype, 8) // 8)
    ]
    if astray:
        yield Problem(
            message="tensors are not aligned to their elements: readers have to copy them",
            pointer=pointer(astray[0].name, "data_offsets"),
            tensor=astray[0].name,
            expected="multiples of the element size",
            found=f"{len(astray):,} of {len(header.tensors):,} tensors that are not",
            hint="pad the header with spaces to a multiple of 8 bytes, larger elements first",
        )


LAYOUT_RULES: Mapping[str, Rule[Header]] = {
    "ST-DATA-OVERLAP": _overlap,
    "ST-DATA-HOLE": _hole,
    "ST-DATA-END": _end,
    "ST-TENSOR-ALIGNMENT": _alignment,
}
"""What the tensors of one file have to satisfy together, once all their offsets are known."""
