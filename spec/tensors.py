"""What a manifest promises of a tensor: its name, dtype and shape in the safetensors files."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

Dtype = Literal["U8", "I32", "F8_E4M3", "F8_E5M2", "F16", "BF16", "F32"]
"""dtypes of the formats, under the names that safetensors headers use."""

DTYPE_BYTES: Mapping[Dtype, int] = {
    "U8": 1,
    "I32": 4,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F16": 2,
    "BF16": 2,
    "F32": 4,
}

TOO_LARGE = 2**63
"""Bytes that no tensor has."""

Role = Literal[
    "words", "hi", "lo", "scale", "zero", "bias", "embedding", "norm", "lm_head", "hadamard"
]
"""What a tensor is for. `words` are packed codes; `hi` and `lo` are nibble planes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor that the manifest implies."""

    name: str
    dtype: Dtype
    shape: tuple[int | None, ...]
    """None where the manifest does not say: a vocabulary size, which config.json has."""
    role: Role
    module: str = ""
    """Module path of the layer it belongs to; empty for tensors of the whole model."""
    file: str = ""
    """File that holds it; empty means any shard of the checkpoint."""
    required: bool = True
    """False for a tensor that may be absent, such as a bias."""


def tensor_bytes(spec: TensorSpec) -> int | None:
    """Return the bytes of the tensor's data, None where its shape is not known."""
    sizes = [size for size in spec.shape if size is not None]
    if len(sizes) < len(spec.shape):
        return None
    return prod(sizes) * DTYPE_BYTES[spec.dtype]
