"""Findings as text, JSON and SARIF."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.output.render_json import reports_json
from nibblespec.conformance.artifacts.output.render_sarif import reports_sarif, uri
from nibblespec.conformance.artifacts.output.render_text import MOST_ENTRIES, reports_text
from nibblespec.conformance.artifacts.validate import Failure, Level, Report
from nibblespec.conformance.terminal import plain, visible
from nibblespec.schemas import load_schema
from nibblespec.spec.formats import FORMATS, AnyManifest, read_manifest
from nibblespec.spec.requirements import Severity, requirements

ROOT = Path(__file__).parent.parent
SARIF = json.loads((ROOT / "tests/data/sarif-2.1.0.schema.json").read_text())
LONG_NAME = "model.language_model.layers.{}.linear_attn.in_proj_qkv"


def finding(**changes: Any) -> Finding:  # noqa: ANN401 (fields of several types)
    fields: dict[str, Any] = {
        "requirement": "DQ1-FIELD-TYPE",
        "severity": "error",
        "message": "`nbits` has the wrong type",
        "file": "dashq_config.json",
        "pointer": "/quantized_modules/m/nbits",
        "tensor": "",
        "expected": "an integer",
        "found": '"4"',
        "hint": "",
        "section": "3. Manifest",
    }
    return Finding(**(fields | changes))


def report(
    *findings: Finding,
    path: str = "checkpoint/dashq_config.json",
    manifest: AnyManifest | None = None,
    level: Level = "manifest",
) -> Report:
    return Report(
        path=path,
        folder="" if path == "-" else str(Path(path).parent),
        level=level,
        format=FORMATS[0],
        manifest=manifest,
        findings=findings,
    )


def of_every_module(**changes: Any) -> list[Finding]:  # noqa: ANN401 (as in finding)
    return [
        finding(pointer=f"/quantized_modules/{LONG_NAME.format(number)}/nbits", **changes)
        for number in range(248)
    ]


def text(*reports: Report, width: int = 80, colour: bool = False, strict: bool = False) -> str:
    return reports_text(reports, [], strict=strict, width=width, colour=colour)


def test_equal_findings_are_one_entry() -> None:
    shown = text(report(*of_every_module()), width=200)
    assert shown.count("error DQ1-FIELD-TYPE") == 1
    assert f"248 modules, e.g. /quantized_modules/{LONG_NAME.format(0)}/nbits" in shown
    assert "✗ checkpoint/dashq_config.json: 248 errors" in shown


def test_a_finding_about_the_whole_manifest_needs_no_place() -> None:
    shown = text(report(finding(pointer="", found="", expected="")))
    assert shown.splitlines()[1].startswith("✗")


def test_two_findings_in_one_module_are_two_places() -> None:
    shown = text(report(finding(), finding(pointer="/quantized_modules/m/group_size")))
    assert "2 places, e.g. /quantized_modules/m/nbits" in shown


def test_other_messages_of_a_requirement_are_other_entries() -> None:
    shown = text(report(finding(), finding(message="`packing` has the wrong type")))
    assert shown.count("error DQ1-FIELD-TYPE") == 2


def test_findings_that_are_not_listed_are_counted_with_those_that_are() -> None:
    more = finding(message="and 19,752 more findings of this requirement", unlisted=19_752)
    shown = text(report(*of_every_module(), more), width=200)
    assert shown.count("error DQ1-FIELD-TYPE") == 1
    assert "248 modules, e.g. " in shown
    assert ", and 19,752 more of this requirement" in shown
    assert ": 20,000 errors" in shown


def test_errors_come_first() -> None:
    severities: list[Severity] = ["info", "warning", "error"]
    shown = text(report(*(finding(severity=name, message=name) for name in severities)))
    order = [line.split()[0] for line in shown.splitlines() if "DQ1-FIELD-TYPE: " in line]
    assert order == ["error", "warning", "info"]


def test_an_entry_shows_place_contrast_and_hint() -> None:
    shown = text(report(finding(hint="write 4", line=3, column=14)))
    assert shown.splitlines()[:4] == [
        "error DQ1-FIELD-TYPE: `nbits` has the wrong type",
        "    line 3, column 14: /quantized_modules/m/nbits",
        '    expected an integer, found "4"',
        "    hint: write 4",
    ]


def test_a_finding_in_another_file_names_it() -> None:
    assert "    meta.json: /quantized_modules/m/nbits" in text(report(finding(file="meta.json")))


def test_a_finding_in_a_tensor_names_it() -> None:
    shown = text(report(finding(file="model.safetensors", pointer="", tensor="m.scale")))
    assert "    model.safetensors: tensor m.scale" in shown


def test_many_kinds_of_findings_are_cut_and_counted() -> None:
    findings = [finding(message=f"message {number}") for number in range(MOST_ENTRIES + 30)]
    shown = text(report(*findings))
    assert "and 30 more kinds of finding: --format json has all" in shown
    assert "✗ checkpoint/dashq_config.json: 42 errors" in shown
    assert len(shown.splitlines()) <= 3 * MOST_ENTRIES + 2


def test_a_clean_manifest_is_one_line_that_says_what_was_checked() -> None:
    manifest = read_manifest(ROOT / "examples/dashq_config.json")
    assert text(report(manifest=manifest), width=200) == (
        "✓ checkpoint/dashq_config.json: valid manifest of dashq-packed-linear v1, "
        "248 modules, 6,918,504,448 weights\n"
    )


def test_a_clean_folder_says_how_far_it_was_checked() -> None:
    manifest = read_manifest(ROOT / "examples/dashq_config.json")
    shown = text(report(manifest=manifest, level="headers", path="checkpoint"), width=200)
    assert shown.startswith(
        "✓ checkpoint: valid checkpoint (headers checked) of dashq-packed-linear v1, 248 modules"
    )


def test_a_warning_passes_unless_strict() -> None:
    warned = report(finding(severity="warning"))
    assert "✓ checkpoint/dashq_config.json: valid manifest" in text(warned)
    assert "✗" in text(warned, strict=True)
    assert "1 warning, which --strict forbids" in text(warned, strict=True, width=200)


def test_several_paths_end_in_a_tally() -> None:
    failures = [Failure(path="c", message="c: No such file or directory")]
    shown = reports_text(
        [report(), report(finding())], failures, strict=False, width=80, colour=False
    )
    assert shown.splitlines()[-1] == "1 valid, 1 with errors, 1 could not be read"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    shown = text(report(*of_every_module(hint="word " * 50, found="x" * 500)), width=width)
    assert max(len(line) for line in shown.splitlines()) <= width


def test_colours_are_there_where_asked_for_and_nowhere_else() -> None:
    assert "\x1b[1;31m" in text(report(finding()), colour=True)
    assert "\x1b" not in text(report(finding()), colour=False)


HOSTILE = "\x1b[2J\x9b31m[red]\u202e\u200b\r\x00\ud800"
ESCAPED = r"\x1b[2J\x9b31m[red]\u202e\u200b\r\x00\ud800"


@pytest.mark.parametrize("field", ["message", "pointer", "tensor", "file", "expected", "hint"])
def test_nothing_hostile_reaches_the_terminal(field: str) -> None:
    shown = text(report(finding(**{field: HOSTILE})), width=200)
    assert ESCAPED in shown
    assert all(mark.isprintable() for mark in shown.replace("\n", ""))


def test_a_hostile_path_does_not_reach_the_terminal() -> None:
    assert ESCAPED in text(report(path=HOSTILE), width=200)


def test_long_values_lose_their_middle() -> None:
    short = visible("a" * 5000 + "b" * 5000)
    assert len(short) < 200
    assert short.startswith("aaa")
    assert short.endswith("bbb (10,000 characters)")


def test_plain_encodings_get_look_alikes_of_the_same_width() -> None:
    assert plain("✓ 2 × 3 … – ü", "ascii") == "+ 2 x 3 ~ - \\xfc"


def test_json_follows_its_schema() -> None:
    reports = [report(*of_every_module(line=1, column=2)), report()]
    failures = [Failure(path="x", message="x: No such file or directory")]
    document = json.loads(reports_json(reports, failures, version="1.2.3"))
    jsonschema.validate(document, load_schema("findings"))
    assert len(document["reports"][0]["findings"]) == 248
    assert document["reports"][1]["worst"] is None
    assert document["failures"] == [{"path": "x", "message": "x: No such file or directory"}]


def test_json_tells_how_many_findings_are_not_listed() -> None:
    document = json.loads(reports_json([report(finding(unlisted=7))], [], version="0"))
    jsonschema.validate(document, load_schema("findings"))
    assert document["reports"][0]["findings"][0]["unlisted"] == 7


def test_the_schema_of_findings_refuses_an_unknown_severity() -> None:
    document = json.loads(reports_json([report(finding())], [], version="1.2.3"))
    document["reports"][0]["findings"][0]["severity"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, load_schema("findings"))


def test_json_leaves_out_what_is_empty() -> None:
    document = json.loads(reports_json([report(finding())], [], version="1.2.3"))
    assert document["reports"][0]["findings"] == [
        {
            "requirement": "DQ1-FIELD-TYPE",
            "severity": "error",
            "message": "`nbits` has the wrong type",
            "file": "dashq_config.json",
            "pointer": "/quantized_modules/m/nbits",
            "expected": "an integer",
            "found": '"4"',
            "section": "3. Manifest",
        }
    ]


def test_json_and_sarif_are_ascii_and_without_lone_surrogates() -> None:
    hostile = report(finding(message=HOSTILE, file="\udcff.json"), path="\udcff")
    for document in (
        reports_json([hostile], [], version="1"),
        reports_sarif([hostile], [], version="1"),
    ):
        assert document.isascii()
        assert "\x1b" not in document
        json.dumps(json.loads(document), ensure_ascii=False).encode("utf-8")


def sarif(*reports: Report, failures: list[Failure] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(reports_sarif(reports, failures or [], version="1.2.3"))
    jsonschema.validate(document, SARIF, format_checker=jsonschema.FormatChecker())
    return document


@pytest.mark.parametrize("severity", ["error", "warning", "info"])
def test_sarif_follows_the_published_schema(severity: Severity) -> None:
    found = [finding(severity=severity, line=2, column=7), finding(tensor="m.scale", pointer="")]
    document = sarif(report(*found), report(), report(finding(), path="-"))
    levels = {"error": "error", "warning": "warning", "info": "note"}
    assert document["runs"][0]["results"][0]["level"] == levels[severity]


def test_a_document_that_is_no_sarif_is_refused_by_the_schema() -> None:
    document = sarif(report(finding()))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SARIF)


def test_sarif_rules_carry_the_text_of_the_requirement() -> None:
    run = sarif(report(finding(), finding(requirement="JSON-SYNTAX"), finding()))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["DQ1-FIELD-TYPE", "JSON-SYNTAX"]
    assert rules[1]["fullDescription"]["text"] == requirements()["JSON-SYNTAX"].text
    assert [result["ruleIndex"] for result in run["results"]] == [0, 1, 0]


def test_sarif_locations_have_file_region_and_pointer() -> None:
    run = sarif(report(finding(line=2, column=7), path="a b/dashq_config.json"))["runs"][0]
    assert run["results"][0]["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "a%20b/dashq_config.json"},
                "region": {"startLine": 2, "startColumn": 7},
            },
            "logicalLocations": [{"fullyQualifiedName": "/quantized_modules/m/nbits"}],
        }
    ]


@pytest.mark.parametrize(
    ("folder", "file", "expected"),
    [
        (".", "meta.json", "meta.json"),
        ("../up", "meta.json", "../up/meta.json"),
        ("", "a:b#c?d%.json", "a%3Ab%23c%3Fd%25.json"),
        ("ü", "\udcff.json", "%C3%BC/%FF.json"),
        ("/abs", "meta.json", "file:///abs/meta.json"),
    ],
)
def test_uris_are_encoded(folder: str, file: str, expected: str) -> None:
    assert uri(folder, file) == expected


def test_sarif_tells_what_could_not_be_read() -> None:
    failure = Failure(path="x", message="x: No such file or directory")
    (invocation,) = sarif(failures=[failure])["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == failure.message
