"""How the cases of the corpus are written: small manifests, each changed in one respect."""

import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = Any  # a JSON value: what is inside, the case knows that changes it
Object: TypeAlias = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Case:
    """A manifest, as JSON or as raw bytes, and the findings it has: requirement and pointer."""

    name: str
    description: str
    manifest: Object | bytes
    findings: tuple[tuple[str, str], ...]


def case(name: str, description: str, manifest: Object | bytes, *findings: str) -> Case:
    """Describe a case; a finding is its requirement and, after a space, its pointer."""
    split = (finding.partition(" ") for finding in findings)
    return Case(name, description, manifest, tuple((one, other) for one, _, other in split))


def put(manifest: Object, value: Json, *path: str | int) -> Object:
    """Copy a manifest with another value at a path."""
    changed = copy.deepcopy(manifest)
    _at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def drop(manifest: Object, *path: str | int) -> Object:
    """Copy a manifest without the key at a path."""
    changed = copy.deepcopy(manifest)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def _at(value: Json, path: tuple[str | int, ...]) -> Json:
    for part in path:
        value = value[part]
    return value
