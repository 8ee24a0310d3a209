"""Modules that hold packed weights, and those between them whose rows are independent.

`NestedCache` is in `nested_cache`, which needs transformers; nothing else here does.
"""

from nibblespec.optimized.modules.dashq_linear import DashQLinear
from nibblespec.optimized.modules.experts import PackedExperts
from nibblespec.optimized.modules.nested_linear import NestedLinear, select_plane
from nibblespec.optimized.modules.rowwise import DenseLinear, RMSNorm

__all__ = [
    "DashQLinear",
    "DenseLinear",
    "NestedLinear",
    "PackedExperts",
    "RMSNorm",
    "select_plane",
]
