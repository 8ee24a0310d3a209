"""Whole models: load a checkpoint of either format, and decode speculatively."""

from nibblespec.optimized import triton_mode  # noqa: F401  # before transformers is imported

# isort: split
from nibblespec.optimized.models.cache import nested_cache
from nibblespec.optimized.models.files import LoadError
from nibblespec.optimized.models.load import load_model
from nibblespec.optimized.models.speculation import Speculation, speculate
from nibblespec.optimized.modules import select_plane

__all__ = [
    "LoadError",
    "Speculation",
    "load_model",
    "nested_cache",
    "select_plane",
    "speculate",
]
