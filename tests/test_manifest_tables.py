"""The tables of manifest keys in the text say what the JSON Schemas say."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from nibblespec.schemas import schema_text

CHAPTERS = {
    "dashq-packed-linear": "dashq_packed_linear/v1/specification.md",
    "bitnest-package-v1": "bitnest_package/v1/specification.md",
}
_HEAD = re.compile(r"^\| key(?: of `\w+`)? \| type and range \|")
_ROW = re.compile(r"^\| `(?P<keys>[^|]+?)`(?P<optional> \(optional\))? \| (?P<type>[^|]+?) \|")


def rows(format_id: str) -> list[tuple[str, bool, str, str]]:
    """Return key, whether it is optional, type, and the head of its table, row by row."""
    text = files("nibblespec.spec").joinpath(CHAPTERS[format_id]).read_text(encoding="utf-8")
    found, head = [], ""
    for line in text.splitlines():
        if _HEAD.match(line):
            head = line
        elif not line.startswith("|"):
            head = ""
        elif head and (match := _ROW.match(line)):
            found += [
                (key, match["optional"] is not None, match["type"], head)
                for key in match["keys"].split("`, `")
            ]
    return found


def properties(format_id: str) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return every key that the schema lists, by its path, with its schema; True: optional."""
    schema = json.loads(schema_text(format_id))
    found: dict[str, tuple[dict[str, Any], bool]] = {}

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        return schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node

    def walk(node: dict[str, Any], path: str) -> None:
        node = resolved(node)
        for key, value in node.get("properties", {}).items():
            place = f"{path}.{key}" if path else key
            found[place] = (value, key not in node.get("required", []))
            walk(value, place)
        if isinstance(entries := node.get("additionalProperties"), dict):
            walk(entries, f"{path}.*")

    walk(schema, "")
    return found


def in_words(node: dict[str, Any]) -> str:
    """Say a schema's type and range as the tables do."""
    if "anyOf" in node:
        return " or ".join(in_words(one) for one in node["anyOf"])
    if "const" in node:
        kind = "string" if isinstance(node["const"], str) else "integer"
        return f"{kind} `{json.dumps(node['const'])}`"
    if "enum" in node:
        return "string " + " or ".join(f"`{json.dumps(one)}`" for one in node["enum"])
    if "$ref" in node:
        return "object"
    kind = str(node["type"])
    if kind == "array":
        return f"array of two {in_words(node['items'])}".replace("integer,", "integers, each")
    if kind == "object" and node.get("additionalProperties", {}) == {"type": "integer"}:
        return "object of integers"
    if "maximum" in node:
        return f"{kind}, {node['minimum']} to {node['maximum']}"
    return f"{kind}, at least {node['minimum']}" if "minimum" in node else kind


def place_of(format_id: str, key: str, head: str) -> str:
    """Return the path of a key by the table that it stands in."""
    if "of `params`" in head:
        return f"params.{key}"
    entries = {"dashq-packed-linear": "quantized_modules", "bitnest-package-v1": "layers"}
    return key if key in properties(format_id) else f"{entries[format_id]}.*.{key}"


@pytest.mark.parametrize("format_id", CHAPTERS)
def test_the_tables_list_every_key_and_no_other(format_id: str) -> None:
    listed = [place_of(format_id, key, head) for key, _, _, head in rows(format_id)]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(properties(format_id))


@pytest.mark.parametrize("format_id", CHAPTERS)
def test_the_tables_say_types_ranges_and_what_is_optional(format_id: str) -> None:
    stated = {
        place_of(format_id, key, head): (kind, optional)
        for key, optional, kind, head in rows(format_id)
    }
    known = {
        place: (in_words(node), optional)
        for place, (node, optional) in properties(format_id).items()
    }
    assert stated == known
