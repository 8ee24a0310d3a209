"""The nested cache: what is written, what is read, what rolling back leaves, in transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model, nested_cache, select_plane
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules.attention import attention
from nibblespec.optimized.modules.nested_cache import EMPTY_BYTE, NestedCache, Offsets
from nibblespec.optimized.pytorch import operations
from torch import Tensor, nn
from transformers import StaticCache

from tests.convert_models import save_model

BATCH, HEADS, WIDTH = 2, 3, 8
OFFSETS = Offsets(
    torch.arange(24.0).view(HEADS, WIDTH).half() / 8, torch.ones(HEADS, WIDTH).half() * 0.5
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def vectors(count: int, seed: int = 0) -> Tensor:
    return normal(BATCH, HEADS, count, WIDTH, seed=seed)


def cache(offsets: Offsets = OFFSETS, **options: Any) -> NestedCache:  # noqa: ANN401
    return NestedCache(operations, [offsets], **options)


def write(into: NestedCache, count: int, seed: int) -> tuple[Tensor, Tensor]:
    keys, values = vectors(count, seed), vectors(count, seed + 1)
    into.update(keys, values, 0)
    return keys, values


def contents(one: NestedCache) -> list[Tensor]:
    return [buffer.clone() for layer in one.layers for buffer in layer.buffers]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("rotate", [False, True])
def test_planes_are_quantized_vectors(rotate: bool) -> None:
    one = cache(rotate=rotate, capacity=9)
    keys, values = write(one, 5, 1)
    turned, offset = keys, OFFSETS.keys
    assert offset is not None
    if rotate:
        turned, offset = (operations.hadamard(x, None, torch.float32) for x in (keys, offset))
    expected = (
        *operations.kv_quantize(turned, offset),
        *operations.kv_quantize(values, OFFSETS.values),
    )
    assert same([buffer[:, :, :5] for buffer in one.layers[0].buffers], list(expected))


def test_past_the_length_codes_and_scales_are_zero() -> None:
    one = cache(capacity=9)
    write(one, 5, 1)
    empty = (EMPTY_BYTE, EMPTY_BYTE, 0) * 2
    for buffer, nothing in zip(one.layers[0].buffers, empty, strict=True):
        assert buffer.shape[2] == 9
        assert (buffer[:, :, 5:] == nothing).all()


def test_vectors_are_the_same_in_one_call_and_in_several() -> None:
    whole, parts = cache(), cache()
    keys, values = vectors(7), vectors(7, 1)
    whole.update(keys, values, 0)
    for place in range(7):
        parts.update(keys[:, :, place : place + 1], values[:, :, place : place + 1], 0)
    assert same(contents(whole), contents(parts))


def test_a_full_cache_grows_and_keeps_what_it_holds() -> None:
    small, large = cache(capacity=2), cache(capacity=16)
    for seed, count in enumerate((1, 2, 4, 9)):
        for one in (small, large):
            write(one, count, seed)
    assert small.get_seq_length() == 16
    assert same([buffer[:, :, :16] for buffer in contents(small)], contents(large))


@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_rolling_back_leaves_what_was_there_before(length: int) -> None:
    one, other = cache(capacity=8), cache(capacity=8)
    keys, values = vectors(6), vectors(6, 1)
    one.update(keys, values, 0)
    one.rollback(length)
    other.update(keys, values, 0)
    other.rollback(0)
    other.update(keys[:, :, :length], values[:, :, :length], 0)
    assert one.get_seq_length() == length
    assert same(contents(one), contents(other))


def test_rolling_back_further_than_there_is_is_refused() -> None:
    one = cache()
    write(one, 3, 0)
    for length in (-1, 4):
        with pytest.raises(ValueError, match=rf"length: expected 0 … 3, found {length}"):
            one.rollback(length)


def test_cropping_counts_as_transformers_does() -> None:
    one, other = cache(), cache()
    for each in (one, other):
        write(each, 6, 0)
    one.crop(-2)
    other.rollback(4)
    assert one.get_seq_length() == 4
    assert same(contents(one), contents(other))


def test_a_reset_cache_is_as_new() -> None:
    one, new = cache(), cache()
    write(one, 4, 0)
    one.reset()  # type: ignore[no-untyped-call]
    for each in (one, new):
        write(each, 2, 5)
    assert same(contents(one), contents(new))


def test_sequences_are_selected_and_repeated() -> None:
    one = cache()
    write(one, 3, 0)
    before = contents(one)
    one.layers[0].reorder_cache(torch.tensor([1, 0]))
    assert same(contents(one), [buffer.flip(0) for buffer in before])
    one.batch_select_indices(torch.tensor([1]))
    one.batch_repeat_interleave(2)
    assert same(contents(one), [buffer[:1].expand_as(buffer) for buffer in before])


def attend(one: NestedCache, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    read = one.update(keys, values, 0)
    y, _ = attention(nn.Identity(), query, *read, None, 0.3)
    return y


@pytest.mark.parametrize("plane", ["draft", "target"])
def test_attention_reads_the_cache(plane: str) -> None:
    one = cache()
    one.select_plane(plane)
    write(one, 4, 0)
    query = normal(BATCH, 2 * HEADS, 3, WIDTH, seed=9)
    found = attend(one, query, vectors(3, 5), vectors(3, 6))
    k_hi, k_lo, k_scale, v_hi, v_lo, v_scale = one.layers[0].buffers
    expected = operations.kv_attention(
        *(query, k_hi, k_lo, k_scale, v_hi, v_lo, v_scale),
        *(OFFSETS.values, 4, plane, 0.3, torch.float32),
    )
    assert torch.equal(found, expected.transpose(1, 2))


def test_a_draft_reads_no_low_plane() -> None:
    one = cache()
    one.select_plane("draft")
    write(one, 4, 0)
    query = normal(BATCH, HEADS, 1, WIDTH, seed=9)
    before = attend(one, query, vectors(1, 5), vectors(1, 6))
    one.rollback(4)
    for place in (1, 4):
        one.layers[0].buffers[place].fill_(0xFF)
    assert torch.equal(attend(one, query, vectors(1, 5), vectors(1, 6)), before)


def plain(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return causal attention of the last queries, float64."""
    keys, values = (x.double().repeat_interleave(2, dim=1) for x in (keys, values))
    scores = 0.3 * query.double() @ keys.transpose(2, 3)
    hidden = torch.ones(keys.shape[2], keys.shape[2]).triu(1).bool()[-query.shape[2] :]
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values


