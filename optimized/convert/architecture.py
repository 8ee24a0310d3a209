"""What Llama and Qwen2 are made of: the layers and tables that a package holds, by config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.source import Source, Stored, require

ARCHITECTURES = ("llama", "qwen2")


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that is nested."""

    kind: str
    """The last part of its name, such as q_proj."""
    number: int
    """Its decoder layer, −1 for lm_head."""
    weight: Stored
    bias: Stored | None
    norm: Stored | None
    """The norm of its input, which is folded into it."""
    head: int
    """Width of a head."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's sizes and tables."""

    name: str
    hidden: int
    inner: int
    head_width: int
    vocabulary: int
    embedding: Stored
    final_norm: Stored
    head: Stored
    """lm_head, or the embedding again where they are tied."""
    rope: Mapping[str, Any]
    layers: Mapping[str, Layer]


def read_architecture(source: Source) -> Architecture:
    """Find every tensor of a Llama or Qwen2.

    Raises ConversionError for another architecture, a size that config.json lacks, a tensor that
    is missing or has another shape, and a tensor that a package has no place for.
    """
    config = source.config
    name = config.get("model_type")
    if name not in ARCHITECTURES:
        raise ConversionError(
            f"{source.folder}: config.json: model_type: expected {' or '.join(ARCHITECTURES)}, "
            f"which are what the format describes, found {name!r}"
        )
    hidden, inner, count, heads, vocabulary = (
        _size(source, key)
        for key in (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "vocab_size",
        )
    )
    keys = _size(source, "num_key_value_heads", heads)
    width = _size(source, "head_dim", hidden // heads)
    shapes = {
        "self_attn.q_proj": (heads * width, hidden),
        "self_attn.k_proj": (keys * width, hidden),
        "self_attn.v_proj": (keys * width, hidden),
        "self_attn.o_proj": (hidden, heads * width),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{number}.{path}": _layer(source, number, path, shape, width)
        for number in range(count)
        for path, shape in shapes.items()
    }
    embedding = require(source, "model.embed_tokens.weight", (vocabulary, hidden))
    # Without the key, both architectures keep two tables.
    tied = config.get("tie_word_embeddings", False) is True
    head = embedding if tied else require(source, "lm_head.weight", (vocabulary, hidden))
    found = Architecture(
        name=name,
        hidden=hidden,
        inner=inner,
        head_width=width,
        vocabulary=vocabulary,
        embedding=embedding,
        final_norm=require(source, "model.norm.weight", (hidden,)),
        head=head,
        rope=_rope(config),
        layers=layers,
    )
    _refuse_others(source, found)
    return found


def _size(source: Source, key: str, default: int | None = None) -> int:
    value = source.config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConversionError(
            f"{source.folder}: config.json: {key}: expected an integer of at least 1, "
            f"found {value!r}"
        )
    return value


def _layer(source: Source, number: int, path: str, shape: tuple[int, int], head: int) -> Layer:
    kind = path.rpartition(".")[2]
    prefix = f"model.layers.{number}"
    norms = {"q_proj": "input", "k_proj": "input", "v_proj": "input"}
    norms |= {"gate_proj": "post_attention", "up_proj": "post_attention"}
    norm = norms.get(kind)
    bias = f"{prefix}.{path}.bias"
    return Layer(
        kind=kind,
        number=number,
        weight=require(source, f"{prefix}.{path}.weight", shape),
        bias=require(source, bias, shape[:1]) if bias in source.tensors else None,
        norm=require(source, f"{prefix}.{norm}_layernorm.weight", (source.config["hidden_size"],))
        if norm
        else None,
        head=head,
    )


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the copy of RoPE's settings that manifests have."""
    parameters = config.get("rope_parameters")
    parameters = dict(parameters) if isinstance(parameters, dict) else {}
    theta = parameters.pop("rope_theta", config.get("rope_theta"))
    scaling = config.get("rope_scaling")
    if scaling is None and parameters.get("rope_type", "default") != "default":
        scaling = parameters
    positions = config.get("max_position_embeddings")
    return {
        "theta": theta,
        "scaling": scaling,
        **({"max_position_embeddings": positions} if isinstance(positions, int) else {}),
    }


def _refuse_others(source: Source, found: Architecture) -> None:
    """Refuse weights that would be lost: those of an adapter, of further norms."""
    layers = found.layers.values()
    known = {found.embedding.name, found.final_norm.name, found.head.name, "lm_head.weight"}
    known |= {t.name for layer in layers for t in (layer.weight, layer.bias, layer.norm) if t}
    others = sorted(source.tensors.keys() - known)
    if others:
        raise ConversionError(
            f"{source.folder}: {others[0]}: a {found.name} has no such tensor, and a package has "
            f"no place for it ({len(others):,} in all)"
        )
