"""The portable backend: plain PyTorch, and on CPUs compiled kernels where they can be had."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from nibblespec.optimized import portable
from nibblespec.optimized.adapter import NumpyBackend
from nibblespec.optimized.cpu.kernels import compiled
from nibblespec.optimized.cpu.library import library
from nibblespec.optimized.operations import Operations
from nibblespec.optimized.registration import register
from nibblespec.spec.operations import OPERATIONS, Capabilities
from torch import Tensor

NAMESPACE = "nibblespec_torch"


@functools.cache
def _on_cpu() -> Operations:
    kernels = library()
    return portable.OPERATIONS if kernels is None else compiled(kernels)


def on_device(device: torch.device) -> Operations:
    """Return the implementation for tensors on a device, unchecked."""
    return _on_cpu() if device.type == "cpu" else portable.OPERATIONS


def _by_device(name: str) -> Callable[..., Any]:
    """Return the operation that looks at its first argument's device and calls the one for it."""

    def call(first: Tensor, *others: Any) -> Any:  # noqa: ANN401  # whatever the operation takes
        return getattr(on_device(first.device), name)(first, *others)

    return call


operations = register(
    NAMESPACE, Operations(**{field.name: _by_device(field.name) for field in fields(Operations)})
)
"""Checked, and usable under torch.compile and torch.export."""


def capabilities() -> Capabilities:
    """Claim everything that the formats allow, in the canonical evaluation.

    Plain PyTorch hands `dashq_linear` to a matrix library, which sums as it likes.
    """
    return Capabilities(
        operations=OPERATIONS,
        dashq_rounding="fused",
        linear_weight_rounding="unrounded",
        prefill_f16_from=None,
        row_invariant_dashq_linear=library() is not None,
    )


def describe_cpu() -> str:
    """Say what the CPU's operations are made of."""
    kernels = library()
    made_of = "plain PyTorch" if kernels is None else f"compiled kernels, {kernels.instructions}"
    return f"cpu ({made_of}; {torch.get_num_threads()} threads)"


backend = NumpyBackend(
    name="torch",
    version=torch.__version__,
    place="cpu",
    operations=operations,
    describe_device=describe_cpu,
    describe_capabilities=capabilities,
)
