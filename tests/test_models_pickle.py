"""Models and caches are pickled and copied: without their backend, which is found by name."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from nibblespec.optimized import load_model, nested_cache
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.pytorch import operations
from nibblespec.reference import backend as reference
from torch import Tensor

from tests.convert_models import save_model

IDS = torch.arange(6)[None]

KINDS: tuple[tuple[Literal["dashq", "bitnest"], str], ...] = (
    ("dashq", "llama"),
    ("dashq", "qwen3_moe"),
    ("dashq", "qwen3_5"),
    ("bitnest", "llama"),
    ("bitnest", "qwen2"),
)


def package(folder: Path, to: Literal["dashq", "bitnest"], name: str) -> Path:
    convert(save_model(folder / "model", name), folder / "out", to=to, group_size=16)
    return folder / "out"


@torch.no_grad()
def logits(model: Any, cache: object = None) -> Tensor:  # noqa: ANN401
    found: Tensor = model(IDS, **{cache_argument(model): cache}).logits
    return found


@pytest.mark.parametrize(("to", "name"), KINDS)
def test_a_model_is_pickled(to: Literal["dashq", "bitnest"], name: str, tmp_path: Path) -> None:
    model = load_model(package(tmp_path, to, name))
    assert torch.equal(logits(pickle.loads(pickle.dumps(model))), logits(model))


def test_a_cache_is_pickled(tmp_path: Path) -> None:
    model = load_model(package(tmp_path, "bitnest", "qwen2"))
    cache = nested_cache(model, rotate=True)
    logits(model, cache)
    other = pickle.loads(pickle.dumps(cache))
    assert other.get_seq_length() == 6
    assert torch.equal(logits(model, other), logits(model, cache))


def test_another_process_needs_nothing_but_the_pickle(tmp_path: Path) -> None:
    model = load_model(package(tmp_path, "bitnest", "qwen2"))
    cache = nested_cache(model)
    logits(model, cache)
    given = {"input_ids": IDS, cache_argument(model): cache}
    (tmp_path / "pickle").write_bytes(pickle.dumps((model, given)))
    code = f"""
import pickle, torch
with open({str(tmp_path / "pickle")!r}, "rb") as file:
    model, given = pickle.load(file)
with torch.no_grad():
    torch.save(model(**given).logits, {str(tmp_path / "logits")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert torch.equal(torch.load(tmp_path / "logits"), logits(model, cache))


@pytest.mark.parametrize("backend", [reference, replace(operations)])
def test_a_backend_that_no_other_process_finds_is_copied_and_not_pickled(
    backend: object, tmp_path: Path
) -> None:
    model = load_model(package(tmp_path, "bitnest", "llama"), backend=backend)
    assert torch.equal(logits(copy.deepcopy(model)), logits(model))
    for one in (model, nested_cache(model)):
        with pytest.raises(pickle.PicklingError, match="give it the folder's name, and have it"):
            pickle.dumps(one)


@pytest.mark.parametrize("to", ["dashq", "bitnest"])
def test_transformers_does_not_save_what_it_would_not_load(
    to: Literal["dashq", "bitnest"], tmp_path: Path
) -> None:
    model = load_model(package(tmp_path, to, "llama"))
    with pytest.raises(TypeError, match=r"save_pretrained: .* copy the checkpoint's folder"):
        copy.deepcopy(model).save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
