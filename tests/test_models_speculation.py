"""Speculative decoding: the target's own tokens, whatever is drafted, and no trace of drafts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.optimized import load_model, nested_cache, select_plane, speculate
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models import speculation
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules.nested_cache import NestedLayer
from nibblespec.optimized.modules.rowwise import ROWS
from nibblespec.optimized.pytorch import operations as torch_operations
from torch import Tensor, nn

from tests.convert_models import save_model
from tests.speculative_runs import (
    Decoding,
    difference,
    plain_decoding,
    random_decoding,
    random_package,
)

PROMPT = torch.arange(9)[None]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speculation")
    convert(save_model(folder / "model", "qwen2"), folder / "out", to="bitnest", group_size=16)
    return folder / "out"


@pytest.fixture(scope="module")
def model(package: Path) -> Any:  # noqa: ANN401
    return load_model(package)


def decoding(**other: Any) -> Decoding:  # noqa: ANN401
    return replace(Decoding(PROMPT, 4, 16, (), rotate=False, fresh_from=None), **other)


@pytest.mark.parametrize("seed", range(4))
def test_tokens_and_cache_are_those_of_the_target(tmp_path: Path, seed: int) -> None:
    """Four models; `python -m tests.speculative_runs` makes 500 runs."""
    random = np.random.default_rng((1, seed))
    tiny = load_model(random_package(tmp_path, random))
    for _ in range(3):
        drawn = random_decoding(random)
        assert difference(tiny, drawn) == "", drawn


def test_tokens_under_the_interpreter_are_those_of_the_target(package: Path) -> None:
    """One short run; `python -m tests.speculative_runs 10 optimized` makes ten longer ones."""
    short = decoding(prompt=PROMPT[:, :2], gamma=2, max_new_tokens=4)
    assert difference(load_model(package, backend="optimized"), short) == ""


def test_one_round_yields_the_drafts_that_agree_and_one_token_more(model: Any) -> None:  # noqa: ANN401
    found = speculate(model, PROMPT, 3, max_new_tokens=30)
    assert len(found.tokens) == 1 + found.rounds + sum(found.accepted)
    assert 0 < sum(found.accepted) < sum(found.drafted)


def test_a_draft_that_is_the_target_is_always_accepted(
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nothing is switched, the draft is what the target chooses: rounds are whole."""
    monkeypatch.setattr(speculation, "_read", lambda *_: None)
    found = speculate(model, PROMPT, 3, max_new_tokens=17)
    assert found.rounds == 4
    assert found.accepted == found.drafted == (4, 4, 4)


