"""The manifest of `dashq-packed-linear` version 1: the file `dashq_config.json`.

The models say what a manifest is built of. What relates two fields is a rule of
`nibblespec.conformance.artifacts`, under the requirement id of its statement in specification.md.
"""

from typing import Any, Literal

from nibblespec.spec.json_types import (
    BitWidth,
    Boolean,
    Integer,
    JsonObject,
    One,
    Optional,
    Positive,
    Text,
)
from pydantic import Field


class Module(JsonObject):
    """One packed linear layer: N output rows, Kq stored columns, of which K are the weight."""

    nbits: BitWidth = Field(
        description="b: bits per code; codes run from 0 to 2**b - 1.", examples=[4]
    )
    group_size: Positive = Field(
        description="Consecutive codes, in row-major order, that share one scale and zero point.",
        examples=[32],
    )
    in_features: Positive = Field(
        description="K: columns of the logical weight; the width of the layer's input.",
        examples=[4096],
    )
    out_features: Positive = Field(
        description="N: rows of the weight; the width of the layer's output.",
        examples=[12288],
    )
    quant_in_features: Positive = Field(
        default_factory=lambda given: given.get("in_features", 1),  # without it: refused anyway
        description=(
            "Kq: columns that are stored, at least in_features and a multiple of group_size; "
            "columns from in_features on are padding. Absent means in_features."
        ),
        examples=[4096],
    )
    num_groups: Positive = Field(
        description="Groups of the whole matrix: out_features * quant_in_features / group_size.",
        examples=[1572864],
    )
    packing: Text = Field(
        description="Name of the packing: int{nbits}_packed_u32.", examples=["int4_packed_u32"]
    )
    scale_zero_dtype: Text = Field(
        description=(
            "dtype of the tensors scale and zero: float16, bfloat16, float32, float8_e4m3fn "
            "or float8_e5m2."
        ),
        examples=["float16"],
    )
    linear_dtype: Text = Field(
        description=(
            "dtype of the layer's input, of its bias and of the reconstructed weight: float16, "
            "bfloat16 or float32."
        ),
        examples=["bfloat16"],
    )
    runtime_backend: Optional[Text] = Field(
        default=None,
        description="Informative: the runtime that the producer had in mind.",
        examples=["torch"],
    )


class Params(JsonObject):
    """How the model was quantized: provenance. What a module is, its own description says."""

    bits: Optional[Integer] = Field(
        default=None, description="Bits per code that were asked for.", examples=[4]
    )
    group_size: Optional[Integer] = Field(
        default=None, description="Group size that was asked for.", examples=[32]
    )
    scale_zero_dtype: Optional[Text] = Field(
        default=None, description="dtype of scales and zero points.", examples=["float16"]
    )
    symmetric: Optional[Boolean] = Field(
        default=None, description="Whether zero points were held at the middle code."
    )
    n_samples: Optional[Integer] = Field(
        default=None, description="Calibration samples.", examples=[128]
    )
    moe_hessian_scope: Optional[Text] = Field(
        default=None,
        description="Which experts share one Hessian estimate.",
        examples=["shared"],
    )
    use_error_compensation: Optional[Boolean] = Field(
        default=None, description="Whether the error of earlier columns was compensated."
    )
    use_optimal_shrinkage: Optional[Boolean] = Field(
        default=None, description="Whether the Hessian estimate was shrunk."
    )
    use_weighted_quantization: Optional[Boolean] = Field(
        default=None, description="Whether the fit was weighted by the Hessian's diagonal."
    )
    low_memory_optimization: Optional[Boolean] = Field(
        default=None, description="Whether the producer traded speed for memory."
    )


class Manifest(JsonObject):
    """The manifest `dashq_config.json`: which modules are packed, and how."""

    format: Literal["dashq-packed-linear"] = Field(description="Name of the format.")
    format_version: One = Field(description="Version of the format.")
    method: Optional[Text] = Field(
        default=None, description="Quantization method: dashq.", examples=["dashq"]
    )
    base_model: Optional[Text] = Field(
        default=None,
        description="Hub id of the model that was quantized.",
        examples=["Qwen/Qwen3.5-9B"],
    )
    model_class: Literal["causal_lm", "image_text_to_text"] = Field(
        default="causal_lm", description="Which kind of model class loads the checkpoint."
    )
    params: Optional[Params] = Field(
        default=None, description="How the model was quantized: provenance."
    )
    quantized_modules: dict[str, Module] = Field(
        description="Dotted module path to the description of its packed weight.",
    )
    results: Optional[dict[str, Any]] = Field(
        default=None, description="Evaluation results in any form the producer likes."
    )
