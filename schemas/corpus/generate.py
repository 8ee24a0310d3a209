"""Write the corpus: `python -m nibblespec.schemas.corpus.generate`.

Every case becomes NAME.json, the manifest, and NAME.expected.json, what is to be found in it.
With `--check` nothing is written, and the exit status is 1 where a file differs, lacks or is left.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from nibblespec.schemas.corpus import (
    bitnest,
    bitnest_layers,
    dashq,
    dashq_names,
    documents,
)
from nibblespec.schemas.corpus.cases import Case
from nibblespec.spec.requirements import requirements

HERE = Path(__file__).parent

FAMILIES: Mapping[str, list[Case]] = {
    "dashq-packed-linear": [
        *dashq.structure(),
        *dashq.origin(),
        *dashq.modules(),
        *dashq_names.names(),
        *dashq_names.together(),
    ],
    "bitnest-package-v1": [
        *bitnest.structure(),
        *bitnest.origin(),
        *bitnest_layers.sizes(),
        *bitnest_layers.together(),
        *bitnest_layers.inputs(),
        *bitnest_layers.names(),
    ],
    "json": documents.documents(),
}
"""The cases, by the folder they go to."""

_BY_SCHEMA = ("FORMAT", "FORMAT-VERSION", "FIELD-REQUIRED", "FIELD-TYPE", "FIELD-VALUE")
"""Statements, without their prefix, that the JSON Schemas state."""


def expectation(described: Case) -> dict[str, object]:
    """Return what NAME.expected.json says of a case."""
    findings = [
        {
            "requirement": requirement,
            "severity": requirements()[requirement].severity,
            "pointer": pointer,
        }
        for requirement, pointer in sorted(set(described.findings))
    ]
    return {
        "description": described.description,
        "schema_valid": _schema_valid(described),
        "findings": findings,
    }


def _schema_valid(described: Case) -> bool | None:
    """Say what the JSON Schema says of a case, None where it has no say."""
    ids = [requirement for requirement, _ in described.findings]
    if any(one.startswith("JSON-") and requirements()[one].level == "MUST" for one in ids):
        return None
    return not any(one.partition("-")[2] in _BY_SCHEMA for one in ids)


def files() -> dict[str, bytes]:
    """Return every file of the corpus by its path."""
    written: dict[str, bytes] = {}
    for family, cases in FAMILIES.items():
        for described in cases:
            expected = expectation(described)
            flawed = any(
                requirements()[requirement].level != "MAY" for requirement, _ in described.findings
            )
            path = f"{'invalid' if flawed else 'valid'}/{family}/{described.name}"
            if f"{path}.json" in written:
                raise ValueError(f"two cases have the name {path}")
            written[f"{path}.json"] = _bytes(described.manifest)
            written[f"{path}.expected.json"] = _bytes(expected)
    return written


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def main(arguments: list[str] | None = None) -> int:
    """Write the corpus, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the corpus of manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check = parser.parse_args(arguments).check
    wanted = files()
    present = {
        path.relative_to(HERE).as_posix(): path.read_bytes()
        for folder in ("valid", "invalid")
        for path in (HERE / folder).rglob("*.json")
    }
    stale = sorted(path for path in {*wanted, *present} if wanted.get(path) != present.get(path))
    for path in stale:
        if check:
            print(f"{path} differs: run python -m nibblespec.schemas.corpus.generate")
        elif path in wanted:
            (HERE / path).parent.mkdir(parents=True, exist_ok=True)
            (HERE / path).write_bytes(wanted[path])
        else:
            (HERE / path).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
