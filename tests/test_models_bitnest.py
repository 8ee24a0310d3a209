"""Loading bitnest-package-v1: the model computes what the text says, in every mode."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.optimized import load_model, nested_cache
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules import DenseLinear, NestedLinear
from nibblespec.optimized.modules.nested_cache import NestedCache
from nibblespec.spec.operations import Plane
from safetensors.torch import load_file, save_file

from tests.convert_models import save_model
from tests.plain_bitnest import PlainModel

IDS = np.random.default_rng(0).integers(0, 80, 24).tolist()
CALLS = (IDS[:20], IDS[20:21], IDS[21:24])
"""A prompt, a step, and what a verification is."""

Package = Callable[[str, bool], Path]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Return a maker of packages in float32 of an architecture, with a nested lm_head or not."""
    folder = tmp_path_factory.mktemp("bitnest")

    def make(name: str, nested_head: bool) -> Path:
        out = folder / f"{name}-{nested_head}"
        if not out.exists():
            save_model(out.with_suffix(".model"), name, torch.float32)
            convert(
                out.with_suffix(".model"), out, to="bitnest", group_size=16, nest_head=nested_head
            )
        return out

    return make


def run(model: Any, cache: NestedCache, ids: list[int]) -> np.ndarray[Any, Any]:  # noqa: ANN401
    with torch.no_grad():
        logits = model(torch.tensor([ids]), **{cache_argument(model): cache}, use_cache=True).logits
    found: np.ndarray[Any, Any] = logits[0].numpy()
    return found


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.parametrize("plane", ["draft", "target"])
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("fresh_from", [None, 17, 3])
def test_a_model_computes_what_the_text_says(
    package: Package, name: str, plane: Plane, rotate: bool, fresh_from: int | None
) -> None:
    folder = package(name, rotate)  # with R3, the head is nested: each is tested with the other
    plain = PlainModel(folder, plane, rotate, fresh_from)
    model = load_model(folder, plane=plane)
    cache = nested_cache(model, rotate=rotate, fresh_from=fresh_from)
    for ids in CALLS:
        np.testing.assert_allclose(run(model, cache, ids), plain.run(ids), rtol=1e-4, atol=1e-4)


def test_the_modes_differ(package: Package) -> None:
    """What is compared above is not all the same, from the step after the prompt on."""
    folder = package("qwen2", True)
    found = []
    for plane in ("draft", "target"):
        for rotate in (False, True):
            for fresh_from in (None, 17):
                model = load_model(folder, plane=plane)
                cache = nested_cache(model, rotate=rotate, fresh_from=fresh_from)
                run(model, cache, CALLS[0])
                found.append(run(model, cache, CALLS[1]))
    apart = [np.abs(a - b).max() for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) > 1e-3


def test_names_of_nested_layers_are_those_of_the_file(package: Package) -> None:
    folder = package("qwen2", False)
    stored = load_file(folder / "planes.safetensors")
    state = load_model(folder).state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    assert set(state) - set(stored) == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }


@pytest.mark.parametrize(("nested_head", "kind"), [(False, DenseLinear), (True, NestedLinear)])
def test_the_head_is_nested_where_the_manifest_lists_it(
    package: Package, nested_head: bool, kind: type
) -> None:
    assert type(load_model(package("llama", nested_head)).lm_head) is kind


def test_norms_of_decoder_layers_are_applied_where_they_are_stored(
    package: Package, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for file in package("llama", False).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    aux = load_file(folder / "aux.safetensors")
    for number, norm in ((0, "input_layernorm"), (1, "post_attention_layernorm")):
        weight = torch.linspace(0.5, 1.5, 64).to(torch.bfloat16)
        aux[f"layers.{number}.{norm}"] = weight
    save_file(aux, folder / "aux.safetensors")
    model = load_model(folder)
    assert model.model.layers[0].input_layernorm.weight is not None
    assert model.model.layers[1].input_layernorm.weight is None
    plain = PlainModel(folder, "target")
    found = run(model, nested_cache(model), IDS)
    np.testing.assert_allclose(found, plain.run(IDS), rtol=1e-4, atol=1e-4)


def test_the_last_norm_is_applied_with_its_weight(package: Package) -> None:
    model = load_model(package("llama", True))
    before = run(model, nested_cache(model), IDS)
    model.model.norm.weight.data.neg_()
    # Codes of activations are symmetric here, since none of them is -128.
    np.testing.assert_allclose(run(model, nested_cache(model), IDS), -before, rtol=1e-5, atol=1e-6)


def test_activations_have_the_dtype_asked_for(package: Package) -> None:
    model = load_model(package("llama", False), dtype=torch.float16)
    with torch.no_grad():
        assert model(torch.tensor([IDS])).logits.dtype == torch.float16


def test_nothing_is_left_on_the_meta_device(package: Package) -> None:
    model = load_model(package("qwen2", False))
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    assert not any(tensor.requires_grad for tensor in tensors)
    assert not model.training
