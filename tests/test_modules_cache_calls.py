"""A nested cache across calls of different kinds, and calls that it refuses."""

from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model, nested_cache, speculate
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules.nested_cache import NestedCache, Offsets
from nibblespec.optimized.pytorch import operations
from torch import Tensor
from transformers import DynamicCache

from tests.convert_models import random_model, save_model

IDS = torch.tensor([[5, 71, 12, 33, 8, 60]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401  # of transformers
    folder = tmp_path_factory.mktemp("calls")
    save_model(folder / "model", "qwen2", torch.float32)
    convert(folder / "model", folder / "package", to="bitnest", group_size=16)
    return load_model(folder / "package")


def run(model: Any, ids: Tensor, cache: NestedCache | None, **given: Any) -> Tensor:  # noqa: ANN401
    logits: Tensor = model(
        ids, **{cache_argument(model): cache}, use_cache=cache is not None, **given
    ).logits
    return logits


def test_a_cache_made_in_inference_mode_serves_other_calls(model: Any) -> None:  # noqa: ANN401
    one, other = nested_cache(model, capacity=1), nested_cache(model)
    with torch.inference_mode():
        run(model, IDS[:, :2], one)
        run(model, IDS[:, 2:4], one)  # it grows here
    with torch.no_grad():
        one.rollback(3)
        found = run(model, IDS[:, 3:], one)
        run(model, IDS[:, :3], other)
        assert torch.equal(found, run(model, IDS[:, 3:], other))


def test_sequences_chosen_in_inference_mode_serve_other_calls(model: Any) -> None:  # noqa: ANN401
    cache = nested_cache(model)
    with torch.inference_mode():
        run(model, IDS[:, :3], cache)
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([1]))
    with torch.no_grad():
        assert run(model, IDS[:, 3:], cache).isfinite().all()


def test_a_reset_cache_takes_another_number_of_sequences(model: Any) -> None:  # noqa: ANN401
    cache = nested_cache(model)
    run(model, IDS, cache)
    cache.reset()  # type: ignore[no-untyped-call]
    many = IDS.expand(3, -1)
    assert torch.equal(run(model, many, cache), run(model, many, nested_cache(model)))


@pytest.mark.parametrize(
    ("count", "message"),
    [(-7, "length: expected 0 … 6, found -1"), (2, "tokens_to_remove: expected at most 0")],
)
def test_cropping_what_is_not_there_is_refused(
    model: Any,  # noqa: ANN401
    count: int,
    message: str,
) -> None:
    cache = nested_cache(model)
    run(model, IDS, cache)
    with pytest.raises(ValueError, match=message):
        cache.crop(count)
    assert cache.get_seq_length() == 6


def lengths(cache: NestedCache) -> list[int]:
    return [layer.length for layer in cache.layers]


@pytest.mark.parametrize("shape", [(1, 1, 6, 6), (1, 6, 6)])
def test_a_mask_of_ones_own_is_refused_before_anything_is_written(
    model: Any,  # noqa: ANN401
    shape: tuple[int, ...],
) -> None:
    cache = nested_cache(model)
    with pytest.raises(ValueError, match=r"attention_mask: expected shape \[B, L\]"):
        run(model, IDS, cache, attention_mask=torch.ones(shape))
    assert lengths(cache) == [0, 0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_cache_of_another_number_of_layers_is_refused(
    model: Any,  # noqa: ANN401
    count: int,
) -> None:
    cache = NestedCache(operations, [Offsets()] * count)
    with pytest.raises(ValueError, match=f"cache: expected one of 2 layers, .* one of {count};"):
        run(model, IDS, cache)
    assert lengths(cache) == [0] * count


@pytest.mark.parametrize("where", ["self_attn.o_proj", "self_attn.v_proj"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_call_that_is_interrupted_leaves_a_cache_that_serves_on(
    model: Any,  # noqa: ANN401
    number: int,
    where: str,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    one, other = nested_cache(model), nested_cache(model)
    run(model, IDS, one)
    hook = model.get_submodule(f"model.layers.{number}.{where}").register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model, IDS + 3, one)
    hook.remove()
    held = one.get_seq_length()
    assert held == (12 if (number, where) == (1, "self_attn.o_proj") else 6)
    one.rollback(6)
    run(model, IDS, other)
    assert torch.equal(run(model, IDS + 5, one), run(model, IDS + 5, other))
    for mine, its in zip(one.layers, other.layers, strict=True):
        assert all(map(torch.equal, mine.buffers, its.buffers))


def test_a_new_call_forgets_what_an_interrupted_one_has_left(model: Any) -> None:  # noqa: ANN401
    one, other = nested_cache(model), nested_cache(model)
    for cache in (one, other):
        run(model, IDS, cache)
    keys = torch.zeros(1, 2, 4, 16)
    one.update(keys, keys, 0)
    assert (lengths(one), one.get_seq_length()) == ([10, 6], 6)
    assert torch.equal(run(model, IDS, one), run(model, IDS, other))
    assert lengths(one) == [12, 12]


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_another_attention_does_not_read_the_cache(
    model: Any,  # noqa: ANN401
    name: str,
) -> None:
    cache = nested_cache(model)
    model.set_attn_implementation(name)
    try:
        with pytest.raises(AttributeError, match=r"call set_attn_implementation\(\"nibblespec\"\)"):
            run(model, IDS, cache)
    finally:
        model.set_attn_implementation("nibblespec")
    assert cache.get_seq_length() == 0
    assert torch.equal(run(model, IDS, cache), run(model, IDS, nested_cache(model)))


def test_another_model_does_not_read_the_cache(model: Any) -> None:  # noqa: ANN401
    dense = random_model("qwen2", torch.float32)
    with pytest.raises(AttributeError, match="give other models a cache of transformers"):
        run(dense, IDS, nested_cache(model, fresh_from=1))


def test_a_call_with_a_cache_compiles_without_a_graph_break(model: Any) -> None:  # noqa: ANN401
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    one, other = nested_cache(model), nested_cache(model)
    with torch.no_grad():
        for ids in (IDS, IDS[:, :1], IDS[:, 1:2]):
            assert torch.equal(run(compiled, ids, one), run(model, ids, other))


FITTING = torch.ones(2, 3, 5, 8)


@pytest.mark.parametrize("shape", [(2, 1, 5, 8), (2, 3, 5, 16), (2, 3, 5, 2)])
def test_keys_of_another_shape_than_those_held_are_refused(shape: tuple[int, ...]) -> None:
    cache = NestedCache(operations, [Offsets()])
    cache.update(FITTING, FITTING, 0)
    with pytest.raises(ValueError, match="keys: expected 3 heads of width 8, as the cache has"):
        cache.update(torch.ones(shape), torch.ones(shape), 0)
    assert lengths(cache) == [5]


def test_a_first_call_that_is_refused_decides_no_shape() -> None:
    cache = NestedCache(operations, [Offsets(torch.zeros(3, 8))])
    with pytest.raises(ValueError, match="offset: expected"):
        cache.update(FITTING[:, :1], FITTING[:, :1], 0)
    cache.update(FITTING, FITTING, 0)
    assert lengths(cache) == [5]


def test_several_sequences_in_one_row_are_refused(model: Any) -> None:  # noqa: ANN401
    places = torch.tensor([[0, 1, 2, 0, 1, 2]])
    with pytest.raises(ValueError, match="position_ids: expected one sequence in each row"):
        run(model, IDS, None, position_ids=places)


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"ids": [[1]]}, TypeError, "ids: expected a tensor, found list"),
        ({"ids": IDS.float()}, TypeError, "ids: expected dtype int64 or int32, found float32"),
        ({"ids": IDS + 80}, ValueError, "ids: expected 0 … 79, found 85 … 151"),
        ({"ids": IDS - 80}, ValueError, "ids: expected 0 … 79, found -75 … -9"),
        ({"gamma": 2.0}, TypeError, "gamma: expected an integer, found 2.0"),
        ({"max_new_tokens": 2.5}, TypeError, "max_new_tokens: expected an integer, found 2.5"),
        ({"eos": 7}, TypeError, "eos: expected a collection of tokens, found 7"),
        ({"eos": ["</s>"]}, TypeError, "eos: expected a collection of tokens, found .*</s>"),
        ({"cache": DynamicCache()}, TypeError, "cache: expected a NestedCache, found DynamicCache"),
    ],
)
def test_speculate_refuses_arguments_of_another_kind(
    model: Any,  # noqa: ANN401
    changed: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    arguments: dict[str, Any] = {"ids": IDS, "gamma": 2, "max_new_tokens": 3, **changed}
    with pytest.raises(kind, match=message):
        speculate(model, **arguments)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"capacity": -1}, ValueError, "capacity: expected at least 0, found -1"),
        ({"capacity": "all"}, TypeError, "capacity: expected an integer, found 'all'"),
        ({"fresh_from": -1}, ValueError, "fresh_from: expected at least 0, found -1"),
    ],
)
def test_a_cache_of_no_size_is_refused(
    model: Any,  # noqa: ANN401
    options: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        nested_cache(model, **options)
