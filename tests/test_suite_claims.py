"""Claims that the suite makes inputs for, any that a backend may make; and what reaches a run."""

import pytest
from nibblespec.conformance.suite.run import run
from nibblespec.reference import backend as reference
from nibblespec.spec.operations import Capabilities

from tests.suite_backends import Recorder


@pytest.mark.parametrize("order", [3, 8, 16, 24, 76])
def test_an_order_that_alone_is_claimed_is_tested(order: int) -> None:
    claims = Capabilities(operations=("hadamard",), hadamard_orders=(order,))
    recorder = Recorder(claims)
    outcome = run(recorder, files=["test_hadamard.py"], max_examples=1)
    assert outcome.exit_status == pytest.ExitCode.OK, outcome.output
    assert order in {len(had_k) for _, (_, had_k, _) in recorder.calls if had_k is not None}


def test_variables_of_pytest_do_not_reach_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    outcome = run(reference, files=["test_packing.py"], max_examples=1)
    assert {one.result for one in outcome.results} == {"pass"}
