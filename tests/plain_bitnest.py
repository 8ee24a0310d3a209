"""A package of bitnest-package-v1 as a model, straight from the text: NumPy and the reference.

It shares no code with the loader, the modules or the cache. Everything is float32 but attention,
which is float64.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from nibblespec.optimized.arrays import to_array
from nibblespec.reference import backend as reference
from nibblespec.spec.operations import Array
from safetensors.torch import load_file

Plane = Literal["draft", "target"]


@dataclass
class Cache:
    """Of one layer: keys and values less their offsets, [Hkv, T, D], as they are read."""

    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)


@dataclass
class PlainModel:
    """Reads a folder and runs it; `rotate` and `fresh_from` as in `nested_cache`."""

    folder: Path
    plane: Plane
    rotate: bool = False
    fresh_from: int | None = None

    def __post_init__(self) -> None:
        """Read everything."""
        self.manifest = json.loads((self.folder / "meta.json").read_text())
        self.config = json.loads((self.folder / "config.json").read_text())
        self.tensors = {
            name: to_array(tensor)
            for file in ("planes.safetensors", "aux.safetensors")
            for name, tensor in load_file(self.folder / file).items()
        }
        heads, hidden = self.config["num_attention_heads"], self.config["hidden_size"]
        self.width = self.config.get("head_dim") or hidden // heads
        self.caches = [Cache() for _ in range(self.config["num_hidden_layers"])]
        self.length = 0

    def run(self, ids: Sequence[int]) -> Array:
        """Return the logits of one call, float32 [M, V]; the cache grows."""
        x = self.tensors["embed_tokens"].astype(np.float32)[list(ids)]
        for number in range(len(self.caches)):
            prefix = f"model.layers.{number}"
            h = self.norm(x, f"layers.{number}.input_layernorm")
            x = x + self.attention(f"{prefix}.self_attn", h, self.caches[number])
            h = self.norm(x, f"layers.{number}.post_attention_layernorm")
            gate = self.linear(f"{prefix}.mlp.gate_proj", h)
            up = self.linear(f"{prefix}.mlp.up_proj", h)
            silu = gate / (1 + np.exp(-gate))
            x = x + self.linear(f"{prefix}.mlp.down_proj", silu * up)
        self.length += len(ids)
        x = self.norm(x, "final_norm")
        if "lm_head" in self.manifest["layers"]:
            return self.linear("lm_head", x)
        logits: Array = x @ self.tensors["lm_head"].astype(np.float32).T
        return logits

    def norm(self, x: Array, name: str) -> Array:
        """Return RMSNorm, with a weight where there is one."""
        scaled = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.config["rms_norm_eps"])
        weight = self.tensors.get(name)
        y: Array = scaled if weight is None else scaled * weight.astype(np.float32)
        return y

    def linear(self, name: str, x: Array) -> Array:
        """Return R4, A8 and the nested layer."""
        if name in self.manifest["online_hadamard"]["layers"]:
            order = self.manifest["online_hadamard"]["layers"][name]["K"]
            x = reference.hadamard(x, self.tensors.get(f"had_K.{order}"), "float32")
        group = self.manifest["activation"]["per_layer_group"].get(name, -1)
        codes, scales = reference.quantize_activations(x, group)
        hi, lo, scale = (self.tensors[f"{name}.{part}"] for part in ("hi", "lo", "scale"))
        bias = self.tensors.get(f"{name}.bias")
        return reference.nested_linear(codes, scales, hi, lo, scale, bias, self.plane, "float32")

    def attention(self, name: str, h: Array, cache: Cache) -> Array:
        """Return o_proj of attention over the nested cache (chapters 11 and 12)."""
        queries, keys, values = (
            self.heads(self.linear(f"{name}.{part}_proj", h)) for part in "qkv"
        )
        k_offset, v_offset = (self.offset(f"{name}.{part}_proj.bias") for part in "kv")
        queries, keys = self.rope(queries), self.rope(keys)
        if self.rotate:
            queries, keys = (reference.hadamard(x, None, "float32") for x in (queries, keys))
            k_offset = None if k_offset is None else reference.hadamard(k_offset, None, "float32")
        fresh = self.fresh_from is not None and len(h) >= self.fresh_from
        new = [keys, values] if fresh else []
        for vectors, offset, seen in (
            (keys, k_offset, cache.keys),
            (values, v_offset, cache.values),
        ):
            hi, lo, scale = reference.kv_quantize(np.ascontiguousarray(vectors), offset)
            seen.append(reference.kv_dequantize(hi, lo, scale, self.plane))
        old_keys, old_values = (np.concatenate(part, axis=1) for part in (cache.keys, cache.values))
        zeros = np.zeros((keys.shape[0], 1, self.width), np.float32)
        shift_k, shift_v = (
            zeros if one is None else one.astype(np.float32)[:, None]
            for one in (k_offset, v_offset)
        )
        all_keys, all_values = old_keys + shift_k, old_values + shift_v
        if new:
            all_keys[:, self.length :], all_values[:, self.length :] = new
        return self.linear(f"{name}.o_proj", self.attend(queries, all_keys, all_values))

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        """Return softmax attention in float64, as float32 [M, Hq·D]."""
        heads, count, width = queries.shape
        shared = heads // keys.shape[0]
        wide = [np.repeat(x.astype(np.float64), shared, axis=0) for x in (keys, values)]
        scores = queries.astype(np.float64) @ wide[0].transpose(0, 2, 1) / np.sqrt(width)
        place = np.arange(keys.shape[1])
        scores[:, place > self.length + np.arange(count)[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        y = weights / weights.sum(axis=2, keepdims=True) @ wide[1]
        return np.ascontiguousarray(y.transpose(1, 0, 2).reshape(count, -1).astype(np.float32))

    def heads(self, x: Array) -> Array:
        """Return [H, M, D] of [M, H·D]."""
        return x.reshape(len(x), -1, self.width).transpose(1, 0, 2)

    def offset(self, name: str) -> Array | None:
        """Return [H, D] of a bias, if there is one."""
        bias = self.tensors.get(name)
        return None if bias is None else bias.reshape(-1, self.width)

    def rope(self, x: Array) -> Array:
        """Turn the pairs (i, i + D/2) of [H, M, D]."""
        half = self.width // 2
        theta: Any = self.config["rope_parameters"]["rope_theta"]
        place = self.length + np.arange(x.shape[1])
        angles = place[:, None] * theta ** (-np.arange(half) / half)
        cosine, sine = np.cos(angles), np.sin(angles)
        a, b = x[..., :half], x[..., half:]
        turned = [a * cosine - b * sine, b * cosine + a * sine]
        return np.concatenate(turned, axis=-1).astype(np.float32)
