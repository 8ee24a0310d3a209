"""PyTorch and Triton: backends, modules, kernels, benchmarks.

`torch_backend` is plain PyTorch with compiled kernels for CPUs, `backend` is Triton. Importing this
package imports neither; the attributes do, when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibblespec.optimized.adapter import NumpyBackend

    backend: NumpyBackend
    torch_backend: NumpyBackend

__all__ = ["backend", "torch_backend"]

_HOMES = {
    "backend": "nibblespec.optimized.ops",
    "torch_backend": "nibblespec.optimized.pytorch",
}
"""Modules that hold a backend under the name `backend`."""


def __getattr__(name: str) -> object:
    """Import a backend when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_HOMES[name]).backend
