"""`-k`: what a failure is reproduced with, and an expression that selects nothing."""

import re
from typing import Any

import pytest
from nibblespec.conformance.suite.run import run
from nibblespec.reference import backend as reference

from tests.suite_backends import Changed


def raising(*_arguments: Any) -> Any:  # noqa: ANN401
    """Raise whatever the call: an error."""
    raise RuntimeError("no kernel")


def test_line_to_reproduce_a_failure_selects_its_parameters_alone() -> None:
    wrong = Changed({"pack_words": raising, "pack_planes": raising})
    outcome = run(wrong, files=["test_calls.py"], select="have_their_form", max_examples=1)
    (line,) = re.findall(r"^reproduce:.* -k '(\S+\[pack_words\])'", outcome.output, re.MULTILINE)
    again = run(wrong, files=["test_calls.py"], select=line, max_examples=1)
    assert [one.test for one in again.results] == [f"test_calls.py::{line}"]


@pytest.mark.parametrize("ci", ["", "true"])
def test_summary_says_a_failure_in_one_line(ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("COLUMNS", "200")
    wrong = Changed({"pack_words": raising})
    outcome = run(wrong, files=["test_calls.py"], select="have_their_form", max_examples=1)
    *_, line, _totals = outcome.output.splitlines()
    assert "[pack_words] - NUM-OUTPUT-FORM: pack_words raised RuntimeError: no kernel" in line


def test_parameters_of_any_signs_can_be_selected() -> None:
    name = "test_packed_models[qwen2-dashq-target-bfloat16-bits-3-group_size-32]"
    outcome = run(Changed(claims={"operations": ()}), files=["test_models.py"], select=name)
    (found,) = [one.test for one in outcome.results]
    assert found.startswith("test_models.py::test_packed_models[qwen2, dashq")
    assert "bits=3" in found


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("kvcache", "no test matches -k 'kvcache', so nothing was tested; did you mean kv_cache?"),
        ("zzz", "so nothing was tested; try one of activations, attention, calls, dashq_linear,"),
    ],
)
def test_expression_that_selects_nothing_is_said(select: str, said: str) -> None:
    outcome = run(reference, select=select)
    assert outcome.exit_status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert said in " ".join(outcome.output.split())
