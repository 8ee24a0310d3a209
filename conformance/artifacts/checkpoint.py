"""The level `headers`: a checkpoint's folder, read as far as the headers of its tensor files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from nibblespec.conformance.artifacts.bitnest import inventory as bitnest_inventory
from nibblespec.conformance.artifacts.bitnest.config import BITNEST_CONFIG_RULES, BitnestConfig
from nibblespec.conformance.artifacts.bitnest.files import BITNEST_FILE_RULES
from nibblespec.conformance.artifacts.bitnest.inventory import BITNEST_INVENTORY_RULES
from nibblespec.conformance.artifacts.capped import MAX_OF_REQUIREMENT, capped, of_requirement
from nibblespec.conformance.artifacts.dashq import config as dashq_config
from nibblespec.conformance.artifacts.dashq import inventory as dashq_inventory
from nibblespec.conformance.artifacts.dashq.config import DASHQ_CONFIG_RULES
from nibblespec.conformance.artifacts.dashq.inventory import DASHQ_INVENTORY_RULES
from nibblespec.conformance.artifacts.dashq.widths import DASHQ_WIDTH_RULES
from nibblespec.conformance.artifacts.findings import Finding, Problem, apply_rules, finding
from nibblespec.conformance.artifacts.json_findings import as_problem, json_finding
from nibblespec.conformance.artifacts.manifest import ManifestReport
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.folder import (
    CONFIG,
    FOLDER_RULES,
    INDEX,
    Folder,
    read_document,
    safetensors_names,
)
from nibblespec.conformance.artifacts.reading.model_config import Config, integer
from nibblespec.conformance.artifacts.reading.safetensors_headers import (
    Header,
    check_start,
    header_extent,
)
from nibblespec.conformance.artifacts.reading.shards import (
    SHARD_RULES,
    Shards,
    find_places,
    join,
    unique,
)
from nibblespec.spec import json_strict
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest

MAX_TENSORS = 1_048_576

_DASHQ = "dashq-packed-linear"
_BITNEST = "bitnest-package-v1"
_NOT_FINITE = ("JSON-NONFINITE", "JSON-NUMBER-RANGE")


Headers = Mapping[str, Header]
"""The headers that could be read, by file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadersReport:
    """What was found, and the headers for who goes on to the contents."""

    headers: Headers
    findings: list[Finding]


def check_headers(folder: Folder, report: ManifestReport) -> HeadersReport:
    """Check the files of a checkpoint, given what its manifest says; no tensor data is read.

    Implements the ST-* statements and those of both formats that are checked by headers. Where the
    manifest could not be read, only the files by themselves are judged.

    Raises what the folder's `read` does.
    """
    headers: dict[str, Header] = {}
    found = capped(_findings(folder, report, headers), MAX_OF_REQUIREMENT, of_requirement)
    return HeadersReport(findings=list(found), headers=headers)


def _findings(
    folder: Folder, report: ManifestReport, headers: dict[str, Header]
) -> Iterator[Finding]:
    """Yield what is found, and add the headers that can be read to `headers`."""
    known = report.format.id if report.format else ""
    yield from apply_rules(FOLDER_RULES, replace(folder, rotation=known == _BITNEST), "")
    count = 0
    for start in folder.read(safetensors_names(folder), header_extent):
        checked = check_start(start)
        yield from checked.findings
        if checked.header is None:
            continue
        count += len(checked.header.tensors) + len(checked.header.broken)
        if count > MAX_TENSORS:
            yield _too_many(count, start.file)
            break
        headers[start.file] = checked.header
    yield from _AGREEMENT.get(known, _unknown)(folder, headers, report)


def _too_many(count: int, name: str) -> Finding:
    problem = Problem(
        message="the checkpoint has too many tensors; no further file is read",
        expected=f"at most {MAX_TENSORS:,}",
        found=f"{count:,} up to this file",
    )
    return finding("ST-TENSOR-COUNT", problem, name)


def _unknown(_folder: Folder, headers: Headers, _report: ManifestReport) -> Iterator[Finding]:
    """Judge what holds whatever the format is."""
    for problem in unique(find_places(headers)):
        yield finding("ST-TENSOR-UNIQUE", problem, "")


