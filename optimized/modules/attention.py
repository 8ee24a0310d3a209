"""Attention over the nested cache, as an attention function of transformers."""

from collections.abc import Callable
from typing import Any

import torch
from nibblespec.optimized.modules.nested_cache import Fresh, NestedCache, NestedLayer
from nibblespec.optimized.modules.packed import forward_only
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

NAME = "nibblespec"
"""The name under which a configuration asks for this attention."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | NestedLayer | Fresh,
    value: Any,  # noqa: ANN401  # of key's type
    attention_mask: Tensor | None,
    scaling: float,
    **_: Any,  # noqa: ANN401  # what other attention functions take
) -> tuple[Tensor, None]:
    """Return x's dtype [B, M, Hq, D] for queries [B, Hq, M, D] after RoPE.

    key and value are what `NestedCache` hands over; with any other cache, or none, they are
    tensors [B, Hkv, L, D], and attention is plain, in float32. Raises ValueError for a mask of the
    caller's own, which transformers hands on without asking `mask`.
    """
    del module
    if attention_mask is not None:
        raise _own_mask(attention_mask)
    if isinstance(key, NestedLayer):
        y = _cached(query, key, scaling)
    elif isinstance(key, Fresh):
        y = _plain(key.layer.rotated(query), key.keys, key.values, scaling)
    else:
        y = _plain(query, key, value, scaling)
    return y.to(query.dtype).transpose(1, 2).contiguous(), None


def _cached(query: Tensor, layer: NestedLayer, scaling: float) -> Tensor:
    k_hi, k_lo, k_scale, v_hi, v_lo, v_scale = layer.buffers
    draft = layer.plane == "draft"
    y = layer.operations.kv_attention(
        layer.rotated(query),
        k_hi,
        None if draft else k_lo,
        k_scale,
        v_hi,
        None if draft else v_lo,
        v_scale,
        layer.v_offset,
        layer.length - query.shape[2],
        layer.plane,
        scaling,
        query.dtype,
    )
    return forward_only(y, query)


def _plain(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """Return float32 [B, Hq, M, D]; the queries are the last M of L positions."""
    queries, length = query.shape[2], keys.shape[2]
    place = torch.arange(length, device=query.device)
    seen = place <= place[length - queries :, None]
    return nn.functional.scaled_dot_product_attention(
        query.to(torch.float32),
        keys.to(torch.float32),
        values.to(torch.float32),
        attn_mask=seen,
        scale=scaling,
        enable_gqa=True,
    )


def mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    mask_function: Callable[..., Any] = causal_mask_function,
    **_: Any,  # noqa: ANN401  # what other masks are made of
) -> None:
    """Let every query see all positions up to its own, and refuse what asks for anything else."""
    if kv_offset or kv_length != q_offset + q_length:
        raise ValueError(
            f"cache: expected one that holds {int(q_offset)} positions and these {q_length}, found "
            f"one of {kv_length} that begins at {kv_offset}; take nested_cache or a DynamicCache"
        )
    # A compiler traces a general mask even where the positions ask for none.
    if mask_function is not causal_mask_function and not torch.compiler.is_compiling():
        raise ValueError(
            "position_ids: expected one sequence in each row, found several, or a mask that is not "
            "causal; run sequences one by one"
        )
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError(
            "attention_mask: expected ones alone, found zeros; run sequences of different lengths "
            "one by one, since the nested cache has one length"
        )


def before_call(decoder: nn.Module, _: tuple[Any, ...], given: dict[str, Any]) -> None:
    """Refuse what would be refused when some layers have written to the cache, but not all.

    A hook of the module that holds the decoder layers. A cache forgets what an interrupted call has
    left in some of its layers.
    """
    attention_mask = given.get("attention_mask")
    if isinstance(attention_mask, Tensor) and attention_mask.ndim != 2:
        raise _own_mask(attention_mask)
    cache = given.get("cache", given.get("past_key_values"))
    if isinstance(cache, NestedCache):
        layers: Any = decoder.layers
        if len(cache.layers) != len(layers):
            raise ValueError(
                f"cache: expected one of {len(layers)} layers, as the model has, found one of "
                f"{len(cache.layers)}; nested_cache makes one for a model"
            )
        cache.rollback(cache.get_seq_length())


def _own_mask(attention_mask: Tensor) -> ValueError:
    return ValueError(
        f"attention_mask: expected shape [B, L], found {list(attention_mask.shape)}; a query sees "
        f"all positions up to its own"
    )


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
