"""Adapters that break the protocol: `error`, never `fail` and never a hang, and what to mend."""

import pytest
from nibblespec.conformance.exec.faults import ADVICE
from nibblespec.conformance.suite.backends import BackendNotFoundError, find_backend
from nibblespec.spec.requirements import requirements

from tests.exec_adapters.adapter import FAULTS
from tests.exec_runs import PLENTY, SECONDS, command, messages, results, suite

AT_HELLO = {
    "dies-at-hello": (
        "EXEC-ALIVE",
        "no answer: the adapter has ended with exit status 7",
        "standard error ends with:\n    loading kernels\n    no device found",
    ),
    "never-answers": ("EXEC-TIME", "no answer within 2 s", "flush standard output after each"),
    "never-flushes": ("EXEC-TIME", "no answer within 2 s", "flush standard output after each"),
    "logs-at-the-start": (
        "EXEC-STDOUT",
        "expected a JSON object, found 'warming up the kernel ...'",
        "send logs to standard error",
    ),
    "speaks-another-version": ("EXEC-PROTOCOL", "expected `protocol` 1, found 2", "answer hello"),
    "has-no-name": ("EXEC-HELLO", "`name`: expected a text", "found none"),
    "claims-under-a-wrong-key": (
        "EXEC-CLAIMS",
        'no capability is named "bit_width"',
        "did you mean `bit_widths`?",
    ),
    "claims-under-a-strange-key": (
        "EXEC-CLAIMS",
        'no capability is named "bits"',
        "they are operations, bit_widths, group_sizes, dtypes,",
    ),
    "claims-an-unknown-operation": (
        "EXEC-CLAIMS",
        "operations claims 'pack_nibbles'",
        "some of pack_words, unpack_words",
    ),
    "claims-another-type": ("EXEC-CLAIMS", "bit_widths claims True", "some of 1, 2, 3"),
}
"""Faults that end a run before it begins: requirement, what is found, what to do."""

AT_CALLS = {
    "answers-twice": ("EXEC-ONCE", "found another answer to call", "one answer for each call"),
    "swaps-ids": ("EXEC-ID", "expected the id 4, found 5", "copy `id` from the call"),
    "gives-one-id-to-all": ("EXEC-ID", "expected the id 1, found 0", "copy `id` from the call"),
    "answers-without-id": ("EXEC-ID", "expected the id 4, found no `id`", "copy `id`"),
    "crashes": (
        "EXEC-ALIVE",
        "the adapter was ended by SIGSEGV",
        "standard error ends with:\n    about to read a null pointer",
    ),
    "ends-early": ("EXEC-ALIVE", "ended with exit status 0", "read calls in a loop"),
    "writes-half-a-line-and-ends": (
        "EXEC-LINE",
        'half a line, \'{"id": 4, "a\',: the adapter has ended with exit status 1',
        "one JSON object on one line",
    ),
    "writes-an-endless-line": (
        "EXEC-LINE",
        "a line of more than 65,536 bytes, which begins with [[[[",
        "one JSON object on one line",
    ),
    "writes-garbage": ("EXEC-STDOUT", "expected a JSON object, found", "logs to standard error"),
    "writes-deep-json": ("EXEC-LINE", "nested too deeply", "one JSON object on one line"),
    "logs-before-answers": ("EXEC-STDOUT", "found 'warming up the kernel ...'", "logs to standard"),
    "logs-after-answers": ("EXEC-STDOUT", "found 'done in 0.3 ms'", "logs to standard error"),
    "writes-one-byte-more": ("EXEC-STDOUT", "expected a JSON object, found '\\x00{", "send logs"),
    "says-another-dtype": ("EXEC-FORM", "array 0: expected uint8 [11]", "found int64 [11]"),
    "says-another-shape": ("EXEC-FORM", "array 0: expected", "`dtype` and `shape` of every result"),
    "says-a-huge-shape": ("EXEC-FORM", "[1099511627776, 1099511627776]", "in the order"),
    "says-too-many-arrays": ("EXEC-FORM", "`arrays`: expected 1, found 2", "in the order"),
    "says-no-arrays": ("EXEC-FORM", "`arrays`: expected an array, found none", "in the order"),
    "says-a-huge-payload": ("EXEC-PAYLOAD", "found 1,125,899,906,842,624", "number of bytes"),
    "gives-a-number-for-an-error": ("EXEC-ERROR", "`error`: expected a text, found 5", "a text"),
}
"""Faults of calls that show at once."""

