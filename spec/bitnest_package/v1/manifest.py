"""The manifest of `bitnest-package-v1`: the file `meta.json`.

The models say what a manifest is built of. What relates two fields is a rule of
`nibblespec.conformance.artifacts`, under the requirement id of its statement in specification.md.
"""

from typing import Annotated, Any, Literal

from nibblespec.spec.json_types import (
    Boolean,
    Integer,
    JsonObject,
    Number,
    Optional,
    Positive,
    Text,
)
from pydantic import Field


class Layer(JsonObject):
    """One nested linear layer: N output rows and K input columns, as two nibble planes."""

    shape: Annotated[list[Positive], Field(min_length=2, max_length=2)] = Field(
        description="[N, K]: output rows and input columns.", examples=[[3072, 8192]]
    )
    groups: Positive = Field(description="G: groups of ONE row, K / group_size.", examples=[64])
    has_bias: Boolean = Field(description="Whether the layer has a float16 bias of N elements.")


class WeightPlanes(JsonObject):
    """The nibble planes in prose. Human text: no reader depends on it."""

    hi: Optional[Text] = Field(default=None, description="What the plane hi holds.")
    lo: Optional[Text] = Field(default=None, description="What the plane lo holds.")
    byte_layout: Optional[Text] = Field(default=None, description="Columns of a byte.")
    draft: Optional[Text] = Field(default=None, description="How the draft weight is formed.")
    target: Optional[Text] = Field(default=None, description="How the target weight is formed.")
    int8_code: Optional[Text] = Field(default=None, description="How the 8-bit code is formed.")


class Activation(JsonObject):
    """How the inputs of nested linears are quantized to 8 bits."""

    scheme: Optional[Text] = Field(default=None, description="The scheme in prose (human text).")
    per_layer_group: dict[str, Integer] = Field(
        description=(
            "Module to the columns that share one activation scale: -1 for one scale per token, "
            "otherwise a width that divides K. A module that is missing has -1."
        )
    )


class Norms(JsonObject):
    """What became of the RMSNorm weights. Readers go by the tensors' presence."""

    fused: Optional[Boolean] = Field(
        default=None, description="Whether norm weights were folded into the next linear layers."
    )
    decoder_norms_identity: Optional[Boolean] = Field(
        default=None,
        description="Whether the norms of the decoder layers are ones, and thus not stored.",
    )
    note: Optional[Text] = Field(default=None, description="Human text.")


class HadamardLayer(JsonObject):
    """One online Hadamard transform of width K * 2**k, applied to a layer's input."""

    K: Positive = Field(
        description="Order of the matrix had_K.{K}; 1 means Walsh-Hadamard alone.",
        examples=[1, 28],
    )
    fp32: Optional[Boolean] = Field(
        default=None,
        description="Whether the producer's engine transforms in float32 (informative).",
    )


class OnlineHadamard(JsonObject):
    """The transforms that a reader applies at run time (R4)."""

    note: Optional[Text] = Field(default=None, description="Human text.")
    layers: dict[str, HadamardLayer] = Field(description="Module to the transform of its input.")


class Kv(JsonObject):
    """The nested KV cache in prose. Human text: no reader depends on it."""

    nesting: Optional[Text] = Field(default=None, description="How keys and values are nested.")
    per_channel_offset: Optional[Text] = Field(
        default=None, description="Whether biases are subtracted; has_bias decides, not this."
    )
    r3: Optional[Text] = Field(default=None, description="Whether R3 is advised.")


class Rope(JsonObject):
    """A copy of the base model's RoPE settings. Readers use config.json."""

    theta: Number | None = Field(default=None, description="RoPE base.", examples=[500000.0])
    scaling: dict[str, Any] | None = Field(
        default=None, description="The Hugging Face rope_scaling dictionary."
    )
    max_position_embeddings: Optional[Integer] = Field(
        default=None, description="Positions the base model supports.", examples=[131072]
    )


class Reference(JsonObject):
    """Where the producer keeps its own loaders. Informative."""

    loader: Optional[Text] = Field(default=None, description="A loader for CPUs.")
    gpu_runner: Optional[Text] = Field(default=None, description="A runner for GPUs.")


class Manifest(JsonObject):
    """The manifest `meta.json`: which layers are nested, and how they are computed."""

    format: Literal["bitnest-package-v1"] = Field(description="Name and version of the format.")
    model: Optional[Text] = Field(
        default=None, description="The producer's name of the model.", examples=["llama3.2_3b"]
    )
    arch: Literal["llama", "qwen2"] = Field(description="Architecture of the model.")
    source_model: Optional[Text] = Field(
        default=None,
        description="Hub id of the model that was quantized.",
        examples=["meta-llama/Llama-3.2-3B"],
    )
    rotation: Text | None = Field(
        default=None,
        description="File name of the rotation matrix, informative: a pickle, never opened.",
        examples=["R.bin"],
    )
    group_size: Positive = Field(
        description="Consecutive columns of a row that share one scale.", examples=[128]
    )
    pack: Literal["unsigned+8"] = Field(
        description="Nibble encoding: a signed code q is stored as q + 8."
    )
    weight_planes: Optional[WeightPlanes] = Field(default=None, description="Human text.")
    layers: dict[str, Layer] = Field(description="Dotted module path to its description.")
    activation: Activation = Field(description="How layer inputs are quantized.")
    norms: Optional[Norms] = Field(default=None, description="What became of the norms.")
    online_hadamard: OnlineHadamard = Field(description="Transforms applied at run time.")
    kv: Optional[Kv] = Field(default=None, description="Human text.")
    rope: Optional[Rope] = Field(default=None, description="A copy that no reader uses.")
    embed_note: Optional[Text] = Field(default=None, description="Human text.")
    lm_head_note: Optional[Text] = Field(default=None, description="Human text.")
    reference: Optional[Reference] = Field(default=None, description="Informative.")
