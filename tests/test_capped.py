"""The bound on how many findings are listed, and what is said of the others."""

from dataclasses import replace

from nibblespec.conformance.artifacts.capped import capped, in_file, of_requirement
from nibblespec.conformance.artifacts.findings import Finding, count

ONE = Finding(
    requirement="DQ1-FIELD-TYPE",
    severity="error",
    message="`nbits` has the wrong type",
    file="a.json",
    pointer="/a",
    tensor="a.scale",
    expected="an integer",
    found="null",
    hint="write an integer",
    section="Manifest",
    line=7,
    column=8,
)


def test_as_many_findings_as_the_bound_are_all_listed() -> None:
    assert list(capped([ONE] * 5, 5)) == [ONE] * 5


def test_what_is_not_listed_is_counted_and_has_no_place() -> None:
    last = list(capped([ONE] * 8, 5))[-1]
    assert last == Finding(
        requirement="DQ1-FIELD-TYPE",
        severity="error",
        message="and 3 more findings of this requirement",
        file="a.json",
        section="Manifest",
        unlisted=3,
    )


def test_every_file_has_its_own_bound() -> None:
    other = replace(ONE, file="b.json")
    assert len(list(capped([ONE, other] * 5, 5, in_file))) == 10
    assert len(list(capped([ONE, other] * 5, 5, of_requirement))) == 6


def test_what_was_cut_file_by_file_is_counted_on() -> None:
    files = [replace(ONE, file=name) for name in ("a.json", "b.json") for _ in range(100)]
    found = list(capped(capped(files, 10, in_file), 15, of_requirement))
    assert [each.unlisted for each in found] == [0] * 15 + [185]


def test_findings_are_counted_whether_listed_or_not() -> None:
    note = replace(ONE, requirement="ST-TENSOR-ALIGNMENT", severity="info")
    assert count(capped([ONE] * 1000 + [note] * 3, 10, in_file)) == {"error": 1000, "info": 3}
