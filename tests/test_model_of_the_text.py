"""The model that chapter 14 of the text on bitnest describes, written from it, beside the loader's.

The operations are the reference's. What stands between them is NumPy in float32, as the chapter
names it; the loader's is PyTorch's and transformers'.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nibblespec.conformance.examples.write import write_example
from nibblespec.optimized import load_model
from nibblespec.optimized.models import nested_cache
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.reference import backend
from nibblespec.reference.rounding import Array, Float32
from nibblespec.spec.operations import Plane
from safetensors.numpy import load_file

TOKENS = np.random.default_rng(0).integers(0, 64, 9)


@dataclass(frozen=True)
class Package:
    """What is in a package's files."""

    meta: dict[str, Any]
    config: dict[str, Any]
    planes: dict[str, Array]
    aux: dict[str, Array]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "package"
    write_example(place, "bitnest-package-v1")
    return place


@pytest.fixture(scope="module")
def package(folder: Path) -> Package:
    meta, config = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("meta.json", "config.json")
    )
    planes, aux = (load_file(folder / f"{name}.safetensors") for name in ("planes", "aux"))
    return Package(meta, config, planes, aux)


def layer(package: Package, name: str, x: Float32, plane: Plane) -> Array:
    """Return what a layer makes of x, float32 [M, N] (9.3)."""
    transform = package.meta["online_hadamard"]["layers"].get(name)
    if transform is not None:
        x = backend.hadamard(x, package.aux.get(f"had_K.{transform['K']}"), "float32")
    group = package.meta["activation"]["per_layer_group"].get(name, -1)
    hi, lo, scale = (package.planes[f"{name}.{part}"] for part in ("hi", "lo", "scale"))
    bias = package.planes.get(f"{name}.bias")
    codes, scales = backend.quantize_activations(x, group)
    return backend.nested_linear(codes, scales, hi, lo, scale, bias, plane, "float32")


def norm(package: Package, h: Float32, weight: Array | None) -> Float32:
    mean = (h * h).mean(axis=-1, keepdims=True)
    y: Float32 = h / np.sqrt(mean + np.float32(package.config["rms_norm_eps"]))
    return y if weight is None else y * weight.astype(np.float32)


def turned(package: Package, x: Float32) -> Float32:
    """Return x [heads, T, D] after RoPE (11.3)."""
    half = x.shape[-1] // 2
    frequencies = package.config["rope_theta"] ** (-np.arange(half) / half)
    angles = np.arange(x.shape[1])[:, np.newaxis] * frequencies
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(package: Package, i: int, x: Float32, plane: Plane, *, rotate: bool) -> Float32:
    """Return steps 2.2 to 2.4 of a decoder layer, [T, Hq·D]."""
    width, name = package.config["head_dim"], f"model.layers.{i}.self_attn."

    def heads(part: str) -> Float32:
        y = layer(package, name + part, x, plane)
        return np.ascontiguousarray(y.reshape(len(x), -1, width).swapaxes(0, 1))

    def offset(part: str) -> Array | None:
        bias = package.planes.get(f"{name}{part}.bias")
        return None if bias is None else bias.reshape(-1, width)

    q, k, v = turned(package, heads("q_proj")), turned(package, heads("k_proj")), heads("v_proj")
    k_offset, v_offset = offset("k_proj"), offset("v_proj")
    if rotate:
        q, k = backend.hadamard(q, None, "float32"), backend.hadamard(k, None, "float32")
        k_offset = None if k_offset is None else backend.hadamard(k_offset, None, "float32")
    keys = backend.kv_quantize(k[np.newaxis], k_offset)
    values = backend.kv_quantize(v[np.newaxis], v_offset)
    q, scale = q[np.newaxis], 1 / width**0.5
    y = backend.kv_attention(q, *keys, *values, v_offset, 0, plane, scale, "float32")
    return np.ascontiguousarray(y[0].swapaxes(0, 1).reshape(len(x), -1))


def logits(package: Package, plane: Plane, *, rotate: bool) -> Float32:
    """Return the logits of TOKENS, float32 [T, V] (14)."""
    h = package.aux["embed_tokens"][TOKENS].astype(np.float32)
    for i in range(package.config["num_hidden_layers"]):
        name = f"model.layers.{i}."
        x = norm(package, h, package.aux.get(f"layers.{i}.input_layernorm"))
        a = attention(package, i, x, plane, rotate=rotate)
        h = h + layer(package, name + "self_attn.o_proj", a, plane)
        x = norm(package, h, package.aux.get(f"layers.{i}.post_attention_layernorm"))
        gate, up = (layer(package, f"{name}mlp.{part}_proj", x, plane) for part in ("gate", "up"))
        h = h + layer(package, name + "mlp.down_proj", gate / (1 + np.exp(-gate)) * up, plane)
    x = norm(package, h, package.aux["final_norm"])
    if "lm_head" in package.meta["layers"]:
        return layer(package, "lm_head", x, plane)
    return x @ package.aux["lm_head"].astype(np.float32).T


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("plane", ["draft", "target"])
def test_the_model_of_the_text_is_the_one_that_is_loaded(
    folder: Path, package: Package, plane: Plane, rotate: bool
) -> None:
    model = load_model(folder, plane=plane, dtype=torch.float32)
    cache = nested_cache(model, rotate=rotate)
    tokens = torch.from_numpy(TOKENS)[None]
    with torch.no_grad():
        loaded = model(tokens, **{cache_argument(model): cache}, use_cache=True).logits[0].numpy()
    error = np.abs(logits(package, plane, rotate=rotate) - loaded)
    # A code at the border between two may flip in one of them: that moves a logit by a step.
    assert np.median(error) < 1e-4
    assert error.max() < 0.05 * np.abs(loaded).max()
