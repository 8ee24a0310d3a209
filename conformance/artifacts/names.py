"""Rules on the names of layers, for any object whose keys are such names."""

import re
from collections.abc import Iterable, Iterator

from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.json_strict import pointer

_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACES = " \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SPACE_AT_EDGE = re.compile(rf"(?:^|\.)[{_SPACES}]|[{_SPACES}](?:\.|\Z)")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]*")
_HUB_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def segments(names: Iterable[str], key: str) -> Iterator[Problem]:
    """Find names with an empty segment; `key` is the object that holds the names."""
    for name in names:
        if not name or name.startswith(".") or name.endswith(".") or ".." in name:
            yield Problem(
                message="the name has an empty segment",
                pointer=pointer(key, name),
                expected="segments joined by single dots",
                found=show(name),
            )


def characters(names: Iterable[str], key: str) -> Iterator[Problem]:
    """Find names with separators of paths, control characters or white space at an edge."""
    for name in names:
        if bad := _FORBIDDEN.search(name):
            yield Problem(
                message="the name has a separator of file paths or a control character",
                pointer=pointer(key, name),
                expected="no `/`, no `\\` and no control character",
                found=f"U+{ord(bad[0]):04X} in {show(name)}",
            )
        elif _SPACE_AT_EDGE.search(name):
            yield Problem(
                message="a segment of the name begins or ends with white space",
                pointer=pointer(key, name),
                expected="no white space at the edges of segments",
                found=show(name),
            )


def ascii_only(names: Iterable[str], key: str) -> Iterator[Problem]:
    """Find names with other characters than letters, digits, `_`, `-` and `.` of ASCII."""
    for name in names:
        if _PLAIN.fullmatch(name) or _FORBIDDEN.search(name) or _SPACE_AT_EDGE.search(name):
            continue
        yield Problem(
            message="the name has unusual characters",
            pointer=pointer(key, name),
            expected="ASCII letters, digits, `_`, `-` and `.`",
            found=show(name),
        )


def nested(names: Iterable[str], key: str) -> Iterator[Problem]:
    """Find names that continue another one. Linear in the length of all names, once sorted."""
    outer = None
    for name in sorted(f"{name}." for name in names):
        if outer is not None and name.startswith(outer):
            yield Problem(
                message="the layer is inside another one of the list",
                pointer=pointer(key, name[:-1]),
                expected=f"no layer inside {show(outer[:-1])}",
                found=show(name[:-1]),
            )
        else:
            outer = name


def tensor_names(names: Iterable[str], key: str, tensors: Iterable[str]) -> Iterator[Problem]:
    """Find names that end in the name of a tensor of the format."""
    endings = frozenset(tensors)
    for name in names:
        parent, _, last = name.rpartition(".")
        if last in endings:
            yield Problem(
                message="the name is that of a tensor, not of a layer",
                pointer=pointer(key, name),
                expected=f"the layer's path, {show(parent)}" if parent else "the layer's path",
                found=show(name),
            )


def is_hub_id(text: str) -> bool:
    """Say whether a text is `NAME` or `OWNER/NAME` as the Hugging Face Hub knows them."""
    parts = text.split("/", 2)
    return len(parts) <= 2 and all(len(part) <= 96 and _HUB_PART.fullmatch(part) for part in parts)


def hub_id(text: str | None, key: str) -> Iterator[Problem]:
    """Find a model that is named by something else than its Hub id."""
    if text is not None and not is_hub_id(text):
        yield Problem(
            message=f"`{key}` is no Hub id",
            pointer=pointer(key),
            expected="NAME or OWNER/NAME",
            found=show(text),
        )
