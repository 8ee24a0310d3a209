"""JSON Schema 2020-12: of manifests, generated from the models; of findings, reports and more."""

import json
from functools import cache
from importlib.resources import files

from nibblespec.spec.formats import FORMATS

FINDINGS = "findings"
FINDINGS_SCHEMA = "findings.schema.json"
REPORT = "report"
REPORT_SCHEMA = "report.schema.json"
EXEC = "exec-protocol"
EXEC_SCHEMA = "exec-protocol.schema.json"
MERGED = "merged-report"
MERGED_SCHEMA = "merged-report.schema.json"
VECTORS = {
    "vectors-index": "vectors-index.schema.json",
    "vectors-report": "vectors-report.schema.json",
}


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
    names = {known.id: known.schema_name for known in FORMATS}
    names |= {FINDINGS: FINDINGS_SCHEMA, REPORT: REPORT_SCHEMA, **VECTORS}
    names |= {EXEC: EXEC_SCHEMA, MERGED: MERGED_SCHEMA}
    versions = {name.removesuffix(".schema.json"): name for name in names.values()}
    if format_id not in names | versions:
        expected = ", ".join(names)
        raise ValueError(f"no schema for the format {format_id!r}: expected one of {expected}")
    return files(__name__).joinpath((names | versions)[format_id]).read_text(encoding="utf-8")


def load_schema(format_id: str) -> dict[str, object]:
    """Return the JSON Schema of a format's manifest, parsed; each call returns a fresh one."""
    schema: dict[str, object] = json.loads(schema_text(format_id))
    return schema
