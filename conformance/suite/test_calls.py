"""Numerics, chapters 2 and 7: what holds of every call of every operation."""

from itertools import pairwise

import numpy as np
import pytest
from nibblespec.conformance.suite.calls import sample_calls
from nibblespec.conformance.suite.compare import expect_same
from nibblespec.conformance.suite.gate import Operation
from nibblespec.conformance.suite.markers import requirement
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.spec.operations import OPERATIONS, Array, Capabilities

every_operation = pytest.mark.parametrize("operation_name", OPERATIONS)


@requirement("NUM-OUTPUT-FORM", "NUM-INPUT-UNCHANGED")
@every_operation
def test_results_have_their_form_and_inputs_stay(
    operation: Operation, operation_name: str, capabilities: Capabilities
) -> None:
    """Exact dtype and shape of every result; the gate checks this of every call of the suite."""
    for arguments in sample_calls(operation_name, capabilities):
        operation(*arguments)


@requirement("NUM-OUTPUT-FRESH")
@every_operation
def test_a_later_call_leaves_results_as_they_are(
    operation: Operation, operation_name: str, capabilities: Capabilities
) -> None:
    """No buffer is handed out twice."""
    calls = sample_calls(operation_name, capabilities)
    for arguments, others in pairwise([*calls, calls[0]]):
        first = outputs(operation(*arguments))
        kept = [output.copy() for output in first]
        later = [*outputs(operation(*others)), *outputs(operation(*arguments))]
        for output, copy in zip(first, kept, strict=True):
            expect_same(operation_name, output, copy, "before a later call")
            if any(output.size and np.may_share_memory(output, other) for other in later):
                raise Violation(f"{operation_name}: two calls returned the same memory")


@requirement("NUM-INVARIANT-REPEAT")
@every_operation
def test_the_same_call_gives_the_same_bits(
    operation: Operation, operation_name: str, capabilities: Capabilities
) -> None:
    """Again at once, and again after calls of other shapes."""
    calls = sample_calls(operation_name, capabilities)
    first = [[output.copy() for output in outputs(operation(*call))] for call in calls]
    places = range(len(calls))
    # Backwards as well, since what goes wrong every other time may meet the same calls again.
    for place in (*reversed(places), *places):
        for output, before in zip(outputs(operation(*calls[place])), first[place], strict=True):
            expect_same(operation_name, output, before, "in an earlier call")


def outputs(answer: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """Return the results of a call as a tuple."""
    return answer if isinstance(answer, tuple) else (answer,)
