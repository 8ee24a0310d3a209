"""From an implementation to operations that check, compile and export.

`register` defines each operation in torch.library, with what it returns for fake tensors: under
torch.compile and torch.export it is one node of the graph, whose inside nobody contracts or
reorders. Around it stand the checks of `checked`.
"""

from collections.abc import Callable
from typing import Any

import torch
from nibblespec.optimized import fakes
from nibblespec.optimized.checked import checked
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.operations import Operations
from torch import Tensor

SCHEMAS = {
    "pack_words": "(Tensor codes, int nbits) -> Tensor",
    "unpack_words": "(Tensor words, int nbits, int count) -> Tensor",
    "dashq_reconstruct": (
        "(Tensor words, Tensor scale, Tensor zero, int[] layout, ScalarType dtype) -> Tensor"
    ),
    "dashq_linear": (
        "(Tensor x, Tensor words, Tensor scale, Tensor zero, Tensor? bias, int[] layout) -> Tensor"
    ),
    "pack_planes": "(Tensor q4, Tensor qr) -> (Tensor, Tensor)",
    "unpack_planes": "(Tensor hi, Tensor lo) -> (Tensor, Tensor)",
    "nested_reconstruct": (
        "(Tensor hi, Tensor? lo, Tensor scale, str plane, ScalarType dtype) -> Tensor"
    ),
    "quantize_activations": "(Tensor x, int group) -> (Tensor, Tensor)",
    "nested_linear": (
        "(Tensor xq, Tensor sx, Tensor hi, Tensor? lo, Tensor scale, Tensor? bias, str plane, "
        "ScalarType dtype) -> Tensor"
    ),
    "hadamard": "(Tensor x, Tensor? had_k, ScalarType dtype) -> Tensor",
    "kv_quantize": "(Tensor x, Tensor? offset) -> (Tensor, Tensor, Tensor)",
    "kv_dequantize": "(Tensor hi, Tensor? lo, Tensor scale, str plane) -> Tensor",
    "kv_attention": (
        "(Tensor q, Tensor k_hi, Tensor? k_lo, Tensor k_scale, Tensor v_hi, Tensor? v_lo, "
        "Tensor v_scale, Tensor? v_offset, SymInt position, str plane, float softmax_scale, "
        "ScalarType dtype) -> Tensor"
    ),
    "quantize_transformed": "(Tensor x, Tensor? had_k, int group) -> (Tensor, Tensor)",
}

_LIBRARIES: list[Any] = []
"""Kept alive: a library that is collected takes its operations along."""


def register(namespace: str, implementation: Operations) -> Operations:
    """Define the operations as `torch.ops.<namespace>.<name>` and return them with their checks.

    A namespace is registered once in a process.
    """

    def dashq_reconstruct(
        words: Tensor, scale: Tensor, zero: Tensor, layout: list[int], dtype: torch.dtype
    ) -> Tensor:
        return implementation.dashq_reconstruct(words, scale, zero, DashqLayout(*layout), dtype)

    def dashq_linear(
        x: Tensor,
        words: Tensor,
        scale: Tensor,
        zero: Tensor,
        bias: Tensor | None,
        layout: list[int],
    ) -> Tensor:
        return implementation.dashq_linear(x, words, scale, zero, bias, DashqLayout(*layout))

    # A layout passes through torch.library as a list.
    with_lists = {"dashq_reconstruct": dashq_reconstruct, "dashq_linear": dashq_linear}
    library: Any = torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]  # torch has no types for it
    _LIBRARIES.append(library)
    defined: dict[str, Callable[..., Any]] = {}
    for name, schema in SCHEMAS.items():
        function = with_lists.get(name, getattr(implementation, name))
        library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{namespace}::{name}", getattr(fakes, name), lib=library)
        defined[name] = getattr(getattr(torch.ops, namespace), name).default
    return checked(Operations(**defined))
