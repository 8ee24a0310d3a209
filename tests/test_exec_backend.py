"""The backend exec:COMMAND: calls and answers, claims, restarts, the process and its end."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from nibblespec.conformance.exec import process
from nibblespec.conformance.exec.backend import ExecBackend
from nibblespec.conformance.exec.messages import DTYPES, array_of, little, operation_call
from nibblespec.conformance.suite.backends import BackendNotFoundError, find_backend
from nibblespec.conformance.suite.calls import sample_calls
from nibblespec.conformance.suite.outcomes import BackendError
from nibblespec.reference import backend as reference
from nibblespec.schemas import load_schema
from nibblespec.schemas.generate import texts
from nibblespec.spec import operations
from nibblespec.spec.exec_protocol import ARGUMENTS, LINE_BYTES
from nibblespec.spec.exec_protocol import DTYPES as SIZES
from nibblespec.spec.operations import OPERATIONS, Capabilities

from tests.exec_adapters.adapter import HELLO
from tests.exec_runs import ADAPTER, PLENTY, SECONDS, command, results, started, suite

CODES = np.arange(20, dtype=np.uint8) % 8


def is_alive(process_id: int) -> bool:
    """Say whether a process runs; one that has ended and was not waited for counts as alive."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def is_gone(process_id: int) -> bool:
    """Wait until a process has ended, in so far as it is not our own child to wait for."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                return True
        if not is_alive(process_id):
            return True
        time.sleep(0.05)
    return False


def process_of(backend: ExecBackend) -> subprocess.Popen[bytes]:
    """Return the adapter's process."""
    assert backend._adapter is not None
    return backend._adapter._process._child


def test_adapter_passes_what_it_claims() -> None:
    outcome = suite(command(), files=["test_packing.py", "test_calls.py", "test_planes.py"])
    assert outcome.exit_status == 0, outcome.output
    assert "backend words 1 on cpu" in outcome.output