SILENT = {
    "answers-late": ("EXEC-TIME", "no answer within 2 s", "more time"),
    "writes-half-a-line": (
        "EXEC-TIME",
        'half a line, \'{"id": 4, "a\', within 2 s',
        "flush standard output",
    ),
    "writes-half-a-payload": ("EXEC-TIME", "of payload within 2 s", "flush standard output"),
    "writes-endless-errors": ("EXEC-TIME", "standard error ends with", "warning: xxx"),
    "reads-one-byte-less": ("EXEC-", "", ""),
}
"""Faults of calls that end with the limit of time."""


@pytest.mark.parametrize("fault", AT_HELLO)
def test_a_fault_at_hello_ends_the_run_before_it_begins(fault: str) -> None:
    with pytest.raises(BackendNotFoundError) as caught:
        find_backend(
            f"exec:{command(fault)}", SECONDS if "EXEC-TIME" in AT_HELLO[fault] else PLENTY
        )
    said = str(caught.value)
    assert said.startswith(f"exec:{command(fault)}: hello: ")
    for part in AT_HELLO[fault]:
        assert part in said


@pytest.mark.parametrize("fault", AT_CALLS)
def test_a_fault_of_calls_is_an_error_that_says_what_to_mend(fault: str) -> None:
    outcome = suite(command(fault), files=["test_packing.py"], select="golden or every_code")
    found = results(outcome)
    assert outcome.exit_status == 1
    assert set(found.values()) <= {"error", "pass"}
    assert list(found.values()).count("error") >= 3
    first = messages(outcome, "error")[0]
    for part in AT_CALLS[fault]:
        assert part in first
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize("fault", SILENT)
def test_an_adapter_that_falls_silent_is_an_error_after_the_limit_of_time(fault: str) -> None:
    outcome = suite(
        command(fault), files=["test_packing.py"], select="no_word_more", seconds=SECONDS
    )
    (message,) = messages(outcome, "error")
    assert message.startswith("pack_words: ")
    for part in SILENT[fault]:
        assert part in message


def test_a_claim_of_what_is_not_there_is_an_error_that_says_so() -> None:
    outcome = suite(command("claims-what-it-lacks"), files=["test_packing.py"])
    errors = messages(outcome, "error")
    assert list(results(outcome).values()).count("pass") == 5
    assert len(errors) == 4
    assert "unpack_words: the adapter answers with the error: unpack_words: not impl" in errors[0]
    assert "what it does not compute, it must not claim (EXEC-CLAIMS)" in errors[0]


@pytest.mark.parametrize("fault", ["fails-now-and-then", "crashes-now-and-then"])
def test_a_call_that_fails_now_and_then_is_an_error_and_no_disagreement(fault: str) -> None:
    """Hypothesis meets it among the cases that it draws, and does not meet it again."""
    outcome = suite(command(fault), files=["test_packing.py"], max_examples=100)
    assert set(results(outcome).values()) <= {"pass", "error"}
    assert messages(outcome, "error")
    assert "Flaky" not in outcome.output


def test_an_adapter_in_text_mode_is_an_error() -> None:
    """Line feeds in a payload grow, so that what follows is out of step."""
    outcome = suite(command("writes-text"), files=["test_packing.py"])
    assert "fail" not in results(outcome).values()
    assert "error" in results(outcome).values()


def test_text_and_code_name_the_same_requirements() -> None:
    stated = [one.id for one in requirements().values() if one.checked_by == "exec"]
    assert list(ADVICE) == stated


def test_every_fault_of_the_adapter_has_a_test() -> None:
    elsewhere = {
        "writes-text",
        "translates-line-ends",
        "fails-now-and-then",
        "crashes-now-and-then",
    }
    assert set(FAULTS) <= AT_HELLO.keys() | AT_CALLS.keys() | SILENT.keys() | elsewhere
