"""The dtype names of a module description: canonical names, and spellings that readers take."""

from collections.abc import Mapping

SCALE_ZERO_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""Canonical names for `scale_zero_dtype`."""

LINEAR_DTYPES = ("float16", "bfloat16", "float32")
"""Canonical names for `linear_dtype`."""

ALIASES: Mapping[str, str] = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp8": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
}
"""Other names that published readers take, in lower case and without the prefix `torch.`."""


def canonical_dtype(name: str) -> str | None:
    """Return the canonical name of a dtype, None for a name that is not known.

    Letters count in either case and a prefix `torch.` is left out (DQ1-MODULE-DTYPE-NAME).
    Whether the dtype may stand where it was found, the caller says.
    """
    short = name.lower().removeprefix("torch.")
    short = ALIASES.get(short, short)
    return short if short in SCALE_ZERO_DTYPES else None
