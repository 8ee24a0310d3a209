"""Which broken backends whole models tell, and why the others pass: `python -m tests.teeth models`.

The page docs/teeth_models.md is the table. A change that no model shows has not been called, or
leaves all bits as they are, or leaves other bits inside every bound.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from nibblespec.conformance.suite.model_cases import BITNEST, DASHQ, ModelCase
from nibblespec.conformance.suite.model_runs import (
    Place,
    Run,
    evaluation_of,
    expect_parity,
    expected_run,
    greedy,
    run_model,
)
from nibblespec.conformance.suite.outcomes import BackendError, Violation
from nibblespec.conformance.suite.speculation import Decoding, expect_the_targets_tokens
from nibblespec.conformance.suite.test_speculation import CASE, GAMMA, PROMPT, TOKENS
from nibblespec.spec.operations import Backend

from tests.teeth.mutant import Mutant, broken_backend
from tests.teeth.mutants import BY_SUBJECT, MUTANTS

PAGE = Path(__file__).parents[2] / "docs" / "teeth_models.md"

CALLED: Mapping[str, tuple[ModelCase, ...]] = {
    "dashq_linear": DASHQ,
    "dashq_reconstruct": DASHQ,
    "unpack_words": DASHQ,
    "quantize_activations": BITNEST,
    "nested_linear": BITNEST,
    "hadamard": BITNEST,
    "kv_quantize": BITNEST,
    "kv_dequantize": BITNEST,
    "kv_attention": BITNEST,
    "unpack_planes": BITNEST,
    "nested_reconstruct": BITNEST,
}
"""The models that call an operation, or that call one whose reference is made with it."""

SPECULATION = "speculative decoding"

Trace = Literal["fail", "error", "bits", "none", "uncalled"]

TRACES: Mapping[Trace, str] = {
    "fail": "rejected",
    "error": "ends in an exception",
    "bits": "other bits, inside every bound",
    "none": "the same bits",
    "uncalled": "not called",
}

INTRODUCTION = """\
# The suite's teeth in whole models

<!-- Written by `python -m tests.teeth models --write`; a test compares it with the code. -->

The broken backends of [The suite's teeth](teeth.md) do the operations of the suite's tiny models.
Of {all} the model tests reject {rejected}; {errors} more cannot run a model, which is reported as
an error. The others do not affect these models: {uncalled} break an operation that a model does not
call, {same} leave every hidden state and every logit as it is, and {inside} change bits and stay
inside every bound, for the inputs that these models give them.

A model test names the operation, the layer and the requirement of the first call that is wrong.
"""

_ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` \| (?P<trace>[^|]+?) \| (?P<case>[^|]*?) \|", re.M)


def trace_of(mutant: Mutant) -> tuple[Trace, str]:
    """Return what the models make of a mutant, and the first case that shows it."""
    backend = broken_backend(mutant)
    inside = ""
    if mutant.operation not in CALLED:
        return "uncalled", ""
    for case in CALLED[mutant.operation]:
        trace = _trace(case, backend)
        if trace in ("fail", "error"):
            return trace, str(case)
        if trace == "bits" and not inside:
            inside = str(case)
    if CALLED[mutant.operation] is BITNEST and _tokens_differ(backend):
        return "fail", SPECULATION
    return ("bits", inside) if inside else ("none", "")


def traces() -> Iterator[tuple[Mutant, Trace, str]]:
    """Judge all mutants, one after the other."""
    for mutant in MUTANTS:
        yield (mutant, *trace_of(mutant))


def read_page(page: str) -> Mapping[str, tuple[Trace, str]]:
    """Read from the page what it says of each broken backend."""
    names: Mapping[str, Trace] = {text: name for name, text in TRACES.items()}
    return {row["name"]: (names[row["trace"]], row["case"]) for row in _ROW.finditer(page)}


def render(found: Mapping[str, tuple[Trace, str]]) -> str:
    """Write the page from what was found of each broken backend."""
    counts = {trace: sum(one == trace for one, _ in found.values()) for trace in TRACES}
    parts = [
        INTRODUCTION.format(
            all=len(found),
            rejected=counts["fail"],
            same=counts["none"],
            inside=counts["bits"],
            errors=counts["error"],
            uncalled=counts["uncalled"],
        )
    ]
    for subject, mutants in BY_SUBJECT.items():
        rows = [
            f"| `{one.name}` | {TRACES[found[one.name][0]]} | {found[one.name][1]} |\n"
            for one in mutants
        ]
        parts.append(f"## {subject}\n")
        parts.append("| broken backend | in models | first shown by |\n| --- | --- | --- |\n")
        parts[-1] += "".join(rows)
    return "\n".join(parts)


def _trace(case: ModelCase, backend: Backend) -> Trace:
    capabilities = backend.capabilities()
    evaluation = evaluation_of(capabilities)
    try:
        expect_parity(case, backend, capabilities)
    except Violation:
        return "fail"
    except BackendError:
        return "error"
    expected = expected_run(case, evaluation)
    found = run_model(case, backend, greedy(expected), Place())
    return "none" if _same(found, expected) else "bits"


def _tokens_differ(backend: Backend) -> bool:
    """Say whether speculative decoding is told from decoding with the target alone."""
    capabilities = backend.capabilities()
    if capabilities.prefill_f16_from is not None:
        return False  # one row and several may be in different modes then
    decoding = Decoding(case=CASE, prompt=PROMPT, gamma=GAMMA, tokens=TOKENS, dtype="float32")
    try:
        expect_the_targets_tokens(decoding, backend, capabilities)
    except Violation:
        return True
    return False


def _same(one: Run, other: Run) -> bool:
    pairs = zip(one.places().values(), other.places().values(), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
