"""Pages that are made from code say what the code says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from nibblespec.schemas import load_schema, schema_text
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.requirements import requirements

from tests.website.blocks import DOCS, ROOT

REPORTS = sorted((DOCS / "reports").glob("*.json"))
VENDORED = DOCS / "assets" / "check" / "cfworker-json-schema"


def test_every_must_has_a_check() -> None:
    from sitegen.checks import checks  # noqa: PLC0415  # found once conftest.py is loaded

    unchecked = [
        one.id
        for one in requirements().values()
        if one.level == "MUST" and checks()[one.id].count == 0
    ]
    assert unchecked == []


def test_matrix_has_every_statement_once(site: Path) -> None:
    text = (site / "requirements.html").read_text(encoding="utf-8")
    rows = re.findall(r'<tr>\s*<td><a href="[^"]*">([A-Z0-9-]+)</a></td>', text)
    assert rows == list(requirements())


def test_matrix_counts_the_statements(site: Path) -> None:
    text = (site / "requirements.html").read_text(encoding="utf-8")
    row = re.search(r"<td>all</td>((?:\s*<td>\d+</td>)+)", text)
    assert row is not None
    *levels, whole = map(int, re.findall(r"\d+", row[1]))
    stated = [one.level for one in requirements().values()]
    assert levels == [stated.count(level) for level in ("MUST", "SHOULD", "MAY")]
    assert whole == len(stated)


def test_every_statement_has_its_anchor(site: Path) -> None:
    from sitegen.references import address  # noqa: PLC0415

    for id_ in requirements():
        name, _, anchor = address(id_).partition("#")
        assert f'<a id="{anchor}"' in (site / name).read_text(encoding="utf-8"), id_


def test_schemas_of_the_site_are_the_committed_ones(site: Path) -> None:
    for known in FORMATS:
        served = (site / "schemas" / known.schema_name).read_text(encoding="utf-8")
        assert served == schema_text(known.id)


def test_every_version_of_a_format_is_in_the_site(site: Path) -> None:
    page = (site / "specification" / "versions.html").read_text(encoding="utf-8")
    for known in FORMATS:
        assert f"-v{known.version}.html" in page
        assert known.schema_name in page


def report_of(path: Path) -> dict[str, Any]:
    report = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(report, dict)
    return report


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_report_is_what_its_schema_says_and_names_known_statements(path: Path) -> None:
    report = report_of(path)
    assert not list(Draft202012Validator(load_schema("report")).iter_errors(report))
    stated = {one.id for one in requirements().values() if one.checked_by == "backend"}
    assert {row["id"] for row in report["requirements"]} - stated == set()


def test_report_of_the_reference_is_one_of_this_suite() -> None:
    """Other reports may be of an older suite, and the page says where: some take long to make."""
    from sitegen.checks import checks  # noqa: PLC0415

    found = {
        row["id"]: sorted({test["test"].partition("[")[0] for test in row["tests"]})
        for row in report_of(DOCS / "reports" / "reference.json")["requirements"]
    }
    stated = [one.id for one in requirements().values() if one.checked_by == "backend"]
    expected = {id_: checks()[id_].suite for id_ in stated}
    assert found == expected, "run: python docs/sitegen/make_report.py reference"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_report_is_shown_in_the_results(site: Path, path: Path) -> None:
    text = (site / "results.html").read_text(encoding="utf-8")
    assert f">{path.stem}</th>" in text


def test_report_of_the_reference_has_no_failure_and_no_gap() -> None:
    report = report_of(DOCS / "reports" / "reference.json")
    assert (report["summary"]["fail"], report["summary"]["error"]) == (0, 0)
    assert report["summary"]["skipped"] == 0


def test_reports_name_no_computer() -> None:
    for path in REPORTS:
        assert re.fullmatch(r"\w+ \w+", report_of(path)["environment"]["platform"]), path


def test_vendored_validator_is_what_was_published() -> None:
    """The digests are those of the files in the package 4.1.6 of the npm registry."""
    from hashlib import sha256  # noqa: PLC0415

    lines = (VENDORED / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name for path in VENDORED.iterdir()}
    assert files == {*listed, "SHA256SUMS", "LICENSE.txt"}
    for name, digest in listed.items():
        assert sha256((VENDORED / name).read_bytes()).hexdigest() == digest
    package = json.loads((VENDORED / "package.json").read_text(encoding="utf-8"))
    assert (package["version"], package["license"]) == ("4.1.6", "MIT")


def test_readme_and_site_show_the_same_picture() -> None:
    assert "docs/assets/formats.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "assets/formats.svg" in (DOCS / "index.md").read_text(encoding="utf-8")
