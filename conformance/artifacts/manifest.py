"""The level `manifest`: everything that the manifest alone can tell."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from nibblespec.conformance.artifacts.bitnest import manifest as bitnest_manifest
from nibblespec.conformance.artifacts.capped import MAX_OF_REQUIREMENT, capped
from nibblespec.conformance.artifacts.dashq import manifest as dashq_manifest
from nibblespec.conformance.artifacts.findings import Finding, Problem, apply_rules, finding
from nibblespec.conformance.artifacts.json_findings import json_finding
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.structure import Located, check_structure
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.formats import FORMATS, AnyManifest, Format, detect
from nibblespec.spec.json_strict import Document, parse

_TELLING = {"quantized_modules": "dashq-packed-linear", "online_hadamard": "bitnest-package-v1"}
"""Keys that only one format has, for manifests that do not name theirs."""

_REPLACED = ("JSON-NONFINITE", "JSON-NUMBER-RANGE")
"""Problems after which the reader puts null in place of the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReport:
    """What a manifest is, and everything that was found in it."""

    findings: list[Finding]
    format: Format | None
    """None where the document does not tell."""
    manifest: AnyManifest | None
    """None where there is no JSON, no known format, or a broken structure."""


def check_manifest(data: bytes, file: str) -> ManifestReport:
    """Check a manifest: JSON, structure, then, where that holds, what relates its values.

    `file` is the name that the findings carry. No input raises.
    """
    document = parse(data)
    findings = (json_finding(problem, file) for problem in document.problems)
    if document.value is None and document.problems:
        return ManifestReport(findings=list(findings), format=None, manifest=None)
    known = detect(document.value) or _guess(document.value)
    if known is None:
        nothing = _no_format(document.value, file)
        return ManifestReport(findings=[*findings, nothing], format=None, manifest=None)
    manifest, located = check_structure(document.value, known)
    everything = chain(
        findings,
        _structure_findings(document, located, file),
        () if manifest is None else _rule_findings(manifest, file),
    )
    return ManifestReport(
        findings=list(capped(everything, MAX_OF_REQUIREMENT)), format=known, manifest=manifest
    )


def _guess(value: object) -> Format | None:
    """Tell the format of a manifest that does not name one by a key that only it has."""
    if not isinstance(value, dict):
        return None
    ids = {format_id for key, format_id in _TELLING.items() if key in value}
    return next((known for known in FORMATS if ids == {known.id}), None)


def _structure_findings(
    document: Document, located: Iterable[Located], file: str
) -> Iterator[Finding]:
    """Yield what the structure breaks, but for the nulls that the reader itself has put there."""
    replaced = {
        problem.pointer for problem in document.problems if problem.requirement in _REPLACED
    }
    for requirement, problem in located:
        if problem.pointer not in replaced:
            yield finding(requirement, problem, file)


def _rule_findings(manifest: AnyManifest, file: str) -> Iterator[Finding]:
    if isinstance(manifest, DashqManifest):
        return apply_rules(dashq_manifest.RULES, manifest, file)
    return apply_rules(bitnest_manifest.RULES, manifest, file)


def _manifest_beside(file: str) -> str:
    """Say what to give in place of a file that lies beside manifests."""
    if file != "config.json" and not file.endswith(".safetensors.index.json"):
        return ""
    known = " or ".join(one.manifest_name for one in FORMATS)
    return f"{file} is no manifest: give its folder, or the manifest there, {known}"


def _no_format(value: object, file: str) -> Finding:
    named = isinstance(value, dict) and "format" in value
    found = value["format"] if isinstance(value, dict) and named else value
    names = " or ".join(f'"{known.id}"' for known in FORMATS)
    return finding(
        "JSON-MANIFEST-FORMAT",
        Problem(
            message="this is no manifest of a known format",
            pointer="/format" if named else "",
            expected=f"an object whose key `format` is {names}",
            found=show(found),
            hint=_manifest_beside(file),
        ),
        file,
    )
