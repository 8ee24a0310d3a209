"""Where a JSON text breaks the rules: a slow walk that names every place.

`json_strict` reads documents with the C scanner of the standard library, which knows neither
paths nor several faults at once. Where that reading finds anything amiss, this walk finds out
what and where. It is iterative: no input, however deep, uses Python's stack.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from typing import NamedTuple

MAX_DEPTH = 64
MAX_EXACT = 2**53 - 1

_TOKEN = re.compile(
    r"[ \t\n\r]*(?:(?P<mark>[{}\[\]:,])"
    r'|(?P<plain>"[^"\\\x00-\x1f]*")|(?P<quote>")'  # plain: no escape, nothing to find
    r"|(?P<word>[\w.+-]+)|(?P<bad>.)|(?P<end>\Z))",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_MEMBER = re.compile(  # a member that cannot be wrong, and the comma behind it: most of a manifest
    r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:'
    r'[ \t\n\r]*(?:"[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]{0,14})|true|false|null)[ \t\n\r]*,'
)
_DECODER = json.JSONDecoder()
_SURROGATE = re.compile("[\ud800-\udfff]")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong, without the place."""

    requirement: str
    message: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A complaint with its character position and the path of the value it concerns."""

    complaint: Complaint
    position: int
    path: Path


class _Token(NamedTuple):
    """`kind` is the character of punctuation, "string", "scalar", "end" or "bad"."""

    kind: str
    position: int
    text: str = ""
    complaint: Complaint | None = None


def overflows(number: str) -> bool:
    """Say whether a JSON number rounds to infinity in float64."""
    return math.isinf(float(number))


def inexact(integer: str) -> bool:
    """Say whether a JSON integer that float64 can hold lies outside ±(2**53 - 1)."""
    return len(integer) > 15 and abs(int(integer)) > MAX_EXACT


def clean(text: str) -> str:
    """Replace what is no Unicode character (a lone surrogate) by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def shown(text: str) -> str:
    """Quote a piece of the document for a message: short, one line, printable."""
    short = clean(text if len(text) <= 40 else text[:40] + "…")
    return json.dumps(short, ensure_ascii=not short.isprintable())


