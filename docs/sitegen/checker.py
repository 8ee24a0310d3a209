"""What the page that checks manifests needs: schemas, addresses, samples, what is left."""

import json
from collections.abc import Mapping

from nibblespec.conformance.artifacts.structure import KINDS, PREFIX
from nibblespec.schemas import load_schema
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.requirements import Requirement, requirements

from sitegen.references import address
from sitegen.sources import ROOT
from sitegen.tables import table

TELLING = {"dashq-packed-linear": "quantized_modules", "bitnest-package-v1": "online_hadamard"}
"""The key that tells the format of a manifest that does not name it."""

_UNDECIDED = ("FIELD-UNKNOWN", "NAME-LENGTH")
"""Statements on structure that JSON Schema does not say."""

DECIDED = frozenset(
    (
        "JSON-SIZE",
        "JSON-ENCODING",
        "JSON-SYNTAX",
        "JSON-MANIFEST-FORMAT",
        *(id_ for ids in KINDS.values() for id_ in ids if not id_.endswith(_UNDECIDED)),
    )
)
"""Statements that the page decides."""

_REPORTED = frozenset((*DECIDED, "JSON-SURROGATES"))
"""Statements that the page may name."""

_SAMPLE = ROOT / "schemas" / "corpus" / "valid" / "dashq-packed-linear" / "minimal.json"


def left(prefix: str) -> list[Requirement]:
    """Return the statements on manifests of a format, or on JSON, that need the command line."""
    return [
        one
        for one in requirements().values()
        if one.checked_by == "manifest"
        and one.id.partition("-")[0] == prefix
        and one.id not in DECIDED
    ]


def formats_module() -> str:
    """Return the module `formats.js`: everything that the scripts of the page read."""
    formats = [
        {
            "id": known.id,
            "prefix": PREFIX[known.id],
            "telling": TELLING[known.id],
            "named": known.named,
            "own": KINDS[PREFIX[known.id]],
            "left": len(left(PREFIX[known.id])) + len(left("JSON")),
            "schema": load_schema(known.id),
        }
        for known in FORMATS
    ]
    values = {
        "formats": formats,
        "addresses": {id_: address(id_) for id_ in sorted(_REPORTED)},
        "samples": samples(),
    }
    return "".join(
        f"export const {name} = {json.dumps(value)};\n" for name, value in values.items()
    )


def samples() -> Mapping[str, str]:
    """Return a manifest without faults and one with some, to try the page with."""
    good = _SAMPLE.read_text(encoding="utf-8")
    bad = (
        good.replace('"nbits": 4', '"nbits": "4"')
        .replace('"group_size": 32', '"group_size": 0')
        .replace('   "num_groups": 16,\n', "")
    )
    return {"good": good, "bad": bad}


def filled_in(markdown: str) -> str:
    """Put the statements that need the command line in the place of the page's mark."""
    parts = []
    for title, prefix in (
        ("Every JSON document", "JSON"),
        *((known.id, PREFIX[known.id]) for known in FORMATS),
    ):
        stated = left(prefix)
        rows = [(one.id, one.severity, one.text) for one in stated]
        parts.append(f"### {title}\n\n{len(stated)} statements.\n\n")
        parts.append(table(("statement", "severity", "what it says"), rows) + "\n")
    return markdown.replace("<!-- statements that are left -->", "".join(parts))