@pytest.mark.parametrize("rotate", [False, True])
def test_a_fresh_call_attends_to_its_own_vectors_unquantized(rotate: bool) -> None:
    one = cache(rotate=rotate, fresh_from=5)
    query = normal(BATCH, 2 * HEADS, 5, WIDTH, seed=9)
    keys, values = vectors(5, 1), vectors(5, 2)
    found = attend(one, query, keys, values).transpose(1, 2)
    torch.testing.assert_close(found.double(), plain(query, keys, values), rtol=1e-4, atol=1e-5)


def test_a_fresh_call_attends_to_what_the_cache_holds_of_earlier_ones() -> None:
    one = cache(fresh_from=5)
    old_keys, old_values = write(one, 3, 1)
    query = normal(BATCH, 2 * HEADS, 5, WIDTH, seed=9)
    keys, values = vectors(5, 3), vectors(5, 4)
    found = attend(one, query, keys, values).transpose(1, 2)
    held = []
    for old, offset in ((old_keys, OFFSETS.keys), (old_values, OFFSETS.values)):
        assert offset is not None
        read = operations.kv_dequantize(*operations.kv_quantize(old, offset), "target")
        held.append(read + offset.float()[:, None])
    expected = plain(query, torch.cat([held[0], keys], 2), torch.cat([held[1], values], 2))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_call_of_fewer_tokens_is_not_fresh() -> None:
    query, keys, values = normal(BATCH, HEADS, 4, WIDTH), vectors(4, 1), vectors(4, 2)
    a, b = (attend(cache(fresh_from=n), query, keys, values) for n in (5, None))
    assert torch.equal(a, b)


