"""Files that a run of the suite is given: refused before the run, read within bounds."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nibblespec.conformance.suite import xfails
from nibblespec.conformance.suite.files import UnreadableError, read_whole, refusal, write_whole
from nibblespec.conformance.suite.run import Outcome, run
from nibblespec.conformance.suite.xfails import XfailsError, read_xfails
from nibblespec.reference import backend as reference

from tests.suite_backends import Changed

IRREGULAR = [os.mkfifo, lambda path: path.symlink_to("/dev/zero")]
NOT_OPENED = "is a pipe or device, which is not opened"


def planes(*arguments: str, backend: object = reference) -> Outcome:
    """Run the tests of planes alone."""
    return run(backend, files=["test_planes.py"], max_examples=1, arguments=arguments)  # type: ignore[arg-type]  # changed ones too


# what is read


@pytest.mark.parametrize("make", IRREGULAR)
def test_expected_failures_are_not_read_from_a_pipe_or_device(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """In a process of its own, with little memory and time: a broken one takes all of both."""
    make(tmp_path / "xfails")
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        "from nibblespec.conformance.cli import main\n"
        "main()"
    )
    options = ["-k", "planes", "--max-examples=1", "--xfails-file", str(tmp_path / "xfails")]
    done = subprocess.run(
        [sys.executable, "-c", program, "conformance", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"--xfails-file {tmp_path / 'xfails'}: {NOT_OPENED}" in done.stderr


def test_expected_failures_of_absurd_size_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xfails, "MOST_BYTES", 10)
    (tmp_path / "xfails").write_text("#" * 11)
    with pytest.raises(XfailsError, match="expected at most 10 bytes"):
        read_xfails(tmp_path / "xfails", ())
    (tmp_path / "xfails").write_text("#" * 10)
    assert read_xfails(tmp_path / "xfails", ()) == ()


def test_expected_failures_that_are_no_text_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "xfails").write_bytes(b"\xff")
    with pytest.raises(XfailsError, match="cannot be read: 'utf-8' codec"):
        read_xfails(tmp_path / "xfails", ())


def test_a_long_hostile_word_is_shown_cut_and_escaped(tmp_path: Path) -> None:
    (tmp_path / "xfails").write_text("\x1b" + "x" * 10_000)
    with pytest.raises(XfailsError) as caught:
        read_xfails(tmp_path / "xfails", ())
    assert "found '\\x1bxxx" in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "cannot be read: expected a file, found a folder"),
        (lambda _: None, "cannot be read: expected a file, found no such file"),
        (lambda path: path.symlink_to(path), "found a link that leads to itself"),
    ],
)
def test_what_is_no_file_is_named(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(UnreadableError) as caught:
        read_whole(tmp_path / "x", 10)
    assert str(caught.value).startswith(f"{tmp_path / 'x'}: ")
    assert said in str(caught.value)


# what is written


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "expected a .json or .md file, found a folder"),
        (os.mkfifo, NOT_OPENED),
        (lambda path: path.symlink_to(path), "found a link that leads to itself"),
        (lambda path: path.symlink_to(path.parent / "none" / "r.json"), "no folder"),
    ],
)
def test_a_report_that_could_not_be_written_stops_the_run_at_once(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "r.json")
    outcome = planes(f"--report={tmp_path / 'r.json'}")
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert outcome.results == ()
    assert "ERROR: --report: " in outcome.output
    assert said in outcome.output
    assert "Traceback" not in outcome.output


def test_a_report_on_a_device_is_refused(tmp_path: Path) -> None:
    """Not with a run, which as root would put a file in the device's place if this is broken."""
    (tmp_path / "r.json").symlink_to("/dev/full")
    assert NOT_OPENED in refusal(tmp_path / "r.json")


@pytest.mark.parametrize(("make", "found"), [(os.mkfifo, "a pipe"), (Path.mkdir, "a folder")])
def test_what_is_no_file_is_not_replaced(
    tmp_path: Path, make: Callable[[Path], None], found: str
) -> None:
    make(tmp_path / "r.json")
    with pytest.raises(OSError, match=f"expected a file, found {found}"):
        write_whole(tmp_path / "r.json", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert not (tmp_path / "r.json").is_file()


def test_a_report_may_not_take_the_place_of_the_expected_failures(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("# kept by us\n")
    outcome = planes(f"--report={path}", f"--xfails-file={path}")
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert "would take the place of" in outcome.output
    assert path.read_text() == "# kept by us\n"


def test_a_file_that_is_read_is_known_by_its_other_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    (tmp_path / "link.json").symlink_to("a.json")
    os.link(tmp_path / "a.json", tmp_path / "hard.json")
    for name in ("link.json", "hard.json"):
        assert "would take the place" in refusal(tmp_path / "a.json", [tmp_path / name])
    assert refusal(tmp_path / "new.json", [tmp_path / "a.json"]) == ""


def test_a_report_through_a_link_is_written_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "r.json").symlink_to(tmp_path / "target.json")
    assert refusal(tmp_path / "r.json") == ""
    write_whole(tmp_path / "r.json", "text")
    assert (tmp_path / "r.json").is_symlink()
    assert (tmp_path / "target.json").read_text() == "text"


def test_a_file_with_the_longest_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".json")
    assert refusal(path) == ""
    write_whole(path, "text")
    assert path.read_text() == "text"


def test_what_failed_is_shown_where_a_report_cannot_be_written_in_the_end(tmp_path: Path) -> None:
    """The disk may fill up during the run; here a folder comes into the way."""

    def in_the_way(*_arguments: Any) -> Any:  # noqa: ANN401
        (tmp_path / "r.json").mkdir(exist_ok=True)
        raise RuntimeError("no kernel")

    backend = Changed({"pack_planes": in_the_way})
    reports = [f"--report={tmp_path / name}" for name in ("r.json", "r.md")]
    outcome = planes(*reports, backend=backend)
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    lines = outcome.output.splitlines()
    said = "expected a file, found a folder"
    assert f"ERROR: --report: {tmp_path / 'r.json'}: cannot be written: {said}" in lines
    assert "pack_planes raised RuntimeError: no kernel" in outcome.output
    assert (tmp_path / "r.md").is_file()
    assert "INTERNALERROR" not in outcome.output