def _dashq(folder: Folder, headers: Headers, report: ManifestReport) -> Iterator[Finding]:
    index, found = _read_index(folder)
    yield from found
    files = tuple(safetensors_names(folder))
    shards = join(files, headers, index, has_index=INDEX in folder.names)
    yield from apply_rules(SHARD_RULES, shards, INDEX)
    config, found = _read_config(folder, "DQ1-CONFIG-PRESENT", "DQ1-CONFIG-FINITE")
    yield from found
    if isinstance(report.manifest, DashqManifest):
        yield from _dashq_agreement(report.manifest, shards, config)


def _dashq_agreement(
    manifest: DashqManifest, shards: Shards, config: Config | None
) -> Iterator[Finding]:
    inventory = dashq_inventory.take_inventory(manifest, shards)
    yield from apply_rules(DASHQ_INVENTORY_RULES, inventory, dashq_inventory.MANIFEST)
    if config is not None:
        subject = dashq_config.join(config, inventory)
        yield from apply_rules(DASHQ_CONFIG_RULES, subject, CONFIG)
        yield from apply_rules(DASHQ_WIDTH_RULES, subject, CONFIG)


def _bitnest(folder: Folder, headers: Headers, report: ManifestReport) -> Iterator[Finding]:
    yield from apply_rules(BITNEST_FILE_RULES, folder, "")
    yield from _unknown(folder, headers, report)
    config, found = _read_config(folder, "BN1-CONFIG-PRESENT", None)
    yield from found
    if not isinstance(report.manifest, BitnestManifest):
        return
    vocabulary = integer(config, "vocab_size") if config else None
    inventory = bitnest_inventory.take_inventory(report.manifest, headers, vocabulary)
    yield from apply_rules(BITNEST_INVENTORY_RULES, inventory, bitnest_inventory.MANIFEST)
    if config is not None:
        subject = BitnestConfig(config=config, manifest=report.manifest)
        yield from apply_rules(BITNEST_CONFIG_RULES, subject, CONFIG)


_AGREEMENT = {_DASHQ: _dashq, _BITNEST: _bitnest}
"""What files, manifest and configuration of each format have to agree on."""


def _read_index(folder: Folder) -> tuple[Mapping[str, object] | None, list[Finding]]:
    """Read the index, None where there is none or it is no JSON object."""
    if INDEX not in folder.names:
        return None, []
    start = read_document(folder, INDEX)
    if start.irregular:
        message = "the index is no regular file"
        problem = Problem(message=message, expected="a regular file", found=start.irregular)
        return None, [finding("ST-INDEX-STRUCTURE", problem, INDEX)]
    document = json_strict.parse(b"".join(start.pieces))
    findings = [json_finding(problem, INDEX) for problem in document.problems]
    if isinstance(document.value, dict):
        return document.value, findings
    if document.value is not None or not findings:
        problem = Problem(
            message="the index is no object",
            expected="an object with weight_map",
            found=show(document.value),
        )
        findings.append(finding("ST-INDEX-STRUCTURE", problem, INDEX))
    return None, findings


def _read_config(
    folder: Folder, present: str, finite: str | None
) -> tuple[Config | None, list[Finding]]:
    """Read config.json; `finite` is the requirement on its numbers where the format has its own."""
    expected = "the base model's configuration, a JSON object"
    start = read_document(folder, CONFIG)
    if start.irregular:
        problem = Problem(
            message="there is no config.json", expected=expected, found=start.irregular
        )
        return None, [finding(present, problem, CONFIG)]
    document = json_strict.parse(b"".join(start.pieces))
    findings = [
        finding(finite, as_problem(problem), CONFIG)
        if finite and problem.requirement in _NOT_FINITE
        else json_finding(problem, CONFIG)
        for problem in document.problems
    ]
    if isinstance(document.value, dict):
        return document.value, findings
    if document.value is not None or not findings:
        problem = Problem(
            message="config.json is no object", expected=expected, found=show(document.value)
        )
        findings.append(finding(present, problem, CONFIG))
    return None, findings