def test_reference_behind_the_protocol_passes_as_it_does_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operations that no example has, and each whole list of arguments."""
    monkeypatch.setenv("PYTHONPATH", str(ADAPTER.parent.parent.parent))
    outcome = suite(
        shlex.join([sys.executable, "-m", "tests.exec_adapters.reference"]),
        files=["test_attention.py", "test_dashq_linear.py", "test_calls.py"],
        max_examples=2,
    )
    assert outcome.exit_status == 0, outcome.output
    assert set(results(outcome).values()) <= {"pass", "not-claimed"}
    assert list(results(outcome).values()).count("not-claimed") < 5


def test_claims_of_the_adapter_become_capabilities() -> None:
    with started(command()) as backend:
        expected = Capabilities(operations=("pack_words", "unpack_words"), bit_widths=(3, 4))
        assert backend.capabilities() == expected


def test_backend_is_found_by_its_command() -> None:
    backend = find_backend(f"exec:{command()}")
    assert isinstance(backend, ExecBackend)
    backend.close()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "expected a command, such as exec:node adapter.mjs"),
        ("no-such-program-here x", "no program 'no-such-program-here': is it on PATH"),
        ("sh -c 'x", "cannot be split into words"),
        ("sh -c 'echo no GPU >&2; exit 4'", "standard error ends with:\n    no GPU"),
        ("cat", "`name`: expected a text"),
    ],
)
def test_command_that_is_no_adapter_is_explained(program: str, said: str) -> None:
    with pytest.raises(BackendNotFoundError) as caught:
        find_backend(f"exec:{program}", PLENTY)
    assert said in str(caught.value)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_calls_are_what_the_schema_and_the_text_say(operation: str) -> None:
    """A program may look for a key instead of reading JSON: strings hold names and nothing else."""
    schema = load_schema("exec-protocol")
    validator = jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/call"}]})
    for arguments in sample_calls(operation, reference.capabilities()):
        line, _, payload = operation_call(operation, arguments).message(7).partition(b"\n")
        assert line.isascii()
        assert len(line) < LINE_BYTES
        assert not set(line) & set(b" \t\r\\")
        read = json.loads(line)
        strings = re.findall(r'"([^"]*)"', line.decode())
        assert all(re.fullmatch(r"[A-Za-z0-9_]+", one) for one in strings)
        assert json.dumps(read, separators=(",", ":")).encode() == line
        assert [error.message for error in validator.iter_errors(read)] == []
        assert list(read)[:2] == ["id", "call"]
        assert list(read)[-2:] == ["arrays", "payload"]
        assert read["payload"] == len(payload) == sum(one["bytes"] for one in read["arrays"])


def test_arguments_are_those_of_the_operations() -> None:
    for name, arguments in ARGUMENTS.items():
        protocol = getattr(operations, "".join(part.capitalize() for part in name.split("_")))
        code = protocol.__call__.__code__
        assert code.co_varnames[1 : code.co_argcount] == arguments


def test_schema_of_claims_has_every_capability_and_no_other() -> None:
    schema: Any = load_schema("exec-protocol")
    claims = schema["$defs"]["capabilities"]
    assert list(claims["properties"]) == [field.name for field in fields(Capabilities)]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"operations": [], "bit_width": [3]}, {**schema, **claims})


def test_schema_takes_answers_and_refuses_others() -> None:
    schema = load_schema("exec-protocol")
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"id": 1, "arrays": [{"dtype": "uint8", "shape": [3]}], "payload": 3}
    for answer in ({"id": 0, **HELLO}, good, {"id": 2, "error": "no"}):
        jsonschema.validate(answer, schema)
    refused: tuple[object, ...] = (
        {"arrays": []},
        good | {"payload": -1},
        {"id": 2, "error": 5},
        [],
    )
    for wrong in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_committed_schema_of_the_protocol_is_what_is_generated() -> None:
    folder = Path(__file__).parent.parent / "schemas"
    for name, generated in texts().items():
        assert (folder / name).read_text(encoding="utf-8") == generated


def test_dtypes_of_the_protocol_are_those_of_the_arrays() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == SIZES


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_survive_the_way_to_bytes_and_back(name: str) -> None:
    bits = np.arange(24 * DTYPES[name].itemsize, dtype=np.uint8)
    array = bits.view(DTYPES[name]).reshape(2, 3, 4)
    back = array_of(bytearray(little(array)), array.dtype, array.shape)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, bits.tobytes())
    assert back.flags.writeable


def test_a_call_after_a_crash_goes_to_a_new_process() -> None:
    with started(command("crashes")) as backend:
        first = process_of(backend)
        for _ in range(3):
            backend.pack_words(CODES, 4)
        with pytest.raises(BackendError, match="SIGSEGV"):
            backend.pack_words(CODES, 4)
        assert backend.pack_words(CODES, 4).shape == (3,)
        assert process_of(backend).pid != first.pid
        assert first.returncode == -signal.SIGSEGV


def test_a_call_after_an_error_goes_to_the_same_process() -> None:
    with started(command("claims-what-it-lacks")) as backend:
        first = process_of(backend)
        with pytest.raises(BackendError, match="not implemented"):
            backend.unpack_words(np.zeros(3, np.int32), 4, 20)
        assert backend.pack_words(CODES, 4).shape == (3,)
        assert process_of(backend) is first


def test_an_operation_that_breaks_the_protocol_three_times_in_a_row_is_left_alone() -> None:
    with started(command("claims-what-it-lacks"), PLENTY) as backend:
        backend._words[-1] = "dies-at-an-unknown-call"  # at the next start
        backend.close()
        calls = [("kv_quantize", np.zeros((1, 1, 2), np.float32), None)] * 3
        for name, *arguments in calls:
            with pytest.raises(BackendError, match="exit status 1"):
                backend._call(name, *arguments)
        with pytest.raises(BackendError, match="was not called, since the operation broke"):
            backend._call(*calls[0])
        assert backend.pack_words(CODES, 4).shape == (3,)


def test_an_adapter_that_dies_at_every_start_is_given_up() -> None:
    with started(command(), PLENTY) as backend:
        backend._words.append("dies-at-hello")
        backend.close()
        for _ in range(3):
            with pytest.raises(BackendError, match="exit status 7"):
                backend.pack_words(CODES, 4)
            with pytest.raises(BackendError, match="exit status 7"):
                backend.unpack_words(np.zeros(3, np.int32), 4, 20)
        with pytest.raises(BackendError, match="since the adapter broke the protocol 6 times"):
            backend._call("pack_planes", np.zeros((1, 2), np.int8), np.zeros((1, 2), np.int8))


def test_an_adapter_that_claims_something_else_when_started_again_is_an_error() -> None:
    with started(command(), PLENTY) as backend:
        backend._words.append("claims-other-widths")
        backend.close()
        with pytest.raises(BackendError, match="says something else about itself"):
            backend.pack_words(CODES, 4)


def test_a_large_call_is_read_while_it_is_answered() -> None:
    """Both pipes are full at once where one side writes first and reads later."""
    codes = np.zeros(3_000_000, np.uint8)
    with started(command()) as backend:
        words = backend.pack_words(codes, 4)
        assert backend.unpack_words(words, 4, codes.size).tobytes() == codes.tobytes()


def test_a_large_call_that_is_not_read_ends_with_the_limit_of_time() -> None:
    with started(command("stops-reading"), SECONDS) as backend:
        said = r"no answer within 2 s, and [0-9,]+ bytes of the call were not read \(EXEC-TIME\)"
        with pytest.raises(BackendError, match=said):
            backend.pack_words(np.zeros(1_000_000, np.uint8), 4)


def test_an_adapter_that_answers_before_it_has_read_all_gets_the_rest() -> None:
    with started(command("answers-before-it-reads")) as backend:
        child = process_of(backend)
        with pytest.raises(BackendError, match="too much"):
            backend.pack_words(np.zeros(1_000_000, np.uint8), 4)
        assert backend.pack_words(CODES, 4).shape == (3,)
        assert process_of(backend) is child


def test_standard_error_is_read_so_that_logs_do_not_block() -> None:
    with started(command("floods-errors")) as backend:
        assert backend.pack_words(CODES, 4).shape == (3,)


def test_ended_backend_leaves_no_process() -> None:
    with started(command()) as backend:
        child = process_of(backend)
        assert backend._adapter is not None
        guard = backend._adapter._process._guard._shell
        assert is_alive(child.pid)
    assert (child.returncode, guard.returncode) == (0, 0)
    assert not is_alive(child.pid)
    assert not is_alive(guard.pid)


def test_adapter_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "END_SECONDS", 0.3)
    with started(command("does-not-end")) as backend:
        child = process_of(backend)
    assert child.returncode == -signal.SIGKILL


def test_what_the_adapter_has_started_dies_with_it() -> None:
    script = f"sleep 300 & echo $! >&2; exec {command()}"
    with started(shlex.join(["sh", "-c", script])) as backend:
        assert backend._adapter is not None
        backend.pack_words(CODES, 4)
        sleeper = int(backend._adapter._process.said())
        assert is_alive(sleeper)
        backend._adapter.kill()
        backend._adapter = None
    assert is_gone(sleeper)


def test_adapter_that_leaves_a_child_with_its_pipes_is_found_dead() -> None:
    script = f"sleep 300 & {command('dies-at-hello')}; exit 7"
    begun = time.monotonic()
    with pytest.raises(BackendNotFoundError, match="exit status 7"):
        find_backend(f"exec:{shlex.join(['sh', '-c', script])}", PLENTY)
    assert time.monotonic() - begun < 30


def test_interrupted_call_ends_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    with started(command()) as backend:
        child = process_of(backend)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(process.Process, "line", interrupt)
        with pytest.raises(KeyboardInterrupt):
            backend.pack_words(CODES, 4)
        monkeypatch.undo()
        assert child.returncode == -signal.SIGKILL
        assert backend.pack_words(CODES, 4).shape == (3,)


@pytest.mark.parametrize(
    ("end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_adapter_dies_with_the_run(tmp_path: Path, end: signal.Signals, status: int) -> None:
    """In the middle of a call, whether the run can still do something about it or not."""
    noted = tmp_path / "process"
    program = "from nibblespec.conformance.cli import main; main()"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", program, "conformance", "-k", "golden"),
            *("--backend", f"exec:{command('answers-late')}"),
        ],
        env={**os.environ, "NOTED": str(noted)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as suite_run:
        for _ in range(600):
            if noted.is_file() and noted.read_text().endswith("\n"):
                break
            time.sleep(0.1)
        adapter = int(noted.read_text())
        assert is_alive(adapter)
        suite_run.send_signal(end)
        assert suite_run.wait(20) == status
    assert is_gone(adapter)


def test_command_line_runs_an_adapter_and_says_how_to_repeat_a_failure(tmp_path: Path) -> None:
    source = ADAPTER.read_text(encoding="utf-8")
    wrong = source.replace("words[place // per_word] |=", "words[place // per_word] +=", 1).replace(
        '<< (line["nbits"] * (place % per_word))', '<< (31 - line["nbits"] * (place % per_word))', 1
    )
    assert wrong != source
    (tmp_path / "wrong adapter.py").write_text(wrong, encoding="utf-8")
    backend = f"exec:{sys.executable} -ISE 'wrong adapter.py'"
    program = "from nibblespec.conformance.cli import main; main()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "conformance", "-k", "golden_words_are_packed"),
            *("--backend", backend, "--exec-timeout", "50"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 error" in done.stdout or "1 failed" in done.stdout
    assert f"reproduce: nibblespec conformance --backend {shlex.quote(backend)} -k" in done.stdout


def test_command_line_ends_with_2_where_an_adapter_does_not_start() -> None:
    program = "from nibblespec.conformance.cli import main; main()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "conformance"),
            *("--backend", f"exec:{command('dies-at-hello')}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "EXEC-ALIVE" in done.stderr
    assert "no device found" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
