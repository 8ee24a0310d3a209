"""A nested cache for a loaded model."""

from inspect import signature
from typing import Any

from nibblespec.optimized.checks import check_integer
from nibblespec.optimized.modules import NestedLinear
from nibblespec.optimized.modules.nested_cache import SMALLEST_CAPACITY, NestedCache, Offsets
from torch import Tensor


def nested_cache(
    model: Any,  # noqa: ANN401  # transformers' models have no common type
    *,
    rotate: bool = False,
    fresh_from: int | None = None,
    capacity: int = SMALLEST_CAPACITY,
) -> NestedCache:
    """Return an empty nested cache for a model of `load_model`; it reads what the model reads.

    The biases of k_proj and v_proj are the offsets, each where there is one. rotate: R3.
    fresh_from, capacity: as in `NestedCache`. Raises ValueError for a model that is not nested, for
    R3 where head_dim is no power of two, and for a negative number, TypeError for what is none.
    """
    check_integer(capacity, "capacity", 0)
    if fresh_from is not None:
        check_integer(fresh_from, "fresh_from", 0)
    attentions = nested_attentions(model)
    first = attentions[0].k_proj
    width = attentions[0].head_dim
    if rotate and width & (width - 1):
        raise ValueError(f"rotate: expected a head_dim that is a power of two, found {width}")
    offsets = [
        Offsets(_by_head(one.k_proj.bias, width), _by_head(one.v_proj.bias, width))
        for one in attentions
    ]
    cache = NestedCache(
        first.operations, offsets, rotate=rotate, fresh_from=fresh_from, capacity=capacity
    )
    cache.select_plane(first.plane)
    return cache


def nested_attentions(model: Any) -> list[Any]:  # noqa: ANN401
    """Return the attentions of a nested model; raise ValueError for another model."""
    layers = getattr(getattr(model, "model", None), "layers", ())
    attentions = [getattr(layer, "self_attn", None) for layer in layers]
    linears = [getattr(one, "k_proj", None) for one in attentions]
    if not linears or not isinstance(linears[0], NestedLinear):
        found = type(linears[0] if linears and linears[0] is not None else model).__name__
        raise ValueError(f"model: expected one of bitnest-package-v1, found {found}")
    return attentions


def cache_argument(model: Any) -> str:  # noqa: ANN401
    """Return what a model of transformers calls its cache: version 5.24 has renamed the argument.

    A version takes the other name without a word, and then runs without the cache.
    """
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def _by_head(bias: Tensor | None, width: int) -> Tensor | None:
    return None if bias is None else bias.view(-1, width)
