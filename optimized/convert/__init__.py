"""Converters: a Hugging Face folder in, a checkpoint of either format out.

Weights are rounded to nearest, tensor by tensor; no calibration data is involved.
"""

from nibblespec.optimized.convert.conversion import convert
from nibblespec.optimized.convert.errors import ConversionError

__all__ = ["ConversionError", "convert"]
