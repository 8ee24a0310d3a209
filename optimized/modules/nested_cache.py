"""The nested KV cache, as a cache of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from nibblespec.optimized import triton_mode  # noqa: F401  # before transformers is imported
from nibblespec.optimized.checks import PLANES
from nibblespec.optimized.operations import Operations
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

SMALLEST_CAPACITY = 64

EMPTY_BYTE = 0x88
"""Two codes 0 (BN1-PLANES-EXCESS): a byte of 0 would be two codes -8, which no residual may have
beside q4 = -8."""

_EMPTY = (EMPTY_BYTE, EMPTY_BYTE, 0.0) * 2
"""What the buffers of a layer hold where nothing is written."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of one layer, [Hkv, D] each or None: the biases of k_proj and of v_proj."""

    keys: Tensor | None = None
    values: Tensor | None = None


class _NoTensor:
    """What only our attention reads: another one, which looks for a tensor, is told so."""

    if not TYPE_CHECKING:  # for the checker, an attribute that is not there stays an error

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            raise AttributeError(
                f"{name}: a nested cache is read by the attention of models of bitnest-package-v1, "
                f'and found another one; call set_attn_implementation("nibblespec") where it was '
                f"changed, and give other models a cache of transformers"
            )


class NestedLayer(_NoTensor, CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers has no types
    """Keys and values of one layer: two nibble planes and one scale for each token and head.

    Buffers have the capacity L: planes uint8 [B, Hkv, L, D/2], scales float32 [B, Hkv, L]. Past
    `length` all codes and scales are zero. They grow when they are full, and are made at the first
    write.
    """

    is_sliding = False
    is_croppable = True

    def __init__(
        self, operations: Operations, offsets: Offsets, *, rotate: bool, capacity: int
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = operations
        self.rotate = rotate
        self.capacity = capacity
        self.length = 0
        self.plane = "target"
        self.fresh_from: int | None = None
        self.k_offset = None if offsets.keys is None else self.rotated(offsets.keys)
        self.v_offset = offsets.values
        self.buffers: tuple[Tensor, ...] = ()
        """k_hi, k_lo, k_scale, v_hi, v_lo, v_scale."""

    def rotated(self, x: Tensor) -> Tensor:
        """Return what R3 makes of [..., D], in float32; x itself without R3."""
        return self.operations.hadamard(x, None, torch.float32) if self.rotate else x

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the buffers, for the batch, heads and width of the first keys and values."""
        del value_states
        with torch.inference_mode(False):  # so that calls in any mode may write
            self.buffers = _buffers(key_states, self.capacity)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:  # noqa: ANN401  # not what the base class returns
        """Write keys and values [B, Hkv, M, D] behind those that are there.

        Returns what the attention function reads, twice: this layer, or for a fresh call the keys
        and values as they are. Raises ValueError for other numbers of sequences, heads or columns
        than it holds. Implements 11.1 and 11.3 of the specification.
        """
        if self.is_initialized:
            self._check(key_states)
        start, count = self.length, key_states.shape[2]
        keys, values = self.rotated(key_states.detach()), value_states.detach()
        fresh = self.fresh_from is not None and count >= self.fresh_from
        read = self._fresh(keys, values) if fresh else self
        written = (
            *self.operations.kv_quantize(keys, self.k_offset),
            *self.operations.kv_quantize(values, self.v_offset),
        )
        self.reserve(start + count)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        for buffer, part in zip(self.buffers, written, strict=True):
            buffer[:, :, start : start + count] = part
        self.length = start + count
        return read, read

    def _check(self, keys: Tensor) -> None:
        batch, heads, _, half = self.buffers[0].shape
        if keys.shape[0] != batch:
            raise ValueError(
                f"batch: expected {batch} sequences, as the cache has, found {keys.shape[0]}"
            )
        if (keys.shape[1], keys.shape[3]) != (heads, 2 * half):
            raise ValueError(
                f"keys: expected {heads} heads of width {2 * half}, as the cache has, found "
                f"{keys.shape[1]} of {keys.shape[3]}; nested_cache makes one for a model"
            )

    def _fresh(self, keys: Tensor, values: Tensor) -> "Fresh":
        """Return all keys and values for a fresh call: those of the cache, and these unquantized.

        Keys are without the offset, which no softmax sees, as those of the cache are.
        """
        wide = keys.to(torch.float32)
        if self.k_offset is not None:
            wide = wide - self.k_offset.to(torch.float32)[:, None, :]
        if self.length == 0:
            return Fresh(self, wide, values.to(torch.float32))
        k_hi, k_lo, k_scale, v_hi, v_lo, v_scale = (
            buffer[:, :, : self.length].contiguous() for buffer in self.buffers
        )
        read = self.operations.kv_dequantize
        old_keys = read(k_hi, k_lo, k_scale, self.plane)
        old_values = read(v_hi, v_lo, v_scale, self.plane)
        if self.v_offset is not None:
            old_values = old_values + self.v_offset.to(torch.float32)[:, None, :]
        return Fresh(
            self,
            torch.cat([old_keys, wide], dim=2),
            torch.cat([old_values, values.to(torch.float32)], dim=2),
        )

    def reserve(self, length: int) -> None:
        """Make room for that many positions: twice the capacity, where it does not suffice."""
        if not self.is_initialized:
            self.capacity = max(self.capacity, length)
        elif length > self.capacity:
            added = max(length, 2 * self.capacity) - self.capacity
            with torch.inference_mode(False):
                self.buffers = tuple(
                    torch.cat([buffer, buffer.new_full(_resized(buffer, added), empty)], dim=2)
                    for buffer, empty in zip(self.buffers, _EMPTY, strict=True)
                )
            self.capacity += added

    def rollback(self, length: int) -> None:
        """Forget all positions from `length` on, as if they had never been written.

        Raises ValueError where there are fewer.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"length: expected 0 … {self.length}, found {length}")
        if length == self.length:
            return
        # strict=False: nothing is written before the buffers are made.
        for buffer, empty in zip(self.buffers, _EMPTY, strict=False):
            buffer[:, :, length : self.length] = empty
        self.length = length

    def reset(self) -> None:
        """Forget everything, the number of sequences too."""
        self.buffers, self.length, self.is_initialized = (), 0, False

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many keys a call of that many queries sees, and where the first one is."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many positions are written."""
        return self.length

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the sequences of a batch in another order."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some sequences of a batch."""
        with torch.inference_mode(False):
            self.buffers = tuple(buffer[indices.to(buffer.device)] for buffer in self.buffers)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence of a batch."""
        with torch.inference_mode(False):
            self.buffers = tuple(
                buffer.repeat_interleave(repeats, dim=0) for buffer in self.buffers
            )


@dataclass(frozen=True, slots=True)
class Fresh(_NoTensor):
    """Keys without their offset, and values, float32 [B, Hkv, L, D], that a fresh call reads."""

    layer: NestedLayer
    keys: Tensor
    values: Tensor


class NestedCache(Cache):
    """A nested KV cache: one `NestedLayer` for each decoder layer.

    It goes into a model of transformers as its cache; that model's attention has to be
    `nibblespec.optimized.modules.attention`. Sequences of a batch have the same length.
    """

    layers: list[NestedLayer]  # type: ignore[assignment]  # all of one kind

    def __init__(
        self,
        operations: Operations,
        offsets: Sequence[Offsets],
        *,
        rotate: bool = False,
        fresh_from: int | None = None,
        capacity: int = SMALLEST_CAPACITY,
    ) -> None:
        """Make an empty cache, with the offsets of each layer.

        rotate: whether queries and keys go through the Hadamard transform (R3); head_dim has to be
        a power of two. fresh_from: a call of at least so many tokens attends to its own keys and
        values unquantized; None: every call attends to what the cache holds. capacity: positions
        to make room for at first.
        """
        super().__init__(
            layers=[
                NestedLayer(operations, each, rotate=rotate, capacity=capacity) for each in offsets
            ]
        )
        self.select_fresh(fresh_from)

    def select_plane(self, plane: str) -> None:
        """Let attention read as the draft or as the target from now on.

        Writing fills both planes in any case. Raises ValueError for another name.
        """
        if plane not in PLANES:
            raise ValueError(f"plane: expected {' or '.join(PLANES)}, found {plane!r}")
        for layer in self.layers:
            layer.plane = plane

    def select_fresh(self, fresh_from: int | None) -> None:
        """Say from how many tokens on a call is fresh, from now on; None: no call is."""
        for layer in self.layers:
            layer.fresh_from = fresh_from

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many positions all layers hold: a call that is interrupted reaches some."""
        del layer_idx
        lengths = [layer.length for layer in self.layers]
        return min(lengths) if lengths else 0

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions: -n forgets n of them, as transformers counts."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove: expected at most 0, found {tokens_to_remove}")
        self.rollback(self.get_seq_length() + tokens_to_remove)

    def rollback(self, length: int) -> None:
        """Forget all positions from `length` on, in every layer, as if never written.

        Raises ValueError where the cache holds fewer.
        """
        if not 0 <= length <= self.get_seq_length():
            raise ValueError(f"length: expected 0 … {self.get_seq_length()}, found {length}")
        for layer in self.layers:
            layer.rollback(length)


def _buffers(keys: Tensor, capacity: int) -> tuple[Tensor, ...]:
    batch, heads, _, width = keys.shape
    shape = batch, heads, capacity, width // 2
    plane = keys.new_full(shape, EMPTY_BYTE, dtype=torch.uint8)
    scale = keys.new_zeros(batch, heads, capacity, dtype=torch.float32)
    return plane, plane.clone(), scale, plane.clone(), plane.clone(), scale.clone()


def _resized(buffer: Tensor, length: int) -> list[int]:
    shape = list(buffer.shape)
    shape[2] = length
    return shape
