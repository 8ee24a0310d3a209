"""Whole models: load a checkpoint of either format, and decode speculatively."""

from nibblespec.optimized import triton_mode  # noqa: F401  # before transformers is imported

# isort: split
from nibblespec.optimized.models.files import LoadError
from nibblespec.optimized.models.load import load_model

__all__ = ["LoadError", "load_model"]
