"""Fixtures of the suite: what the backend claims, and each operation behind the gate."""

import pytest
from nibblespec.conformance.suite import gate
from nibblespec.conformance.suite.session import backend_under_test, trial_of
from nibblespec.conformance.suite.trial import Trial
from nibblespec.spec.operations import OPERATIONS, Backend, Capabilities


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """Say how this test is run; `for_all` asks for it."""
    return trial_of(request.node)


@pytest.fixture
def capabilities(trial: Trial) -> Capabilities:
    """Return what the backend claims."""
    return trial.capabilities


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return the backend itself, for what calls it through a model; the gate is around it there."""
    return backend_under_test(request.config)


def _operation_fixture(name: str) -> object:
    """Make the fixture that a test names to call an operation."""

    @pytest.fixture(name=name)
    def operation(request: pytest.FixtureRequest, capabilities: Capabilities) -> gate.Operation:
        return gate.operation(backend_under_test(request.config), capabilities, name)

    return operation


globals().update({name: _operation_fixture(name) for name in OPERATIONS})


@pytest.fixture
def operation(
    operation_name: str, request: pytest.FixtureRequest, capabilities: Capabilities
) -> gate.Operation:
    """Return the operation of a test that runs for each of them."""
    return gate.operation(backend_under_test(request.config), capabilities, operation_name)
