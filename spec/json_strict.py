"""Strict reading of JSON documents: RFC 8259, bounded, and nothing that readers disagree on.

A document either reads without doubt or ends in problems, each with the requirement it breaks
and its place. Nothing here raises on bad input.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from json import JSONDecodeError
from math import isinf

from nibblespec.spec.json_faults import (
    MAX_DEPTH,
    clean,
    faults,
    inexact,
    overflows,
)

MAX_BYTES = 2**27
"""Bytes of the largest document that is read; a caller reads MAX_BYTES + 1 from a file."""

MAX_VALUES = 2**21
"""Characters , [ and { outside of strings: with one of them every item and member begins."""

MAX_PROBLEMS = 100
"""Problems of one requirement that are listed one by one; one more says that there are others."""

_CHUNK = 2**20
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONGEST_KEY = 500
_UNREADABLE = frozenset(("JSON-SYNTAX", "JSON-DEPTH"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonProblem:
    """One breach of a JSON-* requirement.

    `pointer` (RFC 6901) leads to the value, or to the innermost one that could be read;
    `line` and `column` count from 1, in characters, and are 0 where there is no place.
    """

    requirement: str
    message: str
    pointer: str = ""
    line: int = 0
    column: int = 0
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What was read. `value` is None where the bytes are no JSON (and for the document null).

    A value is always safe to work on: what breaks a requirement without making the document
    unreadable is replaced, NaN and numbers too large by None, lone surrogates by U+FFFD; of
    equal keys the last one stays.
    """

    value: object
    problems: tuple[JsonProblem, ...]


_TOO_DEEP = JsonProblem(
    requirement="JSON-DEPTH",
    message="brackets are nested too deeply, or do not match",
    expected=f"at most {MAX_DEPTH} levels",
    found="more",
)
_TOO_MANY_VALUES = JsonProblem(
    requirement="JSON-VALUES",
    message="the document has too many values",
    expected=f"at most {MAX_VALUES:,} of the characters , [ and {{ outside of strings",
    found="more",
)


def parse(data: bytes) -> Document:
    """Read a JSON document; bad input ends in problems, never in an exception.

    Implements JSON-SIZE, JSON-ENCODING, JSON-SYNTAX, JSON-DEPTH, JSON-VALUES,
    JSON-DUPLICATE-KEY, JSON-NONFINITE, JSON-NUMBER-RANGE, JSON-INTEGER-EXACT and
    JSON-SURROGATES.
    """
    if len(data) > MAX_BYTES:
        return Document(None, (_too_large(len(data)),))
    text, problems = _decode(data)
    if text is None:
        return Document(None, problems)
    separators, depth = _extent(data)
    if separators > MAX_VALUES:
        return Document(None, (*problems, _TOO_MANY_VALUES))
    if depth > MAX_DEPTH:
        return Document(None, _with_refusal(problems + _walk(text), _TOO_DEEP))
    value, error, doubtful = _read(text)
    if error or doubtful:
        problems += _walk(text)
    return Document(value, _with_refusal(problems, _as_scanned(error)) if error else problems)


def _with_refusal(
    problems: tuple[JsonProblem, ...], fallback: JsonProblem
) -> tuple[JsonProblem, ...]:
    """Make sure that one problem says why there is no value."""
    refused = any(problem.requirement in _UNREADABLE for problem in problems)
    return problems if refused else (*problems, fallback)


def _too_large(size: int) -> JsonProblem:
    return JsonProblem(
        requirement="JSON-SIZE",
        message="the document is too large",
        expected=f"at most {MAX_BYTES:,} bytes",
        found=f"{size:,} bytes" if size > MAX_BYTES + 1 else "more",
    )


def _decode(data: bytes) -> tuple[str | None, tuple[JsonProblem, ...]]:
    """Decode UTF-8; a byte order mark is a problem but no hindrance, other encodings are."""
    encoding = json.detect_encoding(data)
    if encoding not in ("utf-8", "utf-8-sig"):
        return None, (_encoding_problem(f"{encoding[:6].upper()}, by its first bytes"),)
    mark = encoding == "utf-8-sig"
    problems = (_encoding_problem("a byte order mark (EF BB BF)", 1, 1),) if mark else ()
    try:
        return data[3 if mark else 0 :].decode("utf-8"), problems
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8")
        found = f"the byte 0x{error.object[error.start]:02X}: {error.reason}"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return None, (*problems, _encoding_problem(found, line, column))


def _encoding_problem(found: str, line: int = 0, column: int = 0) -> JsonProblem:
    return JsonProblem(
        requirement="JSON-ENCODING",
        message="the document is not plain UTF-8",
        expected="UTF-8 without a byte order mark",
        found=found,
        line=line,
        column=column,
    )


def _extent(data: bytes) -> tuple[int, int]:
    """Count the characters , [ { outside of strings, and how deep brackets nest.

    Exact up to the first syntax error, which is as far as a scanner comes; stops early at a bound.
    Outside of strings is every other piece between quotes, once escapes are gone.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = depth = deepest = separators = 0
    for start in range(0, len(data), _CHUNK):
        parts = data[start : start + _CHUNK].split(b'"')
        outside = b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1
        separators += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if separators > MAX_VALUES or deepest > MAX_DEPTH or depth < 0:
            break
        brackets = outside.translate(None, _NOT_BRACKETS)
        depths = [*accumulate((_STEP[byte] for byte in brackets), initial=depth)]
        depth, deepest = depths[-1], max(deepest, *depths)
    return separators, deepest


def _read(text: str) -> tuple[object, JSONDecodeError | None, bool]:
    """Read with the C scanner: the value, why there is none, whether there is more to look for."""
    doubts: list[str] = []

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            doubts.append("duplicate key")
        return result

    def integer(digits: str) -> int | None:
        if len(digits) > 15:
            if overflows(digits):
                doubts.append("overflow")
                return None
            if inexact(digits):
                doubts.append("inexact")
        return int(digits)

    def real(digits: str) -> float | None:
        number = float(digits)
        if isinf(number):
            doubts.append("overflow")
            return None
        return number

    decoder = json.JSONDecoder(
        object_pairs_hook=members,
        parse_int=integer,
        parse_float=real,
        parse_constant=doubts.append,
    )
    try:
        value = decoder.decode(text)
    except JSONDecodeError as error:
        return None, error, True
    if _ESCAPED_SURROGATE.search(text):
        return _without_surrogates(value), None, True
    return value, None, bool(doubts)


def _as_scanned(error: JSONDecodeError) -> JsonProblem:
    """Report what the scanner said."""
    return JsonProblem(
        requirement="JSON-SYNTAX",
        message="this is no JSON",
        expected="a JSON document",
        found=error.msg,
        line=error.lineno,
        column=error.colno,
    )


def _walk(text: str) -> tuple[JsonProblem, ...]:
    """Find the faults of a text, with lines, columns and pointers.

    It looks at all of the text: many faults of one requirement hide none of another.
    """
    problems: list[JsonProblem] = []
    count: Counter[str] = Counter()
    line, line_start, done = 1, 0, 0
    for fault in faults(text):
        requirement = fault.complaint.requirement
        count[requirement] += 1
        if count[requirement] > MAX_PROBLEMS + 1:
            continue
        line += text.count("\n", done, fault.position)
        line_start = max(line_start, text.rfind("\n", done, fault.position) + 1)
        done = fault.position
        more = count[requirement] > MAX_PROBLEMS
        problems.append(
            JsonProblem(
                requirement=requirement,
                message="there are more of these" if more else fault.complaint.message,
                pointer=pointer(*fault.path),
                line=line,
                column=fault.position - line_start + 1,
                expected=fault.complaint.expected,
                found=fault.complaint.found,
            )
        )
    return tuple(problems)


def pointer(*path: str | int) -> str:
    """Write a JSON pointer (RFC 6901); keys of absurd length are cut.

    `pointer("layers", "a/b")` is `/layers/a~1b`.
    """
    parts = (
        part if len(part) <= _LONGEST_KEY else part[:_LONGEST_KEY] + "…" for part in map(str, path)
    )
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _without_surrogates(value: object) -> object:
    """Copy a value with U+FFFD in place of every lone surrogate, in keys too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _without_surrogates(item) for key, item in value.items()}
    return value
