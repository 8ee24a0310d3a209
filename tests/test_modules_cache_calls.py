"""A nested cache across calls of different kinds, and calls that it refuses."""

from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model, nested_cache, speculate
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules.nested_cache import NestedCache
from torch import Tensor
from transformers import DynamicCache

from tests.convert_models import save_model

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


def test_a_mask_of_ones_own_is_refused(model: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"attention_mask: expected shape \[B, L\]"):
        run(model, IDS, None, attention_mask=torch.zeros(1, 1, 6, 6))


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
