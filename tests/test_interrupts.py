"""Ctrl-C and SIGTERM: at once and without a word, but for what has to be cleaned up."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nibblespec.conformance.interrupts import TERMINATED, cleaning_up

BOTH = (signal.SIGINT, signal.SIGTERM)


def run(program: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Run a program in a process of its own: how it ends, and what it writes."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_interrupt_ends_even_the_start_of_the_program() -> None:
    program = (
        "import signal, sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Interrupt(MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "from nibblespec.conformance.__main__ import main\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "main()\n"
    )
    assert run(program) == (-signal.SIGINT, "", "")


def test_an_interrupt_does_not_wait_for_the_end_of_a_long_call() -> None:
    """Adding up a range is one call: of such a long one, it takes hours."""
    program = (
        "from nibblespec.conformance.interrupts import end_at_once\n"
        "end_at_once()\n"
        "print('ready', flush=True)\n"
        "sum(range(10**12))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        try:
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, errors) == (-signal.SIGINT, b"")


def test_an_interrupt_is_ignored_where_the_caller_wants_it() -> None:
    program = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from nibblespec.conformance.interrupts import cleaning_up, end_at_once\n"
        "end_at_once()\n"
        "with cleaning_up():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "print('still here')\n"
    )
    assert run(program) == (0, "still here\n", "")


def test_what_has_to_be_cleaned_up_gets_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), cleaning_up():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(SystemExit) as caught, cleaning_up():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == TERMINATED


def test_the_handlers_from_before_come_back() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with cleaning_up():
        during = [signal.getsignal(number) for number in BOTH]
    assert [signal.getsignal(number) for number in BOTH] == before
    assert signal.SIG_DFL not in during


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("arguments", [["example"], ["vectors", "export"]])
def test_a_folder_that_is_being_written_leaves_nothing_behind(
    tmp_path: Path, arguments: list[str], number: int, status: int
) -> None:
    program = (
        "import signal\n"
        "from nibblespec.conformance.examples import write\n"
        f"write.write_files = lambda *_: signal.raise_signal({number:d})\n"
        "from nibblespec.conformance.__main__ import main\n"
        "main()\n"
    )
    assert run(program, *arguments, tmp_path / "new") == (status, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "module",
    ["_pytest.junitxml", "nibblespec.conformance.suite.packing_domains"],
    ids=["while pytest starts", "while tests are collected"],
)
def test_a_signal_ends_the_start_of_the_suite(module: str, number: int, status: int) -> None:
    program = (
        "import signal, sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Interrupt(MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        f"            signal.raise_signal({number:d})\n"
        "from nibblespec.conformance.__main__ import main\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "main()\n"
    )
    found, output, errors = run(program, "conformance", "-k", "packing")
    assert "Traceback" not in output + errors
    assert "INTERNALERROR" not in output + errors
    assert found == status
