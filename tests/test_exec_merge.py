"""`nibblespec report merge`: many reports, one table."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from nibblespec.conformance.suite.files import write_whole
from nibblespec.conformance.suite.merge import (
    ReportError,
    merge,
    merged_json,
    merged_markdown,
    read_report,
)
from nibblespec.conformance.suite.run import run
from nibblespec.reference import backend as reference
from nibblespec.schemas import load_schema

from tests.suite_backends import Changed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the reports of two backends."""
    path = tmp_path_factory.mktemp("reports")
    changed = Changed({"pack_words": lambda codes, nbits: -reference.pack_words(codes, nbits)})
    for name, backend in (("a", reference), ("b", changed)):
        report = f"--report={path / f'{name}.json'}"
        run(backend, files=["test_packing.py"], max_examples=1, arguments=[report])
    return path


@pytest.fixture
def reports(folder: Path) -> list[Any]:
    return [read_report(folder / f"{name}.json") for name in "ab"]


def test_merged_report_is_what_its_schema_says(reports: list[Any]) -> None:
    schema = load_schema("merged-report")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(merged_json(merge(reports))), schema)


def test_results_stand_beside_each_other(reports: list[Any]) -> None:
    merged = merge(reports)
    assert [one["label"] for one in merged["backends"]] == ["reference", "changed"]
    rows = {row["id"]: row["results"] for row in merged["requirements"]}
    assert rows["DQ1-PACKING-ORDER"] == ["pass", "fail"]
    assert rows["BN1-PLANES-ORDER"] == ["skipped", "skipped"]
    ids = [row["id"] for row in reports[0]["requirements"]]
    assert [row["id"] for row in merged["requirements"]] == ids


def test_requirement_that_a_report_lacks_has_no_result(reports: list[Any]) -> None:
    del reports[0]["requirements"][3]
    reports[1]["requirements"][5]["id"] = "DQ9-LATER"
    merged = merge(reports)
    rows = {row["id"]: row["results"] for row in merged["requirements"]}
    assert rows[reports[1]["requirements"][3]["id"]][0] is None
    assert list(rows)[-1] == "DQ9-LATER"
    assert rows["DQ9-LATER"] == [None, "skipped"]
    jsonschema.validate(merged, load_schema("merged-report"))


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        (({}, {"name": "x"}), ["reference", "x"]),
        (({"version": "1"}, {"version": "2"}), ["reference 1", "reference 2"]),
        (({"device": "cpu"}, {"device": "gpu"}), ["reference 1 cpu", "reference 1 gpu"]),
        (({}, {}), ["reference 1 cpu reference", "reference 1 cpu reference (2)"]),
    ],
)
def test_backends_are_told_apart_by_as_little_as_it_takes(
    reports: list[Any], changes: tuple[dict[str, str], ...], labels: list[str]
) -> None:
    same = {"name": "reference", "version": "1", "device": "cpu", "location": "reference"}
    pair = []
    for change in changes:
        report = copy.deepcopy(reports[0])
        report["backend"] |= same | change
        pair.append(report)
    assert [one["label"] for one in merge(pair)["backends"]] == labels


def test_markdown_has_a_row_for_every_backend_and_requirement(reports: list[Any]) -> None:
    text = merged_markdown(merge(reports))
    assert "| backend | version | device | suite | fail | error | skipped | pass | not-" in text
    assert "| requirement | level | reference | changed |" in text
    assert "| DQ1-PACKING-ORDER | MUST | pass | fail |" in text
    assert "## numerics.md" in text.replace("\\_", "_")


def test_names_cannot_break_the_table(reports: list[Any]) -> None:
    reports[0]["backend"]["name"] = "a|b\n<script>"
    text = merged_markdown(merge(reports))
    assert "| a\\|b\\\\n\\<script> |" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no JSON report"),
        (b"[]", "no report of nibblespec conformance --report FILE.json: the document"),
        (b'{"report_version": 2}', "no report of nibblespec conformance"),
        (b'{"a": NaN}', "no JSON report"),
    ],
)
def test_file_that_is_no_report_is_explained(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ReportError) as caught:
        read_report(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "from nibblespec.conformance.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "report", "merge", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_command_writes_both_forms_and_prints_one(folder: Path, tmp_path: Path) -> None:
    given = folder / "a.json", folder / "b.json"
    page, data = tmp_path / "t.md", tmp_path / "t.json"
    written = command(*given, "-o", page, "--output", data)
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert len(json.loads(data.read_text(encoding="utf-8"))["backends"]) == 2
    assert command(*given).stdout == page.read_text(encoding="utf-8")


def test_command_ends_with_2_where_something_cannot_be_read_or_written(folder: Path) -> None:
    missing = command(folder / "none.json")
    assert missing.returncode == 2
    assert "none.json: cannot be read" in missing.stderr
    wrong = command(folder / "a.json", "-o", folder / "t.txt")
    assert wrong.returncode == 2
    assert "--output: expected a .json or .md file" in wrong.stderr


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_and_devices_are_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.json")
    refused = command(tmp_path / "x.json")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "x.json: is a pipe or device, which is not opened" in refused.stderr


def test_pipes_are_not_written(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    refused = command(folder / "a.json", "-o", tmp_path / "x.json")
    assert refused.returncode == 2
    assert "--output: " in refused.stderr
    assert "x.json: is a pipe or device, which is not opened" in refused.stderr


@pytest.mark.parametrize("name", ["b.json", "link.json"])
def test_the_table_may_not_take_the_place_of_a_report(
    folder: Path, tmp_path: Path, name: str
) -> None:
    for report in "ab":
        shutil.copy(folder / f"{report}.json", tmp_path)
    (tmp_path / "link.json").symlink_to("b.json")
    before = (tmp_path / "b.json").read_bytes()
    given = tmp_path / "a.json", tmp_path / "b.json"
    refused = command(*given, "-o", tmp_path / "new.json", "-o", tmp_path / name)
    assert refused.returncode == 2
    assert f"would take the place of {given[1]}, which is read; name another" in refused.stderr
    assert (tmp_path / "b.json").read_bytes() == before
    assert not (tmp_path / "new.json").exists()


def test_a_report_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
