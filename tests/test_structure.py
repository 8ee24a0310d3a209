"""The structure of a manifest: every breach is a finding in terms of JSON, and nothing raises."""

import itertools
import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.artifacts.manifest import check_manifest
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.schemas.corpus import bitnest, dashq
from nibblespec.schemas.corpus.cases import drop, put
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest

EXAMPLES = Path(__file__).parent.parent / "examples"
Json: TypeAlias = Any  # a JSON value, of the type that the test gives it


def findings(manifest: Json) -> list[Finding]:
    return check_manifest(json.dumps(manifest).encode(), "manifest.json").findings


def only(manifest: Json) -> Finding:
    """Return the one finding of a manifest."""
    (found,) = findings(manifest)
    return found


@pytest.mark.parametrize("name", ["dashq_config.json", "meta.json"])
def test_published_manifests_have_no_findings(name: str) -> None:
    report = check_manifest((EXAMPLES / name).read_bytes(), name)
    assert report.findings == []


def test_report_holds_format_and_typed_manifest() -> None:
    dashq_report = check_manifest(json.dumps(dashq.PLAIN).encode(), "")
    bitnest_report = check_manifest(json.dumps(bitnest.PLAIN).encode(), "")
    assert dashq_report.format
    assert dashq_report.format.id == "dashq-packed-linear"
    assert isinstance(dashq_report.manifest, DashqManifest)
    assert bitnest_report.format
    assert bitnest_report.format.id == "bitnest-package-v1"
    assert isinstance(bitnest_report.manifest, BitnestManifest)


def test_broken_structure_leaves_no_manifest_but_the_format() -> None:
    report = check_manifest(json.dumps(drop(dashq.PLAIN, "format_version")).encode(), "")
    assert report.manifest is None
    assert report.format
    assert report.format.id == "dashq-packed-linear"


def test_findings_carry_the_file_and_the_section() -> None:
    report = check_manifest(json.dumps(put(dashq.PLAIN, 2, "format_version")).encode(), "a.json")
    assert report.findings[0].file == "a.json"
    assert report.findings[0].section == "3.1 Structure"


def test_missing_key_is_reported_at_the_object_that_lacks_it() -> None:
    found = only(drop(dashq.PLAIN, *dashq.HERE, "packing"))
    assert found.pointer == dashq.AT
    assert found.expected == "the key `packing`"
    assert found.found == "an object with 8 keys"


def test_wrong_type_is_said_in_terms_of_json() -> None:
    found = only(put(dashq.PLAIN, None, *dashq.HERE, "in_features"))
    assert found.message == "`in_features` has the wrong type"
    assert (found.expected, found.found) == ("an integer", "null")


def test_missing_width_is_one_finding_although_a_default_depends_on_it() -> None:
    manifest = drop(drop(dashq.PLAIN, *dashq.HERE, "in_features"), *dashq.HERE, "quant_in_features")
    assert only(manifest).message == "the key `in_features` is missing"


def test_wrong_value_names_the_values_that_may_stand_there() -> None:
    found = only(put(bitnest.PLAIN, "mistral", "arch"))
    assert (found.expected, found.found) == ('"llama" or "qwen2"', '"mistral"')


def test_wrong_version_is_its_own_requirement() -> None:
    found = only(put(dashq.PLAIN, True, "format_version"))
    assert found.requirement == "DQ1-FORMAT-VERSION"
    assert (found.expected, found.found) == ("1", "true")


def test_shape_of_three_numbers_is_shown() -> None:
    found = only(put(bitnest.PLAIN, [1, 2, 3], "layers", bitnest.DOWN, "shape"))
    assert (found.expected, found.found) == ("2 values", "[1, 2, 3]")


def test_messages_are_the_same_for_every_module() -> None:
    modules = {f"layers.0.{name}": dashq.module(8, 64, nbits=4) for name in "abc"}
    manifest = dashq.manifest({name: drop(one, "packing") for name, one in modules.items()})
    assert len(findings(manifest)) == 3
    assert len({found.message for found in findings(manifest)}) == 1


def test_a_module_that_is_no_object_is_not_named_in_the_message() -> None:
    found = only(put(dashq.PLAIN, 7, *dashq.HERE))
    assert found.message == "an entry of `quantized_modules` has the wrong type"
    assert found.pointer == dashq.AT


def test_misspelt_key_is_reported_beside_the_missing_one_with_a_suggestion() -> None:
    manifest = put(drop(dashq.PLAIN, *dashq.HERE, "group_size"), 32, *dashq.HERE, "group_sise")
    missing, unknown = findings(manifest)
    assert missing.requirement == "DQ1-FIELD-REQUIRED"
    assert unknown.requirement == "DQ1-FIELD-UNKNOWN"
    assert unknown.hint == "did you mean `group_size`?"


def test_unknown_keys_are_found_in_nested_objects() -> None:
    manifest = put(bitnest.FULL, 1, "online_hadamard", "layers", bitnest.DOWN, "extra")
    found = only(manifest)
    assert found.severity == "info"
    assert found.pointer == f"/online_hadamard/layers/{bitnest.DOWN}/extra"


