"""What the suite says of a backend: which test rejects a broken one, what it objects to."""

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from nibblespec.conformance.suite.results import TestResult
from nibblespec.conformance.suite.run import SUITE, run
from nibblespec.spec.operations import OPERATIONS, Backend
from nibblespec.spec.requirements import requirements

from tests.teeth.mutant import Mutant, broken_backend
from tests.teeth.variant import Variant

BY_THE_GATE = frozenset({"NUM-OUTPUT-FORM", "NUM-OUTPUT-FRESH", "NUM-INPUT-UNCHANGED"})
"""Requirements that any call of any test checks."""

CALLED_BY = {
    "dashq": ("dashq_linear",),
    "bitnest": (
        "quantize_activations",
        "nested_linear",
        "hadamard",
        "kv_quantize",
        "kv_attention",
    ),
}
"""The operations that a model calls, by its format."""


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """One test of the suite: its node id, what it speaks of, what it calls."""

    node: str
    requirements: tuple[str, ...]
    operations: tuple[str, ...]


@cache
def suite_tests() -> tuple[SuiteTest, ...]:
    """Return the tests of the suite, in the order in which they run."""
    return tuple(
        test
        for file in sorted(SUITE.glob("test_*.py"))
        for name, function in vars(
            importlib.import_module(f"nibblespec.conformance.suite.{file.stem}")
        ).items()
        if name.startswith("test_")
        for test in _tests(f"{file.name}::{name}", function)
    )


def nodes_of(operation: str, requirement: str | None = None) -> list[str]:
    """Return the node ids of the tests that call an operation and speak of a requirement."""
    return [
        test.node
        for test in suite_tests()
        if operation in test.operations and requirement in (None, *test.requirements)
    ]


def rejects(test: str, mutant: Mutant, seed: int = 0) -> bool:
    """Say whether a test of the suite rejects the mutant as it should be rejected.

    The result is a `fail`; an `error`, a crash, does not count. It names every requirement that
    the mutant breaks, and what it names first is none of the gate's that the mutant does not break.
    """
    return any(
        result.result == "fail"
        and set(mutant.breaks) <= set(result.requirements)
        and result.requirements[0] not in BY_THE_GATE.difference(mutant.breaks)
        for result in judged(broken_backend(mutant), [test], seed)
    )


def rejecting_test(mutant: Mutant, seeds: range) -> str | None:
    """Return the first test that rejects the mutant whatever the seed, None if there is none."""
    return next(
        (
            test
            for test in nodes_of(mutant.operation, mutant.breaks[0])
            if all(rejects(test, mutant, seed) for seed in seeds)
        ),
        None,
    )


def objections(variant: Variant, seed: int = 0) -> list[TestResult]:
    """Return the results that reject a correct backend, of all tests of its operations.

    Advice (SHOULD) may go unheeded. Raises RuntimeError where no test passed.
    """
    nodes = dict.fromkeys(node for name in variant.operations for node in nodes_of(name))
    results = judged(variant.backend, list(nodes), seed)
    if all(one.result != "pass" for one in results):
        raise RuntimeError(f"{variant.name}: no test has passed")
    return [
        one
        for one in results
        if one.result == "error"
        or (
            one.result == "fail"
            and any(requirements()[name].level == "MUST" for name in one.requirements)
        )
    ]


def judged(backend: Backend, nodes: Sequence[str], seed: int = 0) -> tuple[TestResult, ...]:
    """Run some tests of the suite on a backend, with default settings but no shrinking."""
    if not nodes:
        raise ValueError("no test to run")
    # Collecting garbage at the end of each of hundreds of sessions takes as long as the tests.
    arguments = ("-p", "no:unraisableexception")
    outcome = run(backend, files=nodes, seed=seed, shrink=False, arguments=arguments)
    if not outcome.results:
        raise RuntimeError(f"the suite did not run: {outcome.output}")
    return outcome.results


def _tests(node: str, function: object) -> list[SuiteTest]:
    """Return a test function's test; one for each operation, or the one of a model."""
    marks: list[pytest.Mark] = getattr(function, "pytestmark", [])
    ids = tuple(str(name) for mark in marks if mark.name == "requirement" for name in mark.args)
    assert callable(function)
    parameters = inspect.signature(function).parameters
    calls = tuple(name for name in parameters if name in OPERATIONS)
    if "backend" in parameters and "case" not in parameters:
        calls = CALLED_BY["bitnest"]  # it decodes with a nested model
    for mark in marks:
        if mark.name == "parametrize" and mark.args[0] == "operation_name":
            return [SuiteTest(f"{node}[{name}]", ids, (name,)) for name in OPERATIONS]
        if mark.name == "parametrize" and mark.args[0] == "case":
            # The first model of each test stands for all: it calls the same operations.
            first = mark.args[1][0]
            return [SuiteTest(f"{node}[{first}]", ids, CALLED_BY[first.target])]
    return [SuiteTest(node, ids, calls)]
