"""`nibblespec convert`: exit status, messages, a bar on terminals alone."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.convert_models import save_model, with_tokenizer
from tests.measure_convert import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model", "llama")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nibblespec.conformance", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("options", [["--to", "dashq", "--bits", 3], ["--to", "bitnest"]])
def test_a_model_becomes_a_checkpoint_that_is_valid(
    options: list[object], model: Path, tmp_path: Path
) -> None:
    done = run("convert", model, tmp_path / "out", *options, "--group-size", 32)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'out'}: {options[1]}, written\n"
    checked = run("validate", "--strict", "--level", "tensors", tmp_path / "out")
    assert checked.returncode == 0, checked.stdout


def test_a_text_calibrates(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The same thing we do every night")
    source = with_tokenizer(save_model(tmp_path / "model", "llama", vocab_size=256))
    options = ("--to", "dashq", "--bits", 2, "--calibrate", tmp_path / "text.txt")
    done = run("convert", source, tmp_path / "out", *options)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_one_line_and_the_status_2(model: Path, tmp_path: Path) -> None:
    done = run("convert", model, tmp_path / "out", "--to", "bitnest", "--group-size", 48)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "group_size: expected a divisor of all widths" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["bitnest", "--bits", "4"], ["dashq", "--no-rotate"]])
def test_an_option_of_the_other_format_is_refused(
    options: list[str], model: Path, tmp_path: Path
) -> None:
    done = run("convert", model, tmp_path / "out", "--to", *options)
    assert done.returncode == 2
    assert f": expected none for {options[0]}" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_text_is_written_with_escapes(model: Path, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"\xff\x1b")
    done = run("convert", model, out, "--to", "dashq")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/\\udcff\\x1b: dashq, written\n"


def test_an_existing_checkpoint_is_replaced_with_an_option(model: Path, tmp_path: Path) -> None:
    arguments = ("convert", model, tmp_path / "out", "--to", "dashq")
    assert run(*arguments).returncode == 0
    refused = run(*arguments)
    assert refused.returncode == 2
    assert "is there already" in refused.stderr
    assert run(*arguments, "--overwrite").returncode == 0


def test_a_terminal_sees_a_bar_that_is_gone_in_the_end(model: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "nibblespec.conformance"]
    done = subprocess.run(
        [*program, "convert", str(model), str(tmp_path / "out"), "--to", "dashq"],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        check=False,
        timeout=120,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "━" in shown
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model", layers=2, hidden=1024, inner=4096)
    program = [sys.executable, "-m", "nibblespec.conformance", "convert"]
    running = subprocess.Popen(
        [*program, str(tmp_path / "model"), str(tmp_path / "out"), "--to", "dashq"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out-*/model.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(number)
    written, complaints = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert (written, complaints) == (b"", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
