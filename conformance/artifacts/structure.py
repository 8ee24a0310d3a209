"""The structure of a manifest: what its model says, as findings under requirement ids."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import islice
from typing import Any, get_args, get_origin

from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.dashq_packed_linear.v1.manifest import Params
from nibblespec.spec.formats import AnyManifest, Format
from nibblespec.spec.json_strict import pointer
from nibblespec.spec.json_types import JsonObject
from nibblespec.spec.pieces import object_at, pieces
from pydantic import ValidationError
from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]
Located = tuple[str, Problem]
"""A requirement id and what breaks it."""

PREFIX: Mapping[str, str] = {"dashq-packed-linear": "DQ1", "bitnest-package-v1": "BN1"}
"""First part of the requirement ids, by format."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "DQ1": (
        "DQ1-FORMAT",
        "DQ1-FORMAT-VERSION",
        "DQ1-FIELD-REQUIRED",
        "DQ1-FIELD-TYPE",
        "DQ1-FIELD-VALUE",
        "DQ1-FIELD-UNKNOWN",
        "DQ1-NAME-LENGTH",
    ),
    "BN1": (
        "BN1-FORMAT",
        "BN1-FIELD-REQUIRED",
        "BN1-FIELD-TYPE",
        "BN1-FIELD-VALUE",
        "BN1-FIELD-UNKNOWN",
        "BN1-NAME-LENGTH",
    ),
}
"""What is checked here, by prefix: the statements on structure."""

LONGEST_NAME = 500
"""Characters of the longest name of a layer."""

_MOST_UNKNOWN = 8
"""Unknown keys of one object that are reported one by one."""

_ENOUGH = 10_000
"""Problems of a manifest after which no more are looked for."""

_FREE = (Params,)
"""Models in which keys that they do not list are nothing to report."""

_TYPES: Mapping[str, str] = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
"""What was expected, by Pydantic's name of the error, where the JSON type is wrong."""


def check_structure(value: object, known: Format) -> tuple[AnyManifest | None, list[Located]]:
    """Read a JSON value into the model of its format.

    Returns the manifest, None where its structure is broken, and what breaks or, for unknown
    keys, merely touches the statements of KINDS.
    """
    prefix = PREFIX[known.id]
    maps = known.named
    if problems := list(_long_names(value, maps)):
        return None, [(f"{prefix}-NAME-LENGTH", problem) for problem in problems]
    unknown = [
        (f"{prefix}-FIELD-UNKNOWN", problem)
        for problem in islice(_unknown(value, known.model, ()), _ENOUGH)
    ]
    manifest: AnyManifest | None = None
    located: dict[tuple[str, str], Located] = {}
    number = 0
    for piece in pieces(value, maps):
        number += 1
        try:
            manifest = known.model.model_validate(piece)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                if details["type"] != "default_factory_not_called":
                    requirement, problem = _located(details, known)
                    located[requirement, problem.pointer + problem.message] = requirement, problem
        if len(located) >= _ENOUGH:
            break
    if located:
        return None, [*located.values(), *unknown]
    if number > 1:
        manifest = known.model.model_validate(value)
    return manifest, unknown


def _long_names(value: object, maps: tuple[tuple[str, ...], ...]) -> Iterator[Problem]:
    for path in maps:
        for name in object_at(value, path):
            if len(name) > LONGEST_NAME:
                yield Problem(
                    message="the name is too long",
                    pointer=pointer(*path, name),
                    expected=f"at most {LONGEST_NAME} characters",
                    found=f"{len(name):,} characters",
                )


def _located(details: ErrorDetails, known: Format) -> Located:
    """Turn one error of Pydantic into a problem in terms of JSON."""
    prefix = PREFIX[known.id]
    path, kind, context = details["loc"], details["type"], details.get("ctx", {})
    if kind == "missing":
        return f"{prefix}-FIELD-REQUIRED", Problem(
            message=f"the key `{path[-1]}` is missing",
            pointer=pointer(*path[:-1]),
            expected=f"the key `{path[-1]}`",
            found=show(details["input"]),
        )
    wrong_type = kind in _TYPES
    problem = Problem(
        message=f"{_described(path, known)} has the wrong {'type' if wrong_type else 'value'}",
        pointer=pointer(*path),
        expected=_TYPES[kind] if wrong_type else _expected(kind, context),
        found=show(details["input"]),
    )
    identity = f"{prefix}-{str(path[0]).upper().replace('_', '-')}" if len(path) == 1 else ""
    if identity in KINDS[prefix]:
        return identity, problem
    return f"{prefix}-FIELD-{'TYPE' if wrong_type else 'VALUE'}", problem


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "literal_error":
            return str(context.get("expected", "1")).replace("'", '"')
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "too_short":
            return f"{context['min_length']} values"
        case "too_long":
            return f"{context['max_length']} values"
    return "another value"


def _described(path: Path, known: Format) -> str:
    """Name a place in words that fit every layer: the key, or the object whose entry it is."""
    if not path:
        return "the manifest"
    names = [part for part in path if isinstance(part, str)]
    last = names[-1]
    if tuple(names[:-1]) in known.named:
        return f"an entry of `{names[-2]}`"
    return f"an element of `{last}`" if isinstance(path[-1], int) else f"`{last}`"


def _unknown(value: object, model: type[JsonObject], path: Path) -> Iterator[Problem]:
    """Yield the keys that a model does not list, in the value and in the objects inside it."""
    if not isinstance(value, dict):
        return
    known = model.model_fields.keys()
    if model not in _FREE and not value.keys() <= known:
        others = [key for key in value if key not in known]
        for key in others[:_MOST_UNKNOWN]:
            yield Problem(
                message=f"the format does not define the key {show(key)}",
                pointer=pointer(*path, key),
                found=show(value[key]),
                hint=_meant(key, tuple(known - value.keys())),
            )
        if len(others) > _MOST_UNKNOWN:
            yield Problem(
                message="there are more keys that the format does not define",
                pointer=pointer(*path),
                found=f"{len(others) - _MOST_UNKNOWN:,} more",
            )
    for key, (inner, is_map) in _inner(model).items():
        if is_map and isinstance(value.get(key), dict):
            for name, entry in value[key].items():
                yield from _unknown(entry, inner, (*path, key, name))
        elif not is_map:
            yield from _unknown(value.get(key), inner, (*path, key))


@lru_cache(maxsize=1024)
def _meant(key: str, absent: tuple[str, ...]) -> str:
    """Say which of the absent keys a key may be a misspelling of."""
    close = get_close_matches(key[:LONGEST_NAME], absent, n=1, cutoff=0.8)
    return f"did you mean `{close[0]}`?" if close else ""


@cache
def _inner(model: type[JsonObject]) -> Mapping[str, tuple[type[JsonObject], bool]]:
    """Return the fields that hold objects of a model, with whether they map names to them."""
    found = {}
    for name, field in model.model_fields.items():
        if inner := _model_in(field.annotation):
            found[name] = inner
    return found


def _model_in(annotation: object) -> tuple[type[JsonObject], bool] | None:
    if isinstance(annotation, type) and issubclass(annotation, JsonObject):
        return annotation, False
    for argument in get_args(annotation):
        if inner := _model_in(argument):
            return inner[0], inner[1] or get_origin(annotation) is dict
    return None
