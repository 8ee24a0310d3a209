"""The corpus says what a validator has to find, and this validator finds exactly that."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from nibblespec.conformance.artifacts.bitnest import manifest as bitnest_manifest
from nibblespec.conformance.artifacts.dashq import manifest as dashq_manifest
from nibblespec.conformance.artifacts.manifest import check_manifest
from nibblespec.conformance.artifacts.structure import KINDS
from nibblespec.schemas import load_schema
from nibblespec.schemas.corpus import generate
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.requirements import requirements

CORPUS = Path(generate.__file__).parent
CASES = sorted(
    path.relative_to(CORPUS).as_posix().removesuffix(".expected.json")
    for path in CORPUS.glob("*valid/*/*.expected.json")
)
SCHEMAS = {known.id: Draft202012Validator(load_schema(known.id)) for known in FORMATS}
TOO_BIG = {"JSON-SIZE", "JSON-VALUES"}
"""Statements that only documents of megabytes break; the tests of strict reading break them."""


def manifest_of(name: str) -> bytes:
    return (CORPUS / f"{name}.json").read_bytes()


def expectation_of(name: str) -> dict[str, object]:
    expected = json.loads((CORPUS / f"{name}.expected.json").read_text(encoding="utf-8"))
    assert isinstance(expected, dict)
    return expected


def expected_findings(name: str) -> set[tuple[str, str, str]]:
    findings = expectation_of(name)["findings"]
    assert isinstance(findings, list)
    return {(one["requirement"], one["severity"], one["pointer"]) for one in findings}


def test_committed_corpus_is_what_the_script_writes() -> None:
    assert generate.main(["--check"]) == 0


def test_corpus_is_large_enough() -> None:
    assert sum(name.startswith("valid/") for name in CASES) >= 25
    assert sum(name.startswith("invalid/") for name in CASES) >= 80


@pytest.mark.parametrize("name", CASES)
def test_findings_are_exactly_the_expected_ones(name: str) -> None:
    findings = check_manifest(manifest_of(name), "manifest.json").findings
    found = {(one.requirement, one.severity, one.pointer) for one in findings}
    assert found == expected_findings(name)


@pytest.mark.parametrize("name", CASES)
def test_folder_tells_whether_there_are_errors_or_warnings(name: str) -> None:
    flawed = any(severity != "info" for _, severity, _ in expected_findings(name))
    assert name.startswith("invalid/") == flawed


@pytest.mark.parametrize("name", CASES)
def test_schema_alone_decides_as_expected(name: str) -> None:
    verdict = expectation_of(name)["schema_valid"]
    if verdict is None:
        unsound = [one for one, _, _ in expected_findings(name) if one.startswith("JSON-")]
        assert unsound
    else:
        value = json.loads(manifest_of(name))
        # A misspelt format is judged by the schema of the folder that the case is in.
        folder = name.split("/")[1]
        schema = SCHEMAS[value["format"] if folder == "json" else folder]
        assert schema.is_valid(value) == verdict


def test_every_statement_on_manifests_has_a_case_that_breaks_it() -> None:
    broken = {requirement for name in CASES for requirement, _, _ in expected_findings(name)}
    stated = {one.id for one in requirements().values() if one.checked_by == "manifest"}
    assert broken == stated - TOO_BIG


@pytest.mark.parametrize(
    ("prefix", "rules"), [("DQ1", dashq_manifest.RULES), ("BN1", bitnest_manifest.RULES)]
)
def test_rules_and_structure_are_the_statements_on_manifests(
    prefix: str, rules: dict[str, object]
) -> None:
    stated = {
        one.id
        for one in requirements().values()
        if one.checked_by == "manifest" and one.id.startswith(f"{prefix}-")
    }
    assert set(rules) | set(KINDS[prefix]) == stated
    assert not set(rules) & set(KINDS[prefix])
