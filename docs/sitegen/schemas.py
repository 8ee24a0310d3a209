"""The reference of JSON Schemas: the files themselves, and a table of what each describes."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sitegen.sources import ROOT
from sitegen.tables import table

SCHEMAS = ROOT / "schemas"

HEAD = """# JSON Schemas

Every document that nibblespec reads or writes has a JSON Schema (2020-12). `nibblespec schema NAME`
prints it; the files below are the same. The schemas of manifests are generated from the models that
the validator uses, and say what the specification's tables of fields say: what relates two values
is in the [rules](rules.md). The schema of a format's version stays at its address; the others have
a version in the documents that they describe.

"""


@cache
def files() -> Mapping[str, Path]:
    """Return the schemas by their path in the site."""
    return {f"schemas/{path.name}": path for path in sorted(SCHEMAS.glob("*.schema.json"))}


def page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for name, path in files().items():
        schema = json.loads(path.read_text(encoding="utf-8"))
        title = path.name.removesuffix(".schema.json")
        parts.append(
            f'## {title}\n\n{schema.get("title", title)}: <a href="{name}">{path.name}</a>\n\n'
        )
        if description := schema.get("description"):
            parts.append(f"{description}\n\n")
        parts.append(_table(schema))
        for of, inner in schema.get("$defs", {}).items():
            if "properties" in inner:
                parts.append(f"**`{of}`** {inner.get('description', '')}\n\n{_table(inner)}")
    return "".join(parts)


def _table(schema: Mapping[str, Any]) -> str:
    rows = list(_rows(schema))
    return table(("key", "type", "required", "meaning"), rows) + "\n" if rows else ""


def _rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for key, value in schema.get("properties", {}).items():
        said = value.get("description", "")
        examples = ", ".join(
            f"`{json.dumps(one, ensure_ascii=False)}`" for one in value.get("examples", ())
        )
        meaning = f"{said} For example {examples}." if examples else said
        yield f"`{key}`", _type(value), "yes" if key in required else "", meaning.strip()


def _type(value: Mapping[str, Any]) -> str:
    """Describe the values that a schema takes, in the words of JSON Schema."""
    if "$ref" in value:
        return f"`{value['$ref'].rpartition('/')[2]}`"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return " or ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    for key in ("anyOf", "oneOf"):
        if key in value:
            return " or ".join(_type(one) for one in value[key])
    kind = value.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array" and isinstance(value.get("items"), dict):
        kind = f"array of {_type(value['items'])}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        kind = f"object of {_type(value['additionalProperties'])}"
    low, high = value.get("minimum"), value.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    return kind if low is None else f"{kind}, at least {low}"
