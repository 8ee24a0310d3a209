"""Values of a document in messages: JSON, on one short printable line."""

import json

LONGEST = 60
"""Characters of a string that are shown."""

_LONGEST_INTEGER = 30


def show(value: object) -> str:
    """Write a JSON value: short scalars as they are, the rest cut or counted."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return f"an object with {_count(len(value), 'key')}"
    if isinstance(value, list):
        if len(value) <= 4 and not any(isinstance(item, str | list | dict) for item in value):
            return "[" + ", ".join(show(item) for item in value) + "]"
        return f"an array of {_count(len(value), 'value')}"
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer(value)
    return json.dumps(value)


def _text(value: str) -> str:
    quoted = json.dumps(value[:LONGEST], ensure_ascii=False)
    printable = "".join(char if char.isprintable() else _escape(char) for char in quoted)
    if len(value) <= LONGEST:
        return printable
    return f'{printable[:-1]}…" ({len(value):,} characters)'


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _integer(value: int) -> str:
    # Python refuses to write integers of more than 4,300 digits; that many bits is not worth it.
    if value.bit_length() > 4096:
        return f"an integer of {value.bit_length():,} bits"
    digits = str(value)
    if len(digits) <= _LONGEST_INTEGER:
        return digits
    return f"{digits[:10]}… ({len(digits.lstrip('-'))} digits)"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
