"""What a conversion writes: the old folder or the new one, and only where it was asked to."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from nibblespec.optimized.convert import ConversionError, convert, folder
from nibblespec.optimized.convert.copies import PATTERNS

from tests.convert_kill import contents
from tests.convert_models import save_model

ROOT = Path(__file__).parent.parent

UNDECODABLE = os.fsdecode(b"\xff" * 120)
"""A name that is no UTF-8, as Linux allows."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model", "llama")


def test_a_killed_conversion_leaves_the_old_checkpoint_or_the_new_one(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").symlink_to(model)
    done = subprocess.run(
        [sys.executable, "-m", "tests.convert_kill", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed, finished = map(int, done.stdout.split())
    assert killed > 20
    # Some were killed after the exchange, while they removed the old folder.
    assert 0 < finished < killed


def unwanted(_done: int, _total: int) -> None:
    pytest.fail("something was converted")


def test_nothing_is_left_beside_a_checkpoint(model: Path, tmp_path: Path) -> None:
    convert(model, tmp_path / "out", to="dashq")
    convert(model, tmp_path / "out", to="dashq", bits=2, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_left_of_a_conversion_that_fails(model: Path, tmp_path: Path) -> None:
    def fail(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    convert(model, tmp_path / "out", to="dashq")
    before = contents(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        convert(model, tmp_path / "out", to="dashq", bits=2, overwrite=True, progress=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("exchange", [True, False])
def test_a_checkpoint_is_replaced_when_asked(
    exchange: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:  # as on systems that cannot
        monkeypatch.setattr(folder, "_exchange", lambda *_: False)
    convert(model, tmp_path / "a", to="dashq")
    convert(model, tmp_path / "b", to="bitnest", group_size=16)
    convert(model, tmp_path / "a", to="bitnest", group_size=16, overwrite=True)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_checkpoint_is_not_replaced_unasked(model: Path, tmp_path: Path) -> None:
    convert(model, tmp_path / "out", to="dashq")
    before = contents(tmp_path / "out")
    with pytest.raises(ConversionError, match=r"out: is there already; .*--overwrite"):
        convert(model, tmp_path / "out", to="dashq", bits=2)
    assert contents(tmp_path / "out") == before


def test_a_folder_that_is_no_checkpoint_is_not_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConversionError, match="is no checkpoint"):
        convert(model, tmp_path / "out", to="dashq", overwrite=True)
    assert contents(tmp_path / "out") == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_came_in_the_meantime_is_not_replaced(
    overwrite: bool, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def begin(*_: int) -> None:
        out.mkdir(exist_ok=True)
        (out / "thesis.txt").write_text("years of work")

    with pytest.raises(ConversionError, match=r"is there already|is no checkpoint"):
        convert(model, out, to="dashq", overwrite=overwrite, progress=begin)
    assert contents(out) == {"thesis.txt": b"years of work"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_conversion_left_is_removed_and_nothing_else(
    model: Path, tmp_path: Path
) -> None:
    kept = [".out-backups", ".out-nibblespec-old-abcdefgh", ".other-nibblespec-unfinished-abcdefgh"]
    for name in (".out-nibblespec-unfinished-abcdefgh", *kept):
        (tmp_path / name).mkdir()
        (tmp_path / name / "planes.safetensors").write_bytes(b"half")
    convert(model, tmp_path / "out", to="dashq")
    assert {path.name for path in tmp_path.iterdir()} == {"out", *kept}


def test_a_conversion_leaves_another_one_to_the_same_place_alone(
    model: Path, tmp_path: Path
) -> None:
    with folder.replacing(tmp_path / "out", model, overwrite=True) as running:
        (running / "meta.json").write_text("{}")
        convert(model, tmp_path / "out", to="dashq")
    assert contents(tmp_path / "out") == {"meta.json": b"{}"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_taken_for_an_orphan_is_made_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another conversion may find it in the moment before it is locked."""
    real, made = tempfile.mkdtemp, list[str]()

    def mkdtemp(prefix: str, dir: Path) -> str:
        made.append(real(prefix=prefix, dir=dir))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with folder.replacing(tmp_path / "out", model, overwrite=False) as written:
        assert made == [made[0], str(written)]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("place", ["a" * 256, "new/" + "a" * 256, "a" * 256 + "/new", "é" * 128])
def test_a_name_that_is_too_long_is_refused_before_anything_is_done(
    place: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match="cannot be written: File name too long"):
        convert(model, tmp_path / place, to="dashq", progress=unwanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "*[o]?", UNDECODABLE])
def test_a_name_that_the_file_system_takes_is_taken(name: str, model: Path, tmp_path: Path) -> None:
    convert(model, tmp_path / name, to="dashq")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("place", ["out", "new/out"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(
    place: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and real(path, mode))
    with pytest.raises(ConversionError, match=f"{place}: cannot be written: Permission denied"):
        convert(model, tmp_path / place, to="dashq", calibrate=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_checkpoint_that_has_no_room_is_refused_before_it_is_written(
    target: Literal["dashq", "bitnest"],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = SimpleNamespace(f_bavail=2, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(ConversionError, match=r": expected [\d,]+ bytes of space, found 8,192"):
        convert(model, tmp_path / "out", to=target, group_size=16, progress=unwanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("target", ["out", "nowhere", "empty", "checkpoint"])
def test_a_link_is_neither_followed_nor_replaced(
    target: str, overwrite: bool, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "meta.json").write_text("{}")
    (tmp_path / "out").symlink_to(target)
    with pytest.raises(ConversionError, match=r"is there already, as a link, .*not followed"):
        convert(model, tmp_path / "out", to="dashq", overwrite=overwrite, progress=unwanted)
    assert (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("root", ["/", "//", "/.."])
def test_the_root_of_the_file_system_is_refused(root: str, model: Path) -> None:
    with pytest.raises(ConversionError, match="holds the model that is converted"):
        convert(model, root, to="dashq", overwrite=True, progress=unwanted)


@pytest.mark.parametrize("kept", ["NOTES.txt", "README.md", "other/", "tokenizer.json/"])
def test_what_no_conversion_writes_is_not_removed(kept: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(model, out, to="dashq")
    (out / "tokenizer.json").unlink(missing_ok=True)
    if kept.endswith("/"):
        convert(model, out / kept, to="dashq")
    else:
        (out / kept).write_text("years of work")
    before = contents(out)
    with pytest.raises(ConversionError, match=f"would remove: {kept}; move that elsewhere"):
        convert(model, out, to="dashq", bits=2, overwrite=True, progress=unwanted)
    assert contents(out) == before


def test_of_many_files_that_would_be_lost_the_first_are_named(model: Path, tmp_path: Path) -> None:
    convert(model, tmp_path / "out", to="dashq")
    for number in range(5):
        (tmp_path / "out" / f"{number}.txt").touch()
    with pytest.raises(ConversionError, match=r"remove: 0\.txt, 1\.txt, 2\.txt and 2 more; move"):
        convert(model, tmp_path / "out", to="dashq", overwrite=True, progress=unwanted)


def test_a_file_that_came_in_the_meantime_is_not_removed(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(model, out, to="dashq")

    def begin(*_: int) -> None:
        (out / "thesis.txt").write_text("years of work")

    with pytest.raises(ConversionError, match=r"would remove: thesis\.txt"):
        convert(model, out, to="bitnest", group_size=16, overwrite=True, progress=begin)
    assert contents(out)["thesis.txt"] == b"years of work"


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_everything_that_a_conversion_writes_is_replaced(
    target: Literal["dashq", "bitnest"], tmp_path: Path
) -> None:
    """The files of both formats, shards, and documents that were copied."""
    source, out = save_model(tmp_path / "model", "llama"), tmp_path / "out"
    for pattern in PATTERNS:
        (source / pattern.replace("*", ".json")).write_text("{}")
    if target == "dashq":
        convert(source, out, to=target, shard_bytes=20_000)
        assert len(list(out.glob("model-*.safetensors"))) > 1
    else:
        convert(source, out, to=target, group_size=16)
    for path in source.glob("tokenizer*"):
        path.unlink()
    convert(source, out, to="dashq", overwrite=True)
    convert(source, tmp_path / "fresh", to="dashq")
    assert contents(out) == contents(tmp_path / "fresh")


def test_an_empty_folder_is_filled(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    convert(model, tmp_path / "out", to="dashq")
    assert (tmp_path / "out" / "dashq_config.json").is_file()


@pytest.mark.parametrize("place", ["", ".."])
def test_the_model_is_not_overwritten(place: str, tmp_path: Path) -> None:
    source = save_model(tmp_path / "outer" / "model", "llama")
    (tmp_path / "outer" / "meta.json").write_text("{}")
    with pytest.raises(ConversionError, match="holds the model that is converted"):
        convert(source, source / place, to="dashq", overwrite=True)


def test_the_tokenizer_and_the_licence_are_taken_along(tmp_path: Path) -> None:
    source = save_model(tmp_path / "model", "llama")
    for name in ("tokenizer.json", "LICENSE", "README.md", "training_args.bin", "secrets.env"):
        (source / name).write_text(name)
    for target in ("dashq", "bitnest"):
        convert(source, tmp_path / target, to=target, group_size=16)
        found = contents(tmp_path / target)
        assert {"tokenizer.json", "LICENSE", "generation_config.json"} <= found.keys()
        assert not {"README.md", "training_args.bin", "secrets.env"} & found.keys()
