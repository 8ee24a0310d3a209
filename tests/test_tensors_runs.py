"""How a run at level tensors goes: in bounded memory, in order, and to a clean end whatever comes.

Sparse files stand for large ones: they are read like any other and take no room.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from nibblespec.conformance import InputError, validate
from nibblespec.conformance.artifacts import contents
from nibblespec.conformance.artifacts.reading import blocks
from nibblespec.conformance.artifacts.reading.blocks import Bytes, Source, find_source
from nibblespec.conformance.artifacts.validate import check_path
from nibblespec.conformance.examples.models import BITNEST, DASHQ, SHARDS
from nibblespec.conformance.examples.write import write_example

COMMAND = [sys.executable, "-c", "from nibblespec.conformance.cli import main; main()"]
ROOT = Path(__file__).parent.parent
GIGABYTE = 10**9


@pytest.fixture
def example(tmp_path: Path) -> Path:
    write_example(tmp_path / "example", DASHQ)
    return tmp_path / "example"


def add_sparse(folder: Path, size: int) -> None:
    """Add a tensor of zeros of that size to the example, in a shard of its own."""
    entry = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}
    text = json.dumps({"model.huge.weight": entry}).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model-huge.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + size)
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    index["weight_map"]["model.huge.weight"] = "model-huge.safetensors"
    index["metadata"]["total_size"] += size
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


# Memory


def test_memory_does_not_grow_with_a_tensor(example: Path) -> None:
    """A tensor of 2 GB, in a process of its own."""
    add_sparse(example, 2 * GIGABYTE)
    program = (
        "import sys\n"
        "from nibblespec.conformance import validate\n"
        "from tests.peak_memory import peak_memory\n"
        "print(validate(sys.argv[1], 'tensors'))\n"
        "print(peak_memory())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(example)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    findings, peak = done.stdout.splitlines()
    assert findings == "[]"
    assert int(peak) < 400_000_000


def test_tensors_that_share_their_bytes_are_not_read_again_and_again(tmp_path: Path) -> None:
    """Ten thousand tensors that all claim the same 100 MB: 1 TB, if they were read."""
    size = 100_000_000
    write_example(tmp_path / "example", DASHQ)
    add_sparse(tmp_path / "example", size)
    path = tmp_path / "example" / "model-huge.safetensors"
    entry = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}
    text = json.dumps({f"t{index}": entry for index in range(10_000)}).encode()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + size)
    told: list[int] = []
    check_path(str(tmp_path / "example"), "tensors", lambda _done, total: told.append(total))
    assert max(told) < size


# Order


def test_two_runs_find_the_same_in_the_same_order(tmp_path: Path) -> None:
    write_example(tmp_path / "example", DASHQ)
    for shard in SHARDS:
        path = tmp_path / "example" / shard
        data = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        data[start:] = np.random.default_rng(1).bytes(len(data) - start)
        path.write_bytes(data)
    first = validate(tmp_path / "example", "tensors")
    assert len(first) > 30
    assert validate(tmp_path / "example", "tensors") == first


@pytest.mark.parametrize("workers", [1, 7])
def test_findings_do_not_depend_on_the_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    write_example(tmp_path / "example", BITNEST, "planes-swapped")
    expected = validate(tmp_path / "example", "tensors")
    monkeypatch.setattr(contents, "_workers", lambda: workers)
    assert validate(tmp_path / "example", "tensors") == expected


# Progress


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    write_example(tmp_path / "example", BITNEST)
    told: list[tuple[int, int]] = []
    check_path(str(tmp_path / "example"), "tensors", lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({total for _, total in told}) == 1


@contextmanager
def on_terminal(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command line with its standard error on a terminal, which can be read."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as child:
        os.close(theirs)
        try:
            yield child, ours
        finally:
            child.kill()
            os.close(ours)


def read_all(terminal: int) -> bytes:
    """Read what was written to a terminal until its other end is closed."""
    parts: list[bytes] = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # how Linux says that the other end is closed
        pass
    return b"".join(parts)


@pytest.mark.parametrize("output", ["json", "sarif"])
def test_a_terminal_shows_a_bar_and_the_output_stays_clean(example: Path, output: str) -> None:
    add_sparse(example, GIGABYTE // 4)
    with on_terminal("validate", "--level", "tensors", "--format", output, example) as (
        child,
        terminal,
    ):
        assert child.stdout is not None
        drawn = read_all(terminal)
        written = child.stdout.read()
        assert child.wait() == 0
    assert json.loads(written)
    assert b"MB" in drawn
    assert drawn.rstrip().endswith(b"\x1b[2K"), "the bar is wiped off"


def test_nothing_is_drawn_where_nobody_looks(example: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "validate", "--level", "tensors", example], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


# Interrupts


def wait_for_reading(child: subprocess.Popen[bytes]) -> None:
    """Wait until a process has the huge file open: it is in the middle of a run."""
    folder = Path(f"/proc/{child.pid}/fd")
    for _ in range(1000):
        try:
            targets = [os.readlink(link) for link in folder.iterdir()]
        except OSError:
            targets = []
        if any(target.endswith("model-huge.safetensors") for target in targets):
            return
        time.sleep(0.02)
    raise AssertionError("the run never began")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_ends_a_run_without_a_word(example: Path, number: int, status: int) -> None:
    """A run that would take hours: 10 TB of zeros."""
    add_sparse(example, 10 * 1000 * GIGABYTE)
    command = [*COMMAND, "validate", "--level", "tensors", str(example)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        wait_for_reading(child)
        child.send_signal(number)
        output, errors = child.communicate(timeout=30)
    assert (child.returncode, output, errors) == (status, b"", b"")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_terminal_back(example: Path, number: int, status: int) -> None:
    add_sparse(example, 10 * 1000 * GIGABYTE)
    with on_terminal("validate", "--level", "tensors", example) as (child, terminal):
        drawn = os.read(terminal, 65536)
        wait_for_reading(child)
        child.send_signal(number)
        drawn += read_all(terminal)
        assert child.wait(timeout=30) == status
    assert b"Traceback" not in drawn
    assert drawn.count(b"\x1b[?25l") == drawn.count(b"\x1b[?25h") > 0, "the cursor is back"


# Files that do not stay as they are


def after_start(change: Callable[[Path], object]) -> Callable[[Path, str], Source]:
    """Return what describes files as usual, and changes each of them at once."""

    def find_and_change(path: Path, file: str) -> Source:
        source = find_source(path, file)
        change(path)
        return source

    return find_and_change


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replace(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[::-1])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shrink, "changed while it was read"),
        (replace, "changed while it was read"),
        (Path.unlink, "No such file or directory"),
    ],
)
@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_a_file_that_changes_before_it_is_read_is_one_clear_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    change: Callable[[Path], object],
    message: str,
) -> None:
    write_example(tmp_path / "example", family)
    monkeypatch.setattr(contents, "find_source", after_start(change))
    with pytest.raises(InputError, match=message) as raised:
        validate(tmp_path / "example", "tensors")
    assert str(raised.value).startswith(str(tmp_path / "example"))
    assert "\n" not in str(raised.value)


def test_a_file_that_grew_since_its_header_was_read_is_one_clear_line(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow_first(path: Path, file: str) -> Source:
        os.truncate(path, path.stat().st_size + 1)
        return find_source(path, file)

    monkeypatch.setattr(contents, "find_source", grow_first)
    with pytest.raises(InputError, match="changed while it was read"):
        validate(example, "tensors")


def test_a_file_that_shrinks_under_its_reader_is_one_clear_line(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = blocks.read_into

    def shrink_first(stream: object, buffer: Bytes, position: int, source: Source) -> None:
        os.truncate(source.path, 100)
        real(stream, buffer, position, source)  # type: ignore[arg-type]  # only passed on

    monkeypatch.setattr(blocks, "read_into", shrink_first)
    with pytest.raises(InputError, match="changed while it was read"):
        validate(example, "tensors")


def test_an_error_of_the_disk_is_one_clear_line(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(FileIO):
        def readinto(self, _buffer: object) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(blocks, "FileIO", Broken)
    with pytest.raises(InputError, match=rf"{SHARDS[0]}: Input/output error"):
        validate(example, "tensors")


def test_an_unreadable_file_is_one_clear_line_and_status_2(example: Path) -> None:
    program = (
        "import os\n"
        "from nibblespec.conformance.cli import main\n"
        "from nibblespec.conformance.artifacts import contents\n"
        "def denied(path, file):\n"
        "    raise PermissionError(13, 'Permission denied', str(path))\n"
        "contents.find_source = denied\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "validate", "--level", "tensors", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"nibblespec: {example / SHARDS[0]}: Permission denied\n"
