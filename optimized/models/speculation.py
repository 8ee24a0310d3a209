"""Self-speculative decoding: one model drafts for itself, over one nested cache."""

from collections.abc import Collection
from dataclasses import dataclass
from operator import index
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from nibblespec.optimized.checks import check_integer, check_tensor
from nibblespec.optimized.models.cache import cache_argument, nested_attentions, nested_cache
from nibblespec.optimized.modules import select_plane
from nibblespec.optimized.modules.nested_cache import NestedCache
from nibblespec.optimized.modules.rowwise import ROWS
from torch import Tensor

MOST_ROOM = 1024
"""New tokens that a cache has room for from the beginning; it grows where there are more."""

_LOCKS: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()
"""One for each model, since what it reads is switched."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """What was decoded, and how many of the drafts were of use."""

    tokens: Tensor
    """The new tokens, int64 [n]."""
    rounds: int
    """Runs of the target after the prompt."""
    drafted: tuple[int, ...]
    """By position in a round, 1 … γ: how often a token was drafted there."""
    accepted: tuple[int, ...]
    """By position: how often the target chose it too, and all before it."""


@torch.no_grad()
def speculate(
    model: Any,  # noqa: ANN401  # transformers' models have no common type
    ids: Tensor,
    gamma: int,
    *,
    max_new_tokens: int,
    eos: Collection[int] = (),
    cache: NestedCache | None = None,
) -> Speculation:
    """Continue ids, int64 [1, L], greedily: γ tokens by the draft, then one run of the target.

    Decoding stops after `max_new_tokens`, or after a token of `eos`. The tokens are those of the
    target alone, which γ = 0 computes; so is the cache at the end: that of all tokens but the last.
    cache: a nested cache; what it holds already comes before ids. Only the prompt may be fresh:
    later calls read the cache. Whatever is raised, the cache is as it was. Threads that decode with
    one model do so one after the other.

    Raises ValueError for arguments out of range, and for a model that is not nested, TypeError for
    arguments of another type. Implements chapter 13 of the specification.
    """
    first = nested_attentions(model)[0]
    _check(model, ids, gamma, max_new_tokens)
    stops = _stops(eos)
    if cache is None:
        cache = nested_cache(model, capacity=ids.shape[1] + min(max_new_tokens, MOST_ROOM))
    elif not isinstance(cache, NestedCache):
        raise TypeError(f"cache: expected a NestedCache, found {type(cache).__name__}")
    with _LOCKS.setdefault(model, RLock()):
        plane, fresh_from = first.k_proj.plane, cache.layers[0].fresh_from
        length = cache.get_seq_length()
        try:
            return _decoded(model, ids, gamma, max_new_tokens, stops, cache)
        except BaseException:
            cache.rollback(length)
            raise
        finally:
            cache.select_fresh(fresh_from)
            _read(model, cache, plane)


def _decoded(
    model: Any,  # noqa: ANN401
    ids: Tensor,
    gamma: int,
    max_new_tokens: int,
    stops: Collection[int],
    cache: NestedCache,
) -> Speculation:
    """Decode; the cache and the model are left reading the target."""
    drafted, accepted, rounds = [0] * gamma, [0] * gamma, 0
    _read(model, cache, "target")
    tokens = [_choices(model, ids, cache, 1)[-1]]
    start = cache.get_seq_length()
    cache.select_fresh(None)
    while len(tokens) < max_new_tokens and tokens[-1] not in stops:
        left = max_new_tokens - len(tokens)
        drafts = _draft(model, cache, tokens[-1], min(gamma, left - 1), ids.device)
        chosen = _choices(model, _row([tokens[-1], *drafts], ids.device), cache, 0)
        hits = _agreeing(drafts, chosen)
        rounds += 1
        for position in range(len(drafts)):
            drafted[position] += 1
            accepted[position] += position < hits
        tokens += _until(chosen[: hits + 1], stops)
        cache.rollback(start + len(tokens) - 1)
    new = torch.tensor(tokens, dtype=torch.int64, device=ids.device)
    return Speculation(new, rounds, tuple(drafted), tuple(accepted))


def _check(
    model: Any,  # noqa: ANN401
    ids: Tensor,
    gamma: int,
    max_new_tokens: int,
) -> None:
    check_tensor(ids, "ids", (torch.int64, torch.int32), ("1", "L"))
    if ids.shape[0] != 1 or ids.shape[1] < 1:
        raise ValueError(f"ids: expected one sequence, shape [1, L], found {list(ids.shape)}")
    last = model.get_input_embeddings().num_embeddings - 1
    if int(ids.min()) < 0 or int(ids.max()) > last:
        raise ValueError(f"ids: expected 0 … {last}, found {int(ids.min())} … {int(ids.max())}")
    check_integer(gamma, "gamma", 0, ROWS - 1)
    check_integer(max_new_tokens, "max_new_tokens", 1)


def _stops(eos: object) -> frozenset[int]:
    try:
        return frozenset(map(index, eos))  # type: ignore[call-overload]  # that is what is tried
    except TypeError:
        raise TypeError(f"eos: expected a collection of tokens, found {eos!r}") from None


def _draft(
    model: Any,  # noqa: ANN401
    cache: NestedCache,
    last: int,
    count: int,
    device: torch.device,
) -> list[int]:
    """Return tokens that the draft chooses after `last`, and leave the cache as it was."""
    if count == 0:
        return []
    length = cache.get_seq_length()
    _read(model, cache, "draft")
    drafts: list[int] = []
    for _ in range(count):
        drafts += _choices(model, _row([drafts[-1] if drafts else last], device), cache, 1)
    cache.rollback(length)
    _read(model, cache, "target")
    return drafts


def _choices(model: Any, ids: Tensor, cache: NestedCache, keep: int) -> list[int]:  # noqa: ANN401
    """Run the model, and return its greedy choices after the last `keep` tokens; 0: after each."""
    given = {cache_argument(model): cache}
    logits = model(ids, **given, use_cache=True, logits_to_keep=keep).logits
    choices: list[int] = logits[0].argmax(dim=-1).tolist()
    return choices


def _agreeing(drafts: list[int], chosen: list[int]) -> int:
    """Return how many drafts from the first on are what the target chose."""
    pairs = enumerate(zip(drafts, chosen, strict=False))
    return next((place for place, (one, other) in pairs if one != other), len(drafts))


def _until(tokens: list[int], stops: Collection[int]) -> list[int]:
    """Return tokens up to the first of `stops`, that one included."""
    stop = next((place for place, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: stop + 1]


def _row(tokens: list[int], device: torch.device) -> Tensor:
    return torch.tensor([tokens], dtype=torch.int64, device=device)


def _read(model: Any, cache: NestedCache, plane: str) -> None:  # noqa: ANN401
    select_plane(model, plane)
    cache.select_plane(plane)
