"""The tiny models of the suite, by name: which, in which format, and how they are run.

They have what real ones have and little of it: grouped-query attention, biases, a down_proj whose
width is no power of two, linear attention, gated attention, experts.
"""

from dataclasses import dataclass
from typing import Any, Literal

from nibblespec.spec.operations import FloatDtype, Plane

Format = Literal["bitnest", "dashq"]

HEAD_DIM = 16
HADAMARD_ORDER = 12
BITNEST_GROUP = 16
DASHQ_GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCase:
    """A model of `model_folders.CONFIGS` in one of the formats, and how it is run."""

    model: str
    target: Format
    convert: tuple[tuple[str, Any], ...]
    """Further arguments of `convert`."""
    plane: Plane = "target"
    dtype: FloatDtype = "bfloat16"
    """Of the activations."""
    cache: tuple[tuple[str, Any], ...] = ()
    """Further arguments of `nested_cache`."""

    def __str__(self) -> str:
        options = (f"{key}={value}" for key, value in (*self.convert, *self.cache))
        return ", ".join((self.model, self.target, self.plane, self.dtype, *options))


_RUNS: tuple[tuple[Plane, FloatDtype, bool, int | None], ...] = (
    ("target", "float32", False, None),
    ("draft", "bfloat16", True, None),
    ("target", "bfloat16", True, 17),
    ("draft", "float32", False, 17),
)
BITNEST = tuple(
    ModelCase(
        model=model,
        target="bitnest",
        convert=(("group_size", BITNEST_GROUP),),
        plane=plane,
        dtype=dtype,
        cache=(("rotate", rotate), ("fresh_from", fresh_from)),
    )
    for model in ("llama", "qwen2")
    for plane, dtype, rotate, fresh_from in _RUNS
)
"""Both planes, R3 on and off, and both ways in which a prompt attends; qwen2 has biases."""

DASHQ = tuple(
    ModelCase(model=model, target="dashq", convert=(("bits", bits), ("group_size", DASHQ_GROUP)))
    for model in ("llama", "qwen2", "qwen3_5", "qwen3_moe")
    for bits in (2, 3, 4)
)
"""A dense model, one with biases, one with linear and gated attention, one with experts."""
