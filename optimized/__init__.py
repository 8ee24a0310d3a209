"""PyTorch and Triton: backends, modules, kernels, benchmarks.

`torch_backend` is plain PyTorch with compiled kernels for CPUs, `backend` is Triton. `load_model`
makes a checkpoint a model of transformers, and `speculate` decodes with one. Importing this package
imports none of these; the attributes do, when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibblespec.optimized.adapter import NumpyBackend
    from nibblespec.optimized.models import load_model, nested_cache, select_plane, speculate

    backend: NumpyBackend
    torch_backend: NumpyBackend

__all__ = [
    "backend",
    "load_model",
    "nested_cache",
    "select_plane",
    "speculate",
    "torch_backend",
]

_HOMES = {
    "backend": ("nibblespec.optimized.ops", "backend"),
    "load_model": ("nibblespec.optimized.models", "load_model"),
    "nested_cache": ("nibblespec.optimized.models", "nested_cache"),
    "select_plane": ("nibblespec.optimized.models", "select_plane"),
    "speculate": ("nibblespec.optimized.models", "speculate"),
    "torch_backend": ("nibblespec.optimized.pytorch", "backend"),
}
"""Where each attribute is: a module, and the name there."""


def __getattr__(name: str) -> object:
    """Import an attribute when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
