"""The two valid examples: models of two layers with random weights, quantized by the reference."""

from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.conformance.examples.files import Example, Tensor, tensor
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.reference.planes import pack_planes
from nibblespec.spec.bitnest_package.v1.hadamard_matrices import hadamard_matrix
from nibblespec.spec.operations import Array

DASHQ = "dashq-packed-linear"
BITNEST = "bitnest-package-v1"

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
LAYERS = 2
BIASED = ("q_proj", "k_proj", "v_proj")

_SEED = 20260504


def dashq_example() -> Example:
    """Return a checkpoint of dashq-packed-linear: 4 bits, groups of 32, two shards."""
    hidden, inner, heads, groups, width, vocabulary = 64, 96, 4, 2, 16, 128
    config = _config(hidden, inner, heads, groups, width, vocabulary)
    random = np.random.default_rng(_SEED)
    modules: dict[str, Any] = {}
    shards: dict[str, dict[str, Tensor]] = {name: {} for name in SHARDS}
    for name, shape in _linears(config).items():
        shard = shards[SHARDS[int(name.split(".")[2])]]
        modules[name] = pack_dashq(shard, name, _weight(random, *shape))
        if name.endswith(BIASED):
            shard[f"{name}.bias"] = _bfloat16(_weight(random, shape[0]))
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shard = shards[SHARDS[layer]]
            shard[f"model.layers.{layer}.{norm}.weight"] = _bfloat16(np.ones(hidden, np.float32))
    shards[SHARDS[0]]["model.embed_tokens.weight"] = _bfloat16(_weight(random, vocabulary, hidden))
    shards[SHARDS[1]]["model.norm.weight"] = _bfloat16(np.ones(hidden, np.float32))
    shards[SHARDS[1]]["lm_head.weight"] = _bfloat16(_weight(random, vocabulary, hidden))
    manifest = {
        "format": DASHQ,
        "format_version": 1,
        "method": "dashq",
        "base_model": "nibblespec/tiny-qwen2",
        "model_class": "causal_lm",
        "params": {"bits": 4, "group_size": 32, "scale_zero_dtype": "float16", "symmetric": False},
        "quantized_modules": modules,
    }
    identity = {key: manifest[key] for key in ("format", "format_version", "method")}
    config["dashq"] = {**identity, "n_quantized_modules": len(modules)}
    documents = {"dashq_config.json": manifest, "config.json": config}
    return Example(format=DASHQ, documents=documents, tensors=shards)


def pack_dashq(tensors: dict[str, Tensor], name: str, weight: Array) -> dict[str, Any]:
    """Pack a weight [N, K] as module `name`: add its tensors, return its description."""
    packed = encode_dashq(weight, nbits=4, group_size=32)
    tensors[f"{name}.W_q_packed"] = tensor(packed.words)
    tensors[f"{name}.scale"] = tensor(packed.scale)
    tensors[f"{name}.zero"] = tensor(packed.zero)
    return packed.module.model_dump(exclude_none=True)


def bitnest_example() -> Example:
    """Return a package of bitnest-package-v1: groups of 128, one Hadamard matrix of order 12."""
    hidden, inner, heads, groups, width, vocabulary = 256, 384, 2, 1, 128, 64
    config = _config(hidden, inner, heads, groups, width, vocabulary)
    random = np.random.default_rng(_SEED)
    planes: dict[str, Tensor] = {}
    layers: dict[str, Any] = {}
    for name, shape in _linears(config).items():
        layers[name] = nest(planes, name, _weight(random, *shape), bias=name.endswith(BIASED))
    aux = {
        "embed_tokens": _bfloat16(_weight(random, vocabulary, hidden)),
        "final_norm": _bfloat16(np.ones(hidden, np.float32)),
        "lm_head": _bfloat16(_weight(random, vocabulary, hidden)),
        "had_K.12": tensor(hadamard_matrix(12)),
    }
    transformed = [name for name in layers if name.endswith("down_proj")]
    manifest = {
        "format": BITNEST,
        "model": "tiny_qwen2",
        "arch": "qwen2",
        "source_model": "nibblespec/tiny-qwen2",
        "rotation": None,
        "group_size": 128,
        "pack": "unsigned+8",
        "layers": layers,
        "activation": {
            "scheme": "symmetric int8 per token; the input of o_proj per token and head",
            "per_layer_group": {name: width if name.endswith("o_proj") else -1 for name in layers},
        },
        "norms": {"fused": True, "decoder_norms_identity": True},
        "online_hadamard": {"layers": {name: {"K": 12, "fp32": True} for name in transformed}},
        "rope": {"theta": config["rope_theta"], "scaling": None, "max_position_embeddings": 256},
    }
    return Example(
        format=BITNEST,
        documents={"meta.json": manifest, "config.json": config},
        tensors={"planes.safetensors": planes, "aux.safetensors": aux},
        metadata={
            "planes.safetensors": {"format": "bitnest-planes-v1"},
            "aux.safetensors": {"format": "bitnest-aux-v1"},
        },
        checksums=True,
    )


def nest(planes: dict[str, Tensor], name: str, weight: Array, *, bias: bool) -> dict[str, Any]:
    """Nest a weight [N, K] as layer `name`: add its tensors, return its description."""
    q4, qr, scale = encode_nested(weight, group_size=128)
    hi, lo = pack_planes(q4, qr)
    planes[f"{name}.hi"], planes[f"{name}.lo"] = tensor(hi), tensor(lo)
    planes[f"{name}.scale"] = tensor(scale)
    if bias:
        planes[f"{name}.bias"] = tensor(weight[:, 0].astype(np.float16))
    return {"shape": list(weight.shape), "groups": scale.shape[1], "has_bias": bias}


def random_weight(*shape: int) -> Array:
    """Return float32 weights like those of the examples, always the same for a shape."""
    return _weight(np.random.default_rng(_SEED), *shape)


def _weight(random: np.random.Generator, *shape: int) -> Array:
    return random.normal(0, 0.05, shape).astype(np.float32)


def _bfloat16(values: Array) -> Tensor:
    return tensor(values.astype(ml_dtypes.bfloat16))


def _linears(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the shape [N, K] of every linear layer of a decoder."""
    hidden, inner, width = (config[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    queries, keys = (config[key] * width for key in ("num_attention_heads", "num_key_value_heads"))
    shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    return {
        f"model.layers.{layer}.{name}": shape
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }


def _config(
    hidden: int, inner: int, heads: int, groups: int, width: int, vocabulary: int
) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": width,
        "vocab_size": vocabulary,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
