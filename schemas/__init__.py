"""JSON Schema 2020-12: of manifests, generated from the models; of findings, reports and more."""

import json
from functools import cache
from importlib.resources import files

DOCUMENTS = (
    "findings",
    "report",
    "merged-report",
    "vectors-index",
    "vectors-report",
    "exec-protocol",
)
"""Names of the schemas that are of no format's manifest."""


@cache
def schema_text(format_id: str) -> str:
    """Return the JSON Schema of a format's manifest as it is committed.

    A format is named by its id, or with its version as its file is: "dashq-packed-linear-v1".
    "findings" is what `nibblespec validate --format json` writes, "report" what
    `nibblespec conformance --report` writes, "vectors-index" the index of the golden vectors and
    "vectors-report" what `nibblespec vectors check --format json` writes, "exec-protocol" a line of
    the exec protocol, "merged-report" what `nibblespec report merge` writes. Raises ValueError,
    naming the known ones, where there is no such format.
    """
    from nibblespec.spec.formats import FORMATS  # noqa: PLC0415 (late, for the names alone)

    names = {known.id: known.schema_name for known in FORMATS}
    names |= {name: f"{name}.schema.json" for name in DOCUMENTS}
    versions = {name.removesuffix(".schema.json"): name for name in names.values()}
    if format_id not in names | versions:
        expected = ", ".join(names)
        raise ValueError(f"no schema for the format {format_id!r}: expected one of {expected}")
    return files(__name__).joinpath((names | versions)[format_id]).read_text(encoding="utf-8")


def load_schema(format_id: str) -> dict[str, object]:
    """Return the JSON Schema of a format's manifest, parsed; each call returns a fresh one."""
    schema: dict[str, object] = json.loads(schema_text(format_id))
    return schema