def test_many_unknown_keys_of_one_object_are_counted() -> None:
    found = findings(dashq.PLAIN | {f"x{number}": 0 for number in range(1000)})
    assert len(found) == 9
    assert found[-1].found == "992 more"


def test_unknown_keys_that_are_all_listed_are_not_counted() -> None:
    found = findings(dashq.PLAIN | {f"x{number}": 0 for number in range(8)})
    assert [one.pointer for one in found] == [f"/x{number}" for number in range(8)]


def test_a_large_manifest_without_its_other_objects_is_checked() -> None:
    layers = {f"model.layers.{number}.mlp.up_proj": bitnest.layer(2, 128) for number in range(9000)}
    found = findings(drop(bitnest.manifest(layers), "activation"))
    assert [(one.requirement, one.message) for one in found] == [
        ("BN1-FIELD-REQUIRED", "the key `activation` is missing")
    ]


def test_all_broken_modules_of_a_large_manifest_are_found() -> None:
    modules = {f"layers.{number}.a": dashq.module(8, 64) for number in range(9000)}
    modules["layers.0.a"]["nbits"] = modules["layers.8999.a"]["nbits"] = 9
    pointers = [found.pointer for found in findings(dashq.manifest(modules))]
    assert pointers == [
        "/quantized_modules/layers.0.a/nbits",
        "/quantized_modules/layers.8999.a/nbits",
    ]


def test_a_broken_top_level_of_a_large_manifest_is_reported_once() -> None:
    modules = {f"layers.{number}.a": dashq.module(8, 64) for number in range(9000)}
    assert only(dashq.manifest(modules) | {"method": 1}).pointer == "/method"


def test_a_million_faults_are_counted_and_not_kept() -> None:
    modules: Json = {f"{number:x}": {} for number in range(100_000)}
    found = findings(dashq.manifest(modules))
    assert len(found) < 20_000
    assert {one.requirement for one in found} == {"DQ1-FIELD-REQUIRED"}


def test_null_that_the_reader_put_for_nan_is_not_reported_again() -> None:
    text = json.dumps(put(bitnest.FULL, "NAN", "group_size")).replace('"NAN"', "NaN")
    (found,) = check_manifest(text.encode(), "").findings
    assert found.requirement == "JSON-NONFINITE"
    assert found.line == 1


@pytest.mark.parametrize("format_value", [None, 5, "bitnest-package-v2", [], {}])
def test_a_manifest_with_a_wrong_format_is_told_by_its_other_keys(format_value: Json) -> None:
    found = only(put(bitnest.PLAIN, format_value, "format"))
    assert found.requirement == "BN1-FORMAT"
    assert found.pointer == "/format"


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text", [], {}, {"format": "gguf"}])
def test_what_is_no_manifest_is_one_finding(value: Json) -> None:
    assert only(value).requirement == "JSON-MANIFEST-FORMAT"


def test_keys_of_both_formats_tell_nothing() -> None:
    both: Json = {"quantized_modules": {}, "online_hadamard": {}}
    assert only(both).requirement == "JSON-MANIFEST-FORMAT"


@pytest.mark.parametrize("depth", [1, 60])
@pytest.mark.parametrize("key", ["format", "quantized_modules", "params", "results"])
def test_deep_values_anywhere_end_in_findings(key: str, depth: int) -> None:
    value: Json = 1
    for _ in range(depth):
        value = [value]
    found = findings(put(dashq.FULL, value, key))
    assert [one.pointer for one in found] == [f"/{key}"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        (-3, "-3"),
        ("é码", '"é码"'),
        ("a\x1b[31m\x9b\u202eb", r'"a\u001b[31m\u009b\u202eb"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("\ud800", r'"\ud800"'),
        ("x" * 100, '"' + "x" * 60 + '…" (100 characters)'),
        (10**40, "1000000000… (41 digits)"),
        (-(10**40), "-100000000… (41 digits)"),
        (1 << 16_609, "an integer of 16,610 bits"),
        ({}, "an object with 0 keys"),
        ({"a": 1}, "an object with 1 key"),
        ([[1]], "an array of 1 value"),
        ([1, None], "[1, null]"),
        (list(range(5)), "an array of 5 values"),
    ],
    ids=itertools.count(),
)
def test_values_are_shown_short_and_printable(value: Json, expected: str) -> None:
    assert show(value) == expected


def test_a_large_value_does_not_flood_the_finding() -> None:
    found = only(put(dashq.PLAIN, "y" * 10_000_000, *dashq.HERE, "packing"))
    assert len(found.found) < 100
    assert len(found.message) + len(found.expected) < 100


def test_a_name_of_megabytes_is_cut() -> None:
    found = only(dashq.manifest({"a" * 1_000_000: {}}))
    assert found.requirement == "DQ1-NAME-LENGTH"
    assert len(found.pointer) < 600
