"""The operations of a format inside a whole model: watched, or moved to the edge of their bounds.

A model calls operations on inputs that no strategy would draw. `Watched` holds each of these calls
to its class. `Disturbed` answers with results that conform as barely as any may: what a model makes
of them is how far a conforming backend can carry it away from the reference.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from nibblespec.conformance.suite import gate
from nibblespec.conformance.suite.compare import expect_equal, expect_within
from nibblespec.conformance.suite.outcomes import BackendError, Violation
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.reference.bounds import Bounded, interval
from nibblespec.reference.bounds_attention import kv_attention_bounded
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.bounds_linear import dashq_linear_bounded
from nibblespec.reference.bounds_nested import nested_linear_bounded, prefill_f16_bounded
from nibblespec.spec.operations import OPERATIONS, Array, Backend, Capabilities
from numpy.typing import NDArray

Operation = Callable[..., Any]

REQUIREMENTS: Mapping[str, str] = {
    "pack_words": "DQ1-PACKING-ORDER",
    "unpack_words": "DQ1-PACKING-ORDER",
    "dashq_reconstruct": "DQ1-RECONSTRUCT-FORMULA",
    "dashq_linear": "DQ1-LINEAR-FORMULA",
    "pack_planes": "BN1-PLANES-ORDER",
    "unpack_planes": "BN1-PLANES-ORDER",
    "nested_reconstruct": "BN1-TARGET-WEIGHT",
    "quantize_activations": "BN1-ACT-CODES",
    "nested_linear": "NUM-LINEAR-NESTED",
    "hadamard": "NUM-HADAMARD-BOUND",
    "kv_quantize": "BN1-KV-CODES",
    "kv_dequantize": "BN1-KV-TARGET",
    "kv_attention": "NUM-ATTENTION-BOUND",
}
"""What a wrong result of an operation breaks, whatever the inputs."""


def oracle(capabilities: Capabilities) -> ReferenceBackend:
    """Return the reference in the evaluation that a backend declares."""
    return ReferenceBackend(
        dashq_rounding=capabilities.dashq_rounding,
        linear_weight_rounding=capabilities.linear_weight_rounding,
        prefill_f16_from=capabilities.prefill_f16_from,
    )


def bounded(name: str, arguments: tuple[Any, ...], capabilities: Capabilities) -> Bounded | None:
    """Return value and error of a call of the bounded class; None for the exact class."""
    match name:
        case "dashq_linear":
            x, words, scale, zero, bias, module = arguments
            declared = capabilities.dashq_rounding, capabilities.linear_weight_rounding
            return dashq_linear_bounded(x, words, scale, zero, bias, module, *declared)
        case "nested_linear":
            first = capabilities.prefill_f16_from
            prefill = first is not None and len(arguments[0]) >= first
            return (prefill_f16_bounded if prefill else nested_linear_bounded)(*arguments[:-1])
        case "hadamard":
            return hadamard_bounded(*arguments[:-1])
        case "kv_attention":
            return kv_attention_bounded(*arguments[:-1])
    return None


def expect_call(
    name: str, arguments: tuple[Any, ...], answer: object, capabilities: Capabilities
) -> None:
    """Hold the answer of one call to its class; raise Violation where it is not in it."""
    allowed = bounded(name, arguments, capabilities)
    if allowed is not None:
        expect_within(name, cast(Array, answer), allowed)
        return
    expected = getattr(oracle(capabilities), name)(*arguments)
    for place, (found, right) in enumerate(zip(_outputs(answer), _outputs(expected), strict=True)):
        expect_equal(f"{name}, output {place}", found, right)


def watched(backend: Backend, capabilities: Capabilities, place: Callable[[], str]) -> Backend:
    """Return the backend behind the gate, with every call judged; `place` says where it is made."""

    def watch(name: str) -> Operation:
        def call(*arguments: Any) -> object:  # noqa: ANN401  # whatever the operation takes
            try:
                answer = gate.operation(backend, capabilities, name)(*arguments)
                expect_call(name, arguments, answer, capabilities)
            except Violation as error:
                ids = error.requirements or (REQUIREMENTS[name],)
                raise Violation(f"in {place()}: {error}", *ids) from error
            except BackendError as error:
                raise BackendError(f"in {place()}: {error}") from error
            return answer

        return call

    return _backend(backend.name, capabilities, {name: watch(name) for name in OPERATIONS})


def disturbed(capabilities: Capabilities, seed: int) -> Backend:
    """Return the reference with every bounded result at one end of its interval.

    Seed 0: the lower end, 1: the upper one, 2: the one farther from zero, 3: the nearer one; above,
    each element has an end of its own, drawn from the seed.
    """
    reference = oracle(capabilities)
    generator = np.random.default_rng(seed)

    def disturb(name: str) -> Operation:
        def call(*arguments: Any) -> object:  # noqa: ANN401  # whatever the operation takes
            allowed = bounded(name, arguments, capabilities)
            if allowed is None:
                return getattr(reference, name)(*arguments)
            exact = getattr(reference, name)(*arguments)
            low, high = interval(allowed, exact.dtype.name)
            end = np.where(_upper(allowed, seed, generator), high, low).astype(exact.dtype)
            return np.where(np.isfinite(allowed.error), end, exact).astype(exact.dtype)

        return call

    return _backend("disturbed reference", capabilities, {n: disturb(n) for n in OPERATIONS})


def _upper(allowed: Bounded, seed: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Say for each element whether it goes to the upper end."""
    positive: NDArray[np.bool_] = allowed.value > 0
    fixed = (np.zeros_like(positive), np.ones_like(positive), positive, ~positive)
    return fixed[seed] if seed < len(fixed) else generator.random(positive.shape) < 0.5


def _backend(name: str, capabilities: Capabilities, operations: dict[str, Operation]) -> Backend:
    return cast(
        Backend,
        SimpleNamespace(
            name=name, version="", device="", capabilities=lambda: capabilities, **operations
        ),
    )


def _outputs(answer: object) -> tuple[Array, ...]:
    return answer if isinstance(answer, tuple) else (cast(Array, answer),)
