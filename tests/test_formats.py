"""Which format a manifest is of, and reading one into its model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nibblespec.spec import read_manifest
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest
from nibblespec.spec.formats import FORMATS, Format, ManifestError, detect
from nibblespec.spec.pieces import BATCH
from nibblespec.spec.requirements import DOCUMENTS

EXAMPLES = Path(__file__).parent.parent / "examples"
MODULE = {
    "nbits": 4,
    "group_size": 32,
    "in_features": 64,
    "out_features": 8,
    "num_groups": 16,
    "packing": "int4_packed_u32",
    "scale_zero_dtype": "float16",
    "linear_dtype": "bfloat16",
}


def write(folder: Path, value: object, name: str = "dashq_config.json") -> Path:
    """Write a value as JSON and return its file."""
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return file


def message_of(path: Path) -> str:
    """Return what read_manifest says about a manifest that it refuses."""
    with pytest.raises(ManifestError) as caught:
        read_manifest(path)
    return str(caught.value)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.id)
def test_format_is_told_by_the_key_format(known: Format) -> None:
    assert detect({"format": known.id}) is known


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        "dashq-packed-linear",
        ["dashq-packed-linear"],
        {},
        {"format": None},
        {"format": ["dashq-packed-linear"]},
        {"format": {"dashq-packed-linear": 1}},
        {"format": "DASHQ-packed-linear"},
        {"format": "bitnest-package-v2"},
        {"dashq": {"format": "dashq-packed-linear"}},
    ],
)
def test_other_values_are_of_no_format(value: object) -> None:
    assert detect(value) is None


def test_unknown_version_does_not_hide_the_format() -> None:
    known = detect({"format": "dashq-packed-linear", "format_version": 99})
    assert known is not None
    assert known.id == "dashq-packed-linear"


def test_every_format_has_its_text() -> None:
    assert {known.document for known in FORMATS} <= set(DOCUMENTS)


def test_reads_the_dashq_example() -> None:
    manifest = read_manifest(EXAMPLES / "dashq_config.json")
    assert isinstance(manifest, DashqManifest)
    assert len(manifest.quantized_modules) == 248


def test_reads_the_bitnest_example() -> None:
    manifest = read_manifest(str(EXAMPLES / "meta.json"))
    assert isinstance(manifest, BitnestManifest)
    assert len(manifest.layers) == 197


def test_reads_the_manifest_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, (EXAMPLES / "meta.json").read_text(encoding="utf-8"), "meta.json")
    assert isinstance(read_manifest(tmp_path), BitnestManifest)


def test_reads_a_minimal_manifest_with_its_defaults(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"format": "dashq-packed-linear", "format_version": 1, "quantized_modules": {"m": MODULE}},
    )
    manifest = read_manifest(file)
    assert isinstance(manifest, DashqManifest)
    assert manifest.model_class == "causal_lm"
    assert manifest.quantized_modules["m"].quant_in_features == 64


def test_keeps_unknown_keys(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "quantized_modules": {"m": MODULE | {"vendor": {"a": [1]}}},
        },
    )
    manifest = read_manifest(file)
    assert isinstance(manifest, DashqManifest)
    assert manifest.quantized_modules["m"].model_extra == {"vendor": {"a": [1]}}


def test_folder_without_manifest_is_refused_with_the_names_looked_for(tmp_path: Path) -> None:
    message = message_of(tmp_path)
    assert "no manifest in it: expected dashq_config.json or meta.json" in message


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert "No such file or directory" in message_of(tmp_path / "meta.json")


def test_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.json")
    for path in (tmp_path, tmp_path / "meta.json"):
        assert "is a pipe or device, which is not opened; expected a file" in message_of(path)


def test_device_is_refused() -> None:
    assert "is a pipe or device" in message_of(Path("/dev/zero"))


def test_pipe_that_takes_the_place_of_the_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, {})
    regular = file.stat()
    file.unlink()
    os.mkfifo(file)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: regular)
    assert "is a pipe or device" in message_of(file)


def test_folder_in_place_of_the_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").mkdir()
    assert "is a folder; expected a manifest" in message_of(tmp_path)


def test_path_that_cannot_exist_is_refused() -> None:
    assert "embedded null byte" in message_of(Path("a\0b"))


def test_broken_json_is_refused_with_its_place(tmp_path: Path) -> None:
    message = message_of(
        write(tmp_path, '{"format": "dashq-packed-linear",\n "results": {"a": NaN}')
    )
    assert "/results/a (line 2, column 19): a number is not finite" in message
    assert "line 2, column 23" in message


def test_duplicate_key_is_refused_with_its_path(tmp_path: Path) -> None:
    message = message_of(write(tmp_path, '{"a": {"b": 1, "b": 2}}'))
    assert "/a/b (line 1, column 16): an object holds the same key twice" in message


def test_large_integer_is_no_reason_to_refuse(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "quantized_modules": {},
            "results": {"seed": 2**63},
        },
    )
    assert isinstance(read_manifest(file), DashqManifest)


def test_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    message = message_of(write(tmp_path, {"format": "gptq"}))
    assert (
        'expected "dashq-packed-linear" or "bitnest-package-v1" under the key "format"' in message
    )


def test_structure_errors_are_listed_with_pointers(tmp_path: Path) -> None:
    module = {key: value for key, value in MODULE.items() if key != "in_features"}
    message = message_of(
        write(
            tmp_path,
            {
                "format": "dashq-packed-linear",
                "format_version": 99,
                "quantized_modules": {"a/b": module | {"nbits": True}},
            },
        )
    )
    assert "/format_version: " in message
    assert "/quantized_modules/a~1b/nbits: Input should be a valid integer" in message
    assert "/quantized_modules/a~1b/in_features: Field required" in message
    assert "quant_in_features" not in message  # it was not given and follows from in_features


def test_long_lists_of_errors_are_cut_and_counted(tmp_path: Path) -> None:
    manifest = {
        "format": "dashq-packed-linear",
        "format_version": 1,
        "quantized_modules": {f"m{i}": MODULE | {"nbits": 0} for i in range(248)},
    }
    lines = message_of(write(tmp_path, manifest)).splitlines()
    assert len(lines) == 12
    assert lines[-1].strip() == "and 238 more"


def test_errors_of_a_hostile_manifest_are_not_held_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    validate = DashqManifest.model_validate

    def counted(value: dict[str, dict[str, object]]) -> DashqManifest:
        sizes.append(len(value["quantized_modules"]))
        return validate(value)

    monkeypatch.setattr(DashqManifest, "model_validate", counted)
    modules: dict[str, object] = {f"m{i}": {} for i in range(2 * BATCH)}
    identity = {"format": "dashq-packed-linear", "format_version": 1}
    message = message_of(write(tmp_path, identity | {"quantized_modules": modules}))
    assert sizes == [BATCH]
    assert message.endswith(f"and at least {8 * BATCH - 10} more")


def test_error_in_the_last_entry_of_a_large_manifest_is_found(tmp_path: Path) -> None:
    modules = {f"m{i}": MODULE for i in range(BATCH)} | {"last": MODULE | {"nbits": 0}}
    identity = {"format": "dashq-packed-linear", "format_version": 1}
    assert "/quantized_modules/last/nbits" in message_of(
        write(tmp_path, identity | {"quantized_modules": modules})
    )


def test_large_manifest_is_read_whole(tmp_path: Path) -> None:
    modules = {f"m{i}": MODULE for i in range(BATCH + 1)}
    identity = {"format": "dashq-packed-linear", "format_version": 1}
    manifest = read_manifest(write(tmp_path, identity | {"quantized_modules": modules}))
    assert isinstance(manifest, DashqManifest)
    assert len(manifest.quantized_modules) == BATCH + 1


def test_problem_without_a_place_names_none(tmp_path: Path) -> None:
    file = tmp_path / "meta.json"
    file.write_bytes("{}".encode("utf-16"))
    assert "the document: the document is not plain UTF-8" in message_of(file)


def test_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(ManifestError, match="the path is empty"):
        read_manifest("")


def test_importing_the_package_builds_no_models() -> None:
    code = "import sys, nibblespec.spec, nibblespec.spec.requirements; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "pydantic" not in loaded
