"""JSON Schema 2020-12 of every manifest version, generated from the models."""

import json
from functools import cache
from importlib.resources import files

from nibblespec.spec.formats import FORMATS


@cache
def schema_text(format_id: str) -> str:
    """Return the JSON Schema of a format's manifest as it is committed.

    Raises ValueError, naming the known ones, where there is no such format.
    """
    for known in FORMATS:
        if known.id == format_id:
            return files(__name__).joinpath(known.schema_name).read_text(encoding="utf-8")
    names = " or ".join(known.id for known in FORMATS)
    raise ValueError(f"no schema for the format {format_id!r}: expected {names}")


def load_schema(format_id: str) -> dict[str, object]:
    """Return the JSON Schema of a format's manifest, parsed; each call returns a fresh one."""
    schema: dict[str, object] = json.loads(schema_text(format_id))
    return schema