def _scan_string(text: str, position: int) -> tuple[_Token, int]:
    """Read the string whose opening quote is at `position`; return it and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except JSONDecodeError as error:
        at = error.pos
        if error.msg.startswith("Unterminated"):
            complaint = Complaint(
                "JSON-SYNTAX",
                "a string is not closed before the document ends",
                "'\"'",
                "the end of the document",
            )
        elif error.msg.startswith("Invalid control"):
            complaint = Complaint(
                "JSON-SYNTAX",
                "a string holds a control character",
                f"the escape \\u{ord(text[at]):04x}",
                f"U+{ord(text[at]):04X}",
            )
        else:
            complaint = Complaint(
                "JSON-SYNTAX",
                "a string holds an escape that JSON does not know",
                '\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\u and four hexadecimal digits',
                shown(text[at : at + 6]),
            )
        return _Token("bad", at, complaint=complaint), len(text)
    if lone := _SURROGATE.search(value):
        complaint = Complaint(
            "JSON-SURROGATES",
            "a string escapes half of a surrogate pair, which is no character",
            "the other half beside it",
            f"\\u{ord(lone[0]):04x}",
        )
        return _Token("string", position, clean(value), complaint), end
    return _Token("string", position, value), end


def _word(text: str, position: int) -> _Token:
    """Judge what stands where a number or a literal may: digits, letters, signs and dots."""
    if number := _NUMBER.fullmatch(text):
        if overflows(text):
            complaint = Complaint(
                "JSON-NUMBER-RANGE",
                "a number is too large for a 64-bit float",
                "a magnitude below 1.8e308",
                f"{shown(text)[1:-1]} ({len(text):,} characters)",
            )
            return _Token("scalar", position, text, complaint)
        if not number["real"] and inexact(text):
            complaint = Complaint(
                "JSON-INTEGER-EXACT",
                "an integer is beyond what every JSON reader holds exactly",
                f"at most {MAX_EXACT} in magnitude",
                shown(text)[1:-1],
            )
            return _Token("scalar", position, text, complaint)
        return _Token("scalar", position, text)
    if text in ("true", "false", "null"):
        return _Token("scalar", position, text)
    if text in ("NaN", "Infinity", "-Infinity"):
        complaint = Complaint(
            "JSON-NONFINITE", "a number is not finite", "a finite number, or null", text
        )
        return _Token("scalar", position, text, complaint)
    return _Token("bad", position, text)


def _token(text: str, position: int) -> tuple[_Token, int]:
    """Read the token that follows a position, and where it ends."""
    match = _TOKEN.match(text, position)
    assert match is not None  # where nothing else matches, "end" does
    kind = match.lastgroup or "end"
    start, end = match.span(kind)
    if kind == "mark":
        return _Token(text[start], start), end
    if kind == "plain":
        return _Token("string", start, text[start + 1 : end - 1]), end
    if kind == "quote":
        return _scan_string(text, start)
    if kind == "word":
        return _word(text[start:end], start), end
    return _Token(kind, start, text[start:end]), end


_VALUE = frozenset(("string", "scalar", "{", "["))
_ALLOWED = {
    "document": _VALUE,
    "value": _VALUE,
    "first item": _VALUE | {"]"},
    "key": frozenset(("string",)),
    "first key": frozenset(("string", "}")),
    "colon": frozenset((":",)),
    "next item": frozenset((",", "]")),
    "next key": frozenset((",", "}")),
    "end": frozenset(("end",)),
}
_EXPECTED = {
    "document": "a value",
    "value": "a value",
    "first item": "a value or ']'",
    "key": "a key in double quotes",
    "first key": "a key in double quotes, or '}'",
    "colon": "':'",
    "next item": "',' or ']'",
    "next key": "',' or '}'",
    "end": "the end of the document",
}


def _unexpected(state: str, token: _Token) -> Complaint:
    """Say what the grammar expects in this state instead of this token."""
    if token.kind == "end":
        message = "the document is empty" if state == "document" else "the document is cut short"
        return Complaint("JSON-SYNTAX", message, _EXPECTED[state], "the end of the document")
    message = "data follows the document" if state == "end" else "this is no JSON"
    found = f"'{token.kind}'" if token.kind in "{}[]:," else shown(token.text)
    return Complaint("JSON-SYNTAX", message, _EXPECTED[state], found)


_TOO_DEEP = Complaint(
    "JSON-DEPTH",
    "objects and arrays are nested too deeply",
    f"at most {MAX_DEPTH} levels",
    f"level {MAX_DEPTH + 1}",
)
_DUPLICATE = Complaint(
    "JSON-DUPLICATE-KEY", "an object holds the same key twice", "each key once", "the key again"
)


def faults(text: str) -> Iterator[Fault]:
    """Walk a JSON text and yield its faults in order; one that ends the reading is the last."""
    path: list[str | int | None] = []  # key or index in each open container; None: no key yet
    keys: list[set[str] | None] = []  # keys of each open object so far; None: an array
    state = "document"
    position = 0

    def fault(complaint: Complaint, position: int) -> Fault:
        return Fault(complaint, position, tuple(part for part in path if part is not None))

    def add_key(key: str) -> bool:
        path[-1] = key
        seen = keys[-1] if keys[-1] is not None else set()
        new = key not in seen
        seen.add(key)
        return new

    while True:
        if state in ("key", "first key") and (member := _MEMBER.match(text, position)):
            if not add_key(member[1]):
                yield fault(_DUPLICATE, member.start(1) - 1)
            position, state, path[-1] = member.end(), "key", None
            continue
        token, position = _token(text, position)
        kind = token.kind
        if kind == "bad" and token.complaint:
            yield fault(token.complaint, token.position)
            return
        if kind not in _ALLOWED[state]:
            yield fault(_unexpected(state, token), token.position)
            return
        if kind == "end":
            return
        if state in ("key", "first key") and kind == "string":
            if not add_key(token.text):
                yield fault(_DUPLICATE, token.position)
            state = "colon"
        elif kind == ":":
            state = "value"
        elif kind == ",":
            index = path[-1]
            path[-1] = index + 1 if isinstance(index, int) else None
            state = "value" if keys[-1] is None else "key"
        elif kind in ("{", "["):
            if len(path) == MAX_DEPTH:
                yield fault(_TOO_DEEP, token.position)
                return
            path.append(None if kind == "{" else 0)
            keys.append(set() if kind == "{" else None)
            state = "first key" if kind == "{" else "first item"
        else:
            if kind in ("]", "}"):
                path.pop()
                keys.pop()
            state = "end" if not path else "next item" if keys[-1] is None else "next key"
        if token.complaint:
            yield fault(token.complaint, token.position)
