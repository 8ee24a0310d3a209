"""`nibblespec exec-check`: every requirement of the protocol is checked, and says what to mend."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from nibblespec.conformance.exec.check import Step, advice, check_adapter
from nibblespec.spec.operations import OPERATIONS
from nibblespec.spec.requirements import requirements

from tests.exec_runs import PLENTY, SECONDS, command

ROOT = Path(__file__).parent.parent
FAULTS = {
    "logs-before-answers": ("echo", "EXEC-STDOUT"),
    "writes-deep-json": ("echo", "EXEC-LINE"),
    "swaps-ids": ("echo", "EXEC-ID"),
    "gives-one-id-to-all": ("echo", "EXEC-ID"),
    "writes-text": ("echo", "EXEC-PAYLOAD"),
    "translates-line-ends": ("echo", "EXEC-ECHO"),
    "reads-characters": ("echo", "EXEC-TIME"),
    "answers-twice": ("echo", "EXEC-ONCE"),
    "answers-twice-at-the-end": ("end", "EXEC-ONCE"),
    "never-answers": ("hello", "EXEC-TIME"),
    "says-another-shape": ("pack_words", "EXEC-FORM"),
    "says-a-huge-payload": ("pack_words", "EXEC-PAYLOAD"),
    "echoes-text": ("echo", "EXEC-PAYLOAD"),
    "echoes-upside-down": ("echo", "EXEC-ECHO"),
    "does-not-know-echo": ("echo", "EXEC-ECHO"),
    "dies-at-an-unknown-call": ("unknown call", "EXEC-ERROR"),
    "answers-unknown-calls": ("unknown call", "EXEC-ERROR"),
    "trips-over-unknown-keys": ("unknown keys", "EXEC-UNKNOWN-KEYS"),
    "has-no-name": ("hello", "EXEC-HELLO"),
    "speaks-another-version": ("hello", "EXEC-PROTOCOL"),
    "claims-under-a-wrong-key": ("hello", "EXEC-CLAIMS"),
    "claims-what-it-lacks": ("unpack_words", "EXEC-CLAIMS"),
    "dies-at-hello": ("hello", "EXEC-ALIVE"),
    "ends-with-status-3": ("end", "EXEC-END"),
}
"""Faults of the test adapter: the step that finds each, and the requirement it breaks."""


def run(fault: str) -> list[Step]:
    limit = SECONDS if fault in ("never-answers", "reads-characters") else PLENTY
    return list(check_adapter(command(fault), limit))


def test_conforming_adapter_passes_every_step() -> None:
    steps = run("")
    assert [step.requirement for step in steps] == [""] * 7
    names = ["hello", "echo", "unknown keys", "unknown call", "pack_words", "unpack_words", "end"]
    assert [step.name for step in steps] == names
    assert steps[0].says == "words 1 on cpu, claims 2 of 13 operations"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_the_step_that_is_about_it(fault: str) -> None:
    steps = {step.name: step for step in run(fault)}
    name, requirement = FAULTS[fault]
    assert steps[name].requirement == requirement, steps
    assert f"({requirement}): " in steps[name].says


def test_every_requirement_of_adapters_is_broken_by_one_of_the_faults() -> None:
    stated = {one.id for one in requirements().values() if one.checked_by == "exec"}
    assert stated == {requirement for _, requirement in FAULTS.values()}


def test_check_goes_on_after_a_step_that_fails() -> None:
    steps = run("trips-over-unknown-keys")
    assert [step.name for step in steps if step.requirement] == ["unknown keys"]
    assert steps[-1].name == "end"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("translates-line-ends", "byte 10 went in as 0x0a and came back as 0x0d (EXEC-ECHO)"),
        ("reads-characters", "no answer within 2 s (EXEC-TIME)"),
        ("writes-text", "expected a JSON object, found an empty line (EXEC-PAYLOAD)"),
    ],
)
def test_check_ends_with_a_failed_echo_and_names_text_mode(fault: str, said: str) -> None:
    """What follows fails of the same, perhaps a limit of time each."""
    steps = run(fault)
    assert [step.name for step in steps] == ["hello", "echo"]
    assert said in steps[-1].says
    assert "open as text or has a utf8 layer" in steps[-1].says


def test_step_of_an_operation_says_which_results_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = shlex.join([sys.executable, "-m", "tests.exec_adapters.reference"])
    says = {step.name: step.says for step in check_adapter(program, PLENTY)}
    for name in ("dashq_reconstruct", "nested_linear"):
        assert {"float16", "bfloat16", "float32"} <= set(re.findall(r"\w+", says[name])), says[name]
    assert says["quantize_activations"].endswith("right form (int8 and float32)")


def test_next_thing_to_do_is_the_next_step_of_the_guide() -> None:
    steps = [Step("hello", ""), Step("pack_words", ""), Step("unpack_words", "")]
    assert "--backend exec:x -k packing tests" in advice("x", steps)
    assert advice("x", steps).endswith("go on with dashq_reconstruct")
    steps.append(Step("dashq_reconstruct", ""))
    assert "--backend exec:x -k dashq_reconstruction tests" in advice("x", steps)
    assert advice("x", steps).endswith("go on with pack_planes")
    everything = [Step(name, "") for name in OPERATIONS]
    assert advice("x", everything) == "nibblespec conformance --backend exec:x tests the values"


def test_next_thing_to_do_follows_from_the_steps() -> None:
    good = [Step("hello", ""), Step("echo", "")]
    assert advice("x", good).startswith("implement pack_words and claim it")
    broken = [*good, Step("end", "…", "EXEC-END")]
    assert "nibblespec explain EXEC-END" in advice("x", broken)
    claimed = [*good, Step("pack_words", "")]
    assert advice("./a b", claimed) == (
        "nibblespec conformance --backend 'exec:./a b' -k packing tests the values; once it passes,"
        " go on with unpack_words"
    )


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        (command(), 0, "next: nibblespec conformance --backend "),
        (command("ends-with-status-3"), 1, "✗ end: at the end of standard input it ended with 3"),
        ("no-such-program-here", 2, "no program 'no-such-program-here'"),
    ],
)
def test_command_says_what_was_found_and_ends_accordingly(
    program: str, status: int, said: str
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from nibblespec.conformance.cli import main; main()"),
            *("exec-check", program),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "nibblespec.conformance" not in done.stderr
