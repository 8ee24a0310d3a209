"""Speculative decoding with the operations of a backend, next to decoding with the target alone."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from nibblespec.conformance.suite import gate
from nibblespec.conformance.suite.model_cases import ModelCase
from nibblespec.conformance.suite.model_folders import package_of
from nibblespec.conformance.suite.outcomes import Violation
from nibblespec.optimized import load_model, nested_cache, speculate
from nibblespec.optimized.arrays import FLOAT_DTYPES
from nibblespec.spec.operations import Backend, Capabilities
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A greedy continuation of a prompt; in `dtype`."""

    case: ModelCase
    prompt: tuple[int, ...]
    gamma: int
    tokens: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens, and what the cache holds of each layer: planes and scales of its positions."""

    tokens: list[int]
    contents: list[Tensor]


def expect_the_targets_tokens(
    decoding: Decoding, backend: Backend, capabilities: Capabilities
) -> None:
    """Decode with drafts and without; raise Violation where tokens or caches differ."""
    operations = {
        name: gate.operation(backend, capabilities, name) for name in capabilities.operations
    }
    model = load_model(
        package_of(decoding.case),
        backend=SimpleNamespace(name=backend.name, **operations),
        dtype=FLOAT_DTYPES[decoding.dtype],
    )
    alone, drafted = (_decode(model, decoding, gamma) for gamma in (0, decoding.gamma))
    if drafted.tokens != alone.tokens:
        raise Violation(
            f"{decoding}: expected the target's tokens {alone.tokens}, found {drafted.tokens}",
            "BN1-SPECULATE-TOKENS",
        )
    for place, (expected, found) in enumerate(zip(alone.contents, drafted.contents, strict=True)):
        if expected.shape != found.shape or not torch.equal(expected, found):
            raise Violation(
                f"{decoding}: buffer {place} of the cache is not what the target alone leaves",
                "BN1-SPECULATE-CACHE",
            )


def _decode(model: Any, decoding: Decoding, gamma: int) -> Outcome:  # noqa: ANN401
    """Decode with γ drafts a step; with none, the target runs alone, token by token."""
    cache = nested_cache(model, **dict(decoding.case.cache))
    ids = torch.tensor([decoding.prompt])
    found = speculate(model, ids, gamma, max_new_tokens=decoding.tokens, cache=cache)
    length = cache.get_seq_length()
    contents = [part[:, :, :length] for layer in cache.layers for part in layer.buffers]
    return Outcome(found.tokens.tolist(), contents)
