"""Reports of a run: JSON that its schema describes, Markdown that a person reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from nibblespec.conformance.suite.results import TestResult, by_requirement, result_of
from nibblespec.conformance.suite.run import run
from nibblespec.reference import backend as reference
from nibblespec.schemas import load_schema
from nibblespec.spec.requirements import requirements

from tests.suite_backends import Changed


def big_endian(codes: Any, nbits: int) -> Any:  # noqa: ANN401
    """Pack the first code into the highest bits: a fault."""
    return reference.pack_words(codes, nbits).byteswap()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both reports of a run that has results of every kind."""
    folder = tmp_path_factory.mktemp("reports")
    xfails = folder / "xfails"
    xfails.write_text(
        "DQ1-PACKING-SPARE-WRITTEN known | to us\nDQ1-PACKING-SPARE-READ fixed long ago\n"
    )
    backend = Changed(
        {"pack_words": big_endian, "pack_planes": lambda *_: 1 / 0},
        {"operations": ("pack_words", "unpack_words", "pack_planes"), "bit_widths": (3, 4)},
    )
    run(
        backend,
        files=["test_packing.py", "test_planes.py"],
        max_examples=5,
        arguments=[
            f"--report={folder / 'report.json'}",
            f"--report={folder / 'report.md'}",
            f"--xfails-file={xfails}",
        ],
    )
    return folder


@pytest.fixture(scope="module")
def report(written: Path) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON report."""
    return json.loads((written / "report.json").read_text(encoding="utf-8"))


def test_json_report_is_what_its_schema_says(report: Any) -> None:  # noqa: ANN401
    schema = load_schema("report")
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(report)] == []


def test_report_names_backend_suite_and_environment(report: Any) -> None:  # noqa: ANN401
    assert report["backend"]["name"] == "changed"
    assert report["backend"]["device"] == "cpu"
    assert report["backend"]["capabilities"]["bit_widths"] == [3, 4]
    assert report["suite"]["name"] == "nibblespec"
    assert set(report["environment"]) > {"python", "numpy", "ml_dtypes", "hypothesis"}
    assert report["settings"] == {"max_examples": 5, "seed": "0"}


def test_report_holds_every_requirement_of_backends_once(report: Any) -> None:  # noqa: ANN401
    stated = [one.id for one in requirements().values() if one.checked_by == "backend"]
    assert [row["id"] for row in report["requirements"]] == stated
    assert sum(report["summary"].values()) == len(stated)


@pytest.mark.parametrize(
    ("requirement", "result"),
    [
        ("DQ1-PACKING-ORDER", "fail"),
        ("DQ1-PACKING-SPARE-READ", "pass"),
        ("BN1-PLANES-ORDER", "error"),
        ("DQ1-PACKING-ROWS", "skipped"),
    ],
)
def test_results_are_those_of_the_tests(report: Any, requirement: str, result: str) -> None:  # noqa: ANN401
    row = next(row for row in report["requirements"] if row["id"] == requirement)
    assert row["result"] == result


def test_tests_are_listed_with_what_went_wrong(report: Any) -> None:  # noqa: ANN401
    row = next(row for row in report["requirements"] if row["id"] == "DQ1-PACKING-ORDER")
    golden = next(test for test in row["tests"] if test["test"].endswith("words_are_packed"))
    assert golden["result"] == "fail"
    assert golden["message"].startswith("pack_words: differs from the specification's value")


def test_overrides_are_in_sight(report: Any) -> None:  # noqa: ANN401
    found = {(one["requirement"], one["reason"], one["matched"]) for one in report["overrides"]}
    assert ("DQ1-PACKING-SPARE-WRITTEN", "expected failure: known | to us", True) in found
    assert ("DQ1-PACKING-SPARE-READ", "fixed long ago", False) in found


def test_overridden_failure_is_still_a_failure(report: Any) -> None:  # noqa: ANN401
    row = next(row for row in report["requirements"] if row["id"] == "DQ1-PACKING-SPARE-WRITTEN")
    assert row["result"] == "fail"
    assert row["tests"][0]["override"] == "expected failure: known | to us"


def test_markdown_report_says_the_same(written: Path, report: Any) -> None:  # noqa: ANN401
    page = (written / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# Conformance of changed 0\n")
    for row in report["requirements"]:
        assert f"| {row['id']} | {row['level']} | {row['result']} |" in page
    assert "known \\| to us" in page
    assert "| bit_widths | 3, 4 |" in page


def test_equal_runs_give_equal_reports(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        run(reference, files=["test_planes.py"], arguments=[f"--report={tmp_path / name}"])
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("report.txt", "expected a .json or .md file"),
        ("missing/report.json", "no folder"),
    ],
)
def test_report_that_cannot_be_written_stops_the_run_at_once(
    tmp_path: Path, name: str, said: str
) -> None:
    outcome = run(reference, files=["test_planes.py"], arguments=[f"--report={tmp_path / name}"])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert said in outcome.output
    assert outcome.results == ()


def result(name: str, *ids: str) -> TestResult:
    return TestResult(test="t", requirements=ids, result=name)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        (["pass", "fail", "error"], "fail"),
        (["pass", "error", "skipped"], "error"),
        (["pass", "skipped"], "skipped"),
        (["pass", "not-claimed"], "pass"),
        (["not-claimed"], "not-claimed"),
        ([], "skipped"),
    ],
)
def test_worst_result_of_its_tests_is_the_requirement_s(found: list[str], worst: str) -> None:
    assert result_of(result(name, "A") for name in found) == worst


def test_result_counts_for_each_of_its_requirements() -> None:
    both = result("pass", "A", "B")
    assert by_requirement([both], ["A", "B", "C"]) == {"A": [both], "B": [both], "C": []}
