"""A whole model with the operations of a backend, step by step, and how far two may lie apart.

Everything that is no operation of a format (embeddings, norms, activation functions, routers,
linear attention) is the same code on the same device, whatever the backend: what differs between
two runs comes from the operations.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from nibblespec.conformance.suite.model_cases import ModelCase
from nibblespec.conformance.suite.model_folders import package_of
from nibblespec.conformance.suite.model_operations import disturbed, oracle, watched
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.optimized import load_model, nested_cache
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.reference.rounding import Float64
from nibblespec.spec.operations import Backend, Capabilities
from torch import Tensor, nn
from transformers import DynamicCache

PROMPT_TOKENS = 20
"""More than the 16 from which on the cache may be bypassed (fresh attention)."""

STEPS = 4
"""Tokens that are decoded one at a time after the prompt."""

DISTURBED = 8
"""Runs with all bounded results at an end of their intervals."""

FREEDOM = 4
"""How much farther than the farthest of those a conforming backend may be: their ends are chosen
without knowledge of the model, and a code that flips moves a result by a whole step."""


@dataclass(frozen=True, slots=True)
class Run:
    """Hidden states by place, [tokens, hidden] each, and logits [tokens, vocabulary]."""

    hidden: Mapping[str, Float64]
    logits: Float64

    def places(self) -> dict[str, Float64]:
        """Return hidden states and logits in the order of the computation."""
        return {**self.hidden, "logits": self.logits}


@dataclass(slots=True)
class Place:
    """Where in the model the computation is, kept by hooks."""

    stack: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.stack[-1] if self.stack else "the model"

    @contextmanager
    def follow(self, model: nn.Module) -> Iterator[None]:
        """Keep the names of the modules that are being called."""
        handles = []
        for name, module in model.named_modules():
            if not name:
                continue
            handles.append(
                module.register_forward_pre_hook(lambda *_, name=name: self.stack.append(name))
            )
            handles.append(module.register_forward_hook(lambda *_: self._leave()))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.stack.clear()

    def _leave(self) -> None:
        self.stack.pop()


def expect_parity(case: ModelCase, backend: Backend, capabilities: Capabilities) -> None:
    """Hold each call to its class, states and logits to the reference's, then decode alone."""
    evaluation = evaluation_of(capabilities)
    place = Place()
    tokens = greedy(expected_run(case, evaluation))
    found = run_model(case, watched(backend, capabilities, lambda: str(place)), tokens, place)
    expect_near(case, found, evaluation)
    expect_tokens(case, run_model(case, backend, None, Place()), evaluation)


def run_model(
    case: ModelCase, backend: Backend, tokens: tuple[int, ...] | None, place: Place
) -> Run:
    """Run prompt and decoding steps.

    Decoded are the tokens that another run found after each position, or the greedy ones.
    """
    model = load_model(
        package_of(case), plane=case.plane, backend=backend, dtype=getattr(torch, case.dtype)
    )
    ids = torch.from_numpy(prompt(model.config.vocab_size))[None]
    hidden: list[Any] = []
    logits: list[Any] = []
    cache = (
        nested_cache(model, **dict(case.cache))
        if case.target == "bitnest"
        else DynamicCache(config=model.config)
    )
    given = {cache_argument(model): cache}
    with torch.inference_mode(), place.follow(model):
        for step in range(STEPS + 1):
            found = model(ids, **given, use_cache=True, output_hidden_states=True)
            hidden.append([_rows(one) for one in found.hidden_states])
            logits.append(_rows(found.logits))
            at = PROMPT_TOKENS - 1 + step
            following = int(logits[-1][-1].argmax()) if tokens is None else tokens[at]
            ids = torch.tensor([[following]])
    states = [np.concatenate(layer) for layer in zip(*hidden, strict=True)]
    names = ["embeddings", *(f"layer {i}" for i in range(len(states) - 1))]
    return Run(dict(zip(names, states, strict=True)), np.concatenate(logits))


@cache
def expected_run(case: ModelCase, evaluation: tuple[Any, ...]) -> Run:
    """Return the run of the reference in an evaluation of `evaluation_of`."""
    return run_model(case, oracle(_capabilities(evaluation)), None, Place())


@cache
def tolerances(case: ModelCase, evaluation: tuple[Any, ...]) -> Mapping[str, float]:
    """Return how far hidden states and logits may be from the expected ones, by place."""
    expected = expected_run(case, evaluation)
    tokens = greedy(expected)
    runs = [
        run_model(case, disturbed(_capabilities(evaluation), seed), tokens, Place())
        for seed in range(DISTURBED)
    ]
    return {
        name: FREEDOM * max(float(np.abs(run.places()[name] - states).max()) for run in runs)
        for name, states in expected.places().items()
    }


def evaluation_of(capabilities: Capabilities) -> tuple[Any, ...]:
    """Return what of a claim decides which results are right."""
    return (
        capabilities.dashq_rounding,
        capabilities.linear_weight_rounding,
        capabilities.prefill_f16_from,
    )


def greedy(run: Run) -> tuple[int, ...]:
    """Return the greedy token after each position."""
    return tuple(int(row.argmax()) for row in run.logits)


def expect_near(case: ModelCase, found: Run, evaluation: tuple[Any, ...]) -> None:
    """Hold states and logits to their tolerances, in the order of the computation."""
    expected = expected_run(case, evaluation).places()
    for name, allowed in tolerances(case, evaluation).items():
        apart = np.abs(found.places()[name] - expected[name])
        if not apart.max() <= allowed:
            token, element = np.unravel_index(int(np.argmax(apart)), apart.shape)
            raise Violation(
                f"{case}: {name} is the first that diverges: at token {token}, element {element} "
                f"expected {expected[name][token, element]:.6g} ± {allowed:.3g}, "
                f"found {found.places()[name][token, element]:.6g}",
                "NUM-MODEL-STATES",
            )


def expect_tokens(case: ModelCase, found: Run, evaluation: tuple[Any, ...]) -> int:
    """Hold greedy tokens to the expected ones where those are decided; return how many were.

    A token is decided where the two largest logits are farther apart than twice what each may be
    off. Where one is decoded that is not, and is another, the runs part and nothing more follows.
    """
    expected = expected_run(case, evaluation)
    allowed = tolerances(case, evaluation)["logits"]
    decided = 0
    for place, (right, token) in enumerate(zip(greedy(expected), greedy(found), strict=True)):
        first, second = np.sort(expected.logits[place])[[-1, -2]]
        if first - second > 2 * allowed:
            decided += 1
            if token != right:
                raise Violation(
                    f"{case}: after token {place}: expected token {right}, whose logit leads by "
                    f"{first - second:.3g}, found token {token}",
                    "NUM-MODEL-TOKENS",
                )
        elif token != right and place >= PROMPT_TOKENS - 1:
            break
    return decided


def prompt(vocabulary: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the tokens of the prompt, int64 [PROMPT_TOKENS]."""
    return np.random.default_rng(0).integers(0, vocabulary, PROMPT_TOKENS)


def _capabilities(evaluation: tuple[Any, ...]) -> Capabilities:
    rounding, weight_rounding, prefill = evaluation
    return Capabilities(
        operations=(),
        dashq_rounding=rounding,
        linear_weight_rounding=weight_rounding,
        prefill_f16_from=prefill,
    )


def _rows(states: Tensor) -> Float64:
    rows: Float64 = states[0].double().numpy()
    return rows