def test_what_a_fresh_call_writes_is_what_another_writes() -> None:
    one, other = cache(fresh_from=2), cache()
    for each in (one, other):
        write(each, 6, 3)
    assert same(contents(one), contents(other))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401
    folder = tmp_path_factory.mktemp("cache")
    save_model(folder / "model", "qwen2")
    convert(folder / "model", folder / "out", to="bitnest", group_size=16)
    return load_model(folder / "out")


IDS = torch.arange(10)[None]


def test_generate_takes_the_cache(model: Any) -> None:  # noqa: ANN401
    one = nested_cache(model)
    found = model.generate(IDS, **{cache_argument(model): one}, max_new_tokens=5, do_sample=False)
    assert found.shape == (1, 15)
    assert one.get_seq_length() == 14


def test_a_batch_is_its_sequences(model: Any) -> None:  # noqa: ANN401
    ids = torch.cat([IDS, IDS + 7])
    with torch.no_grad():
        together = model(ids, **{cache_argument(model): nested_cache(model)}).logits
        alone = [
            model(ids[row : row + 1], **{cache_argument(model): nested_cache(model)}).logits
            for row in range(2)
        ]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("with_cache", [True, False])
def test_without_a_nested_cache_attention_is_plain(model: Any, with_cache: bool) -> None:  # noqa: ANN401
    """A cache of transformers, or none, gives what a fresh call gives."""
    with torch.no_grad():
        expected = model(IDS, **{cache_argument(model): nested_cache(model, fresh_from=1)}).logits
        found = model(IDS, use_cache=with_cache).logits
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_a_mask_of_ones_is_taken_and_padding_refused(model: Any) -> None:  # noqa: ANN401
    mask = torch.ones_like(IDS)
    with torch.no_grad():
        model(IDS, attention_mask=mask, **{cache_argument(model): nested_cache(model)})
        mask[0, 0] = 0
        with pytest.raises(ValueError, match="attention_mask: expected ones alone, found zeros"):
            model(IDS, attention_mask=mask, **{cache_argument(model): nested_cache(model)})


def test_a_cache_of_a_fixed_length_is_refused(model: Any) -> None:  # noqa: ANN401
    static = StaticCache(config=model.config, max_cache_len=32)
    with torch.no_grad(), pytest.raises(ValueError, match="found one of 32 that begins at 0"):
        model(IDS, **{cache_argument(model): static})


def test_another_number_of_sequences_is_refused() -> None:
    one = cache()
    write(one, 2, 0)
    with pytest.raises(ValueError, match="batch: expected 2 sequences, as the cache has, found 1"):
        one.update(vectors(1)[:1], vectors(1)[:1], 0)


def test_a_cache_reads_what_its_model_reads(model: Any) -> None:  # noqa: ANN401
    select_plane(model, "draft")
    assert nested_cache(model).layers[0].plane == "draft"
    select_plane(model, "target")
    assert nested_cache(model).layers[0].plane == "target"


def test_offsets_are_the_biases_by_head(model: Any) -> None:  # noqa: ANN401
    attention_of = model.model.layers[1].self_attn
    layer = nested_cache(model).layers[1]
    assert layer.k_offset is not None
    assert layer.v_offset is not None
    assert torch.equal(layer.k_offset.view(-1), attention_of.k_proj.bias)
    assert torch.equal(layer.v_offset.view(-1), attention_of.v_proj.bias)


def test_rotation_needs_a_power_of_two(tmp_path: Path) -> None:
    save_model(tmp_path / "model", "llama", head_dim=24)
    convert(tmp_path / "model", tmp_path / "out", to="bitnest", group_size=32, rotate=False)
    with pytest.raises(ValueError, match="head_dim that is a power of two, found 24"):
        nested_cache(load_model(tmp_path / "out"), rotate=True)
