"""Write the JSON Schemas that are generated: of manifests from their models, of exec's lines.

`python -m nibblespec.schemas.generate` writes the files beside this one; with `--check` it writes
nothing and exits with 1 where a file differs from what it would write.
"""

import argparse
import json
import sys
from pathlib import Path

from nibblespec.schemas import generate_exec
from nibblespec.spec.formats import FORMATS, Format
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

HERE = Path(__file__).parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without what says nothing: titles of fields, defaults of null."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        """Leave out the title "In Features" of a field whose name is in_features."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave out a default of null: it stands for absence, and null itself may be invalid."""
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def generate(known: Format) -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a format's manifest."""
    name = known.id.removesuffix(f"-v{known.version}")
    schema = known.model.model_json_schema(schema_generator=_Generator)
    schema["title"] = f"Manifest of {name}, version {known.version}"
    head = {
        "$schema": DIALECT,
        "$id": f"urn:nibblespec:schema:{name}:{known.version}",
        "$comment": f"Version {known.version} of the format. Generated from the models.",
    }
    first = ("title", "description", "type", "required", "properties")
    return head | {key: schema.pop(key) for key in first} | schema


def text(known: Format) -> str:
    """Return the committed form of a format's schema."""
    return _committed(generate(known))


def texts() -> dict[str, str]:
    """Return the committed form of every schema that is generated, by the file's name."""
    manifests = {known.schema_name: text(known) for known in FORMATS}
    return manifests | {generate_exec.NAME: _committed(generate_exec.generate(DIALECT))}


def _committed(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the schemas, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the JSON Schemas of the manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, generated in texts().items():
        file = HERE / name
        if file.is_file() and file.read_text(encoding="utf-8") == generated:
            continue
        stale += 1
        if check:
            print(f"{file.name} differs from its source: run python -m nibblespec.schemas.generate")
        else:
            file.write_text(generated, encoding="utf-8", newline="\n")
            print(f"wrote {file}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
