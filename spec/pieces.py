"""Parts of a manifest that fit in memory when Pydantic has something to say on every entry."""

from collections.abc import Iterator
from itertools import islice

BATCH = 8192
"""Entries of one object that are validated at a time, which bounds the errors held at a time."""

Names = tuple[str, ...]
"""The path of an object, from the top of the manifest."""


def object_at(value: object, path: Names) -> dict[str, object]:
    """Return the object at a path, an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def pieces(value: object, maps: tuple[Names, ...], batch: int = BATCH) -> Iterator[object]:
    """Yield the value with a part of each of the objects at a time, all of them in the end.

    `maps` are the paths of the objects; a value whose objects are small is its own only piece.
    Pydantic holds all errors of a call at once, and a hostile manifest has millions.
    """
    longest = max(len(object_at(value, path)) for path in maps)
    if longest <= batch:
        yield value
        return
    entries = {path: iter(object_at(value, path).items()) for path in maps}
    for _ in range(0, longest, batch):
        piece = value
        for path in maps:
            piece = _with(piece, path, dict(islice(entries[path], batch)))
        yield piece


def _with(value: object, path: Names, part: dict[str, object]) -> object:
    """Copy a value with `part` in place of the object at a path, if there is one."""
    if not path:
        return part if isinstance(value, dict) else value
    key, *rest = path
    if not isinstance(value, dict) or key not in value:
        return value
    return {**value, key: _with(value[key], tuple(rest), part)}
