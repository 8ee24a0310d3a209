"""dtype names of the manifest: the canonical ones, and the aliases that readers also take."""

from collections.abc import Mapping

from nibblespec.spec.tensors import Dtype

LINEAR_DTYPES: Mapping[str, Dtype] = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""Names of `linear_dtype`, each with its name in a safetensors header."""

SCALE_ZERO_DTYPES: Mapping[str, Dtype] = {
    **LINEAR_DTYPES,
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""Names of `scale_zero_dtype`, each with its name in a safetensors header."""

_ALIASES: Mapping[str, str] = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp8": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
}


def canonical_dtype(name: str) -> str | None:
    """Return the canonical name that a name or alias stands for, None where nobody knows it.

    Readers take aliases whatever the case, and with a prefix `torch.`.
    """
    plain = name.lower().removeprefix("torch.")
    plain = _ALIASES.get(plain, plain)
    return plain if plain in SCALE_ZERO_DTYPES else None
