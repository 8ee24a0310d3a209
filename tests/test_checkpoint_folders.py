"""Folders as they come: names, limits, files that cannot be read, and how a run then ends."""

import json
import os
from pathlib import Path

import pytest
from nibblespec.conformance import InputError, validate
from nibblespec.conformance.artifacts import checkpoint
from nibblespec.conformance.artifacts.reading import folder
from nibblespec.conformance.cli import app
from nibblespec.conformance.examples.files import INDEX
from nibblespec.conformance.examples.models import BITNEST, DASHQ, SHARDS
from nibblespec.conformance.examples.write import example_files, write_files
from typer.testing import CliRunner


@pytest.fixture
def dashq(tmp_path: Path) -> Path:
    """Return the folder of the valid dashq example."""
    write_files(tmp_path, example_files(DASHQ))
    return tmp_path


def broken(path: Path) -> set[str]:
    return {found.requirement for found in validate(path)}


def test_a_limit_on_tensors_stops_the_reading(dashq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_TENSORS", 50)
    [found] = validate(dashq)
    assert (found.requirement, found.file) == ("ST-TENSOR-COUNT", SHARDS[1])


def test_as_many_tensors_as_the_limit_are_fine(
    dashq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = json.loads((dashq / INDEX).read_bytes())
    monkeypatch.setattr(checkpoint, "MAX_TENSORS", len(index["weight_map"]))
    assert validate(dashq) == []


@pytest.mark.parametrize("name", ["config.json", INDEX, SHARDS[0]])
def test_a_file_that_cannot_be_read_is_one_line_and_the_status_2(
    dashq: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = os.open

    def refuse(path: Path, *rest: int) -> int:
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        validate(dashq)
    result = CliRunner().invoke(app, ["validate", str(dashq)])
    assert result.exit_code == 2
    assert result.stderr == f"nibblespec: {dashq / name}: Permission denied\n"


def test_a_file_that_changes_is_one_line(dashq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folder.read_exactly

    def read_and_write(descriptor: int, count: int) -> bytes:
        with (dashq / "config.json").open("ab") as stream:
            stream.write(b" ")
        return real(descriptor, count)

    monkeypatch.setattr(folder, "read_exactly", read_and_write)
    with pytest.raises(InputError, match=r"config\.json: the file changed while it was read"):
        validate(dashq)


@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_a_folder_in_place_of_a_document_is_a_finding(dashq: Path, name: str) -> None:
    (dashq / name).unlink()
    (dashq / name).mkdir()
    [found] = validate(dashq)
    assert found.found == "a folder"


@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_a_pipe_in_place_of_a_document_is_a_finding(dashq: Path, name: str) -> None:
    (dashq / name).unlink()
    os.mkfifo(dashq / name)
    [found] = validate(dashq)
    assert found.found == "a pipe"


def test_a_name_that_is_no_unicode_is_reported_in_every_form(dashq: Path) -> None:
    stray = os.fsencode(dashq) + b"/\xff.safetensors"
    with open(stray, "wb") as stream:
        stream.write(b"\x02" + bytes(7) + b"{}")
    assert broken(dashq) == {"ST-SHARD-LISTED"}
    for form in ("text", "json", "sarif"):
        result = CliRunner().invoke(app, ["validate", str(dashq), "--format", form])
        assert result.exit_code == 1
        assert "ST-SHARD-LISTED" in result.output


def test_a_pickle_in_a_subfolder_is_reported(dashq: Path) -> None:
    (dashq / "old").mkdir()
    (dashq / "old" / "pytorch_model-1.bin").write_bytes(b"")
    [found] = validate(dashq)
    assert (found.requirement, found.file) == ("ST-FILE-PICKLE", "old/pytorch_model-1.bin")


@pytest.mark.parametrize("place", [".cache/model.bin", "old/model.safetensors", "old/model.txt"])
def test_other_files_in_subfolders_are_left_aside(dashq: Path, place: str) -> None:
    (dashq / place).parent.mkdir()
    (dashq / place).write_bytes(b"")
    assert validate(dashq) == []


def test_the_rotation_is_a_surprise_where_the_format_has_none(dashq: Path) -> None:
    (dashq / "rotation").mkdir()
    (dashq / "rotation" / "R.bin").write_bytes(b"")
    assert broken(dashq) == {"ST-FILE-PICKLE"}


def test_a_pickle_beside_a_package_is_one_whatever_its_rotation(tmp_path: Path) -> None:
    write_files(tmp_path, {**example_files(BITNEST, "rotation"), "R.bin": b""})
    assert broken(tmp_path) == {"BN1-FILES-ROTATION", "ST-FILE-PICKLE"}


def test_no_byte_of_a_pickle_or_of_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {**example_files(BITNEST, "rotation"), "R.bin": b""})
    opened: list[str] = []
    sizes: list[int] = []
    real_open, real_read = os.open, os.read

    def note_open(path: Path, *rest: int) -> int:
        opened.append(Path(path).name)
        return real_open(path, *rest)

    def note_read(descriptor: int, count: int) -> bytes:
        sizes.append(count)
        return real_read(descriptor, count)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "read", note_read)
    validate(tmp_path)
    assert sorted(opened) == ["aux.safetensors", "config.json", "meta.json", "planes.safetensors"]
    assert max(sizes) < 20_000