def test_the_draft_reads_no_low_plane(package: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def linear(*given: Any) -> Tensor:  # noqa: ANN401
        seen.append((given[6], given[3] is None))
        return torch_operations.nested_linear(*given)

    model = load_model(package, backend=replace(torch_operations, nested_linear=linear))
    speculate(model, PROMPT, 2, max_new_tokens=4)
    assert set(seen) == {("draft", True), ("target", False)}


def _by_call_size(name: str) -> Callable[..., Tensor]:
    """Return an operation whose results depend a little on how many rows a call has."""
    exact = getattr(torch_operations, name)

    def call(first: Tensor, *others: Any) -> Tensor:  # noqa: ANN401
        y: Tensor = exact(first, *others)
        return y if first.shape[-2] == 1 else y * 1.01

    return call


@pytest.mark.parametrize("name", ["nested_linear", "kv_attention"])
def test_the_comparison_shows_an_operation_that_is_not_row_invariant(
    package: Path, name: str
) -> None:
    other: dict[str, Any] = {name: _by_call_size(name)}
    broken = replace(torch_operations, **other)
    assert difference(load_model(package, backend=broken), decoding(max_new_tokens=60)) != ""


def test_the_comparison_shows_a_cache_that_keeps_rejected_entries(
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forget(self: NestedLayer, length: int) -> None:
        self.length = length

    # At a token of `eos` a round ends with drafts left over; at max_new_tokens it does not.
    stops = set(speculate(model, PROMPT, 0, max_new_tokens=12).tokens.tolist())
    monkeypatch.setattr(NestedLayer, "rollback", forget)
    found = {difference(model, decoding(eos=(stop,))) for stop in stops}
    assert any("past its length" in one for one in found)


def test_decoding_stops_after_the_first_eos_inside_a_draft(model: Any) -> None:  # noqa: ANN401
    whole = speculate(model, PROMPT, 0, max_new_tokens=20).tokens.tolist()
    eos = whole[7]
    found = speculate(model, PROMPT, 6, max_new_tokens=20, eos=(eos,)).tokens.tolist()
    assert found == whole[: whole.index(eos) + 1]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_decoding_stops_at_max_new_tokens(model: Any, count: int) -> None:  # noqa: ANN401
    assert len(speculate(model, PROMPT, 5, max_new_tokens=count).tokens) == count


def test_a_second_prompt_continues_the_cache(model: Any) -> None:  # noqa: ANN401
    cache, alone = nested_cache(model), nested_cache(model)
    first = speculate(model, PROMPT, 3, max_new_tokens=6, cache=cache).tokens
    turn = torch.cat([first[-1:], torch.tensor([5, 6])])[None]
    found = speculate(model, turn, 3, max_new_tokens=6, cache=cache).tokens.tolist()
    plain_decoding(model, decoding(max_new_tokens=6), alone)
    assert found == plain_decoding(model, decoding(prompt=turn, max_new_tokens=6), alone)


@pytest.mark.parametrize("plane", ["draft", "target"])
def test_the_model_reads_afterwards_what_it_read_before(model: Any, plane: str) -> None:  # noqa: ANN401
    select_plane(model, plane)
    cache = nested_cache(model, fresh_from=5)
    speculate(model, PROMPT, 2, max_new_tokens=4, cache=cache)
    assert {one.plane for one in model.modules() if hasattr(one, "plane")} == {plane}
    assert {(layer.plane, layer.fresh_from) for layer in cache.layers} == {(plane, 5)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ids": torch.zeros(2, 3, dtype=torch.int64)}, r"ids: expected one sequence, shape \[1"),
        ({"ids": torch.zeros(1, 0, dtype=torch.int64)}, "ids: expected one sequence"),
        ({"gamma": -1}, "gamma: expected 0 … 63, found -1"),
        ({"gamma": ROWS}, "gamma: expected 0 … 63, found 64"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1, found 0"),
    ],
)
def test_arguments_out_of_range_are_refused(
    model: Any,  # noqa: ANN401
    arguments: dict[str, Any],
    message: str,
) -> None:
    given = {"ids": PROMPT, "gamma": 2, "max_new_tokens": 4, **arguments}
    with pytest.raises(ValueError, match=message):
        speculate(model, **given)


def test_a_model_that_is_not_nested_is_refused(tmp_path: Path) -> None:
    convert(save_model(tmp_path / "model", "llama"), tmp_path / "out", to="dashq", group_size=16)
    with pytest.raises(ValueError, match="expected one of bitnest-package-v1, found DashQLinear"):
        speculate(load_model(tmp_path / "out"), PROMPT, 2, max_new_tokens=4)


@pytest.mark.parametrize("model", [None, nn.Linear(2, 2)])
def test_what_is_no_model_is_refused(model: object) -> None:
    with pytest.raises(ValueError, match="model: expected one of bitnest-package-v1, found"):
        speculate(model, PROMPT, 2, max_new_tokens=4)


@pytest.mark.parametrize("call", [1, 2, 4, 7])
def test_an_exception_leaves_cache_and_model_as_they_were(package: Path, call: int) -> None:
    tiny = load_model(package)
    cache, alone = nested_cache(tiny, fresh_from=3), nested_cache(tiny, fresh_from=3)
    for each in (cache, alone):
        tiny(PROMPT, **{cache_argument(tiny): each})
    calls: list[object] = []

    def fail(*_: object) -> None:
        calls.append(None)
        if len(calls) == call:
            raise MemoryError

    hook = tiny.model.layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        speculate(tiny, PROMPT, 3, max_new_tokens=12, cache=cache)
    hook.remove()
    for one, other in zip(cache.layers, alone.layers, strict=True):
        assert (one.length, one.plane, one.fresh_from) == (9, "target", 3)
        assert all(
            torch.equal(x[:, :, :9], y[:, :, :9])
            for x, y in zip(one.buffers, other.buffers, strict=True)
        )
    assert {one.plane for one in tiny.modules() if hasattr(one, "plane")} == {"target"}
    found = speculate(tiny, PROMPT, 3, max_new_tokens=12, cache=cache).tokens
    assert torch.equal(found, speculate(tiny, PROMPT, 0, max_new_tokens=12, cache=alone).tokens)


def test_threads_that_share_a_model_decode_what_each_would_alone(model: Any) -> None:  # noqa: ANN401
    prompts = [PROMPT + shift for shift in range(4)]

    def decode(prompt: Tensor, gamma: int = 3) -> list[int]:
        tokens: list[int] = speculate(model, prompt, gamma, max_new_tokens=24).tokens.tolist()
        return tokens

    with ThreadPoolExecutor(len(prompts)) as threads:
        found = list(threads.map(decode, prompts))
    assert found == [decode(prompt, 0) for prompt in prompts]


def test_tokens_of_any_integer_type_end_decoding(model: Any) -> None:  # noqa: ANN401
    whole = speculate(model, PROMPT, 0, max_new_tokens=20).tokens
    stop = whole[5:6]
    for eos in (stop, stop.numpy(), {int(stop)}):
        found = speculate(model, PROMPT, 6, max_new_tokens=20, eos=eos).tokens.tolist()
        assert found == whole.tolist()[: whole.tolist().index(int(stop)) + 1]


def test_memory_is_not_taken_for_tokens_that_may_never_come(model: Any) -> None:  # noqa: ANN401
    stop = int(speculate(model, PROMPT, 0, max_new_tokens=1).tokens)
    found = speculate(model, PROMPT, 2, max_new_tokens=10**15, eos=(stop,)).tokens
    assert found.tolist() == [stop]
