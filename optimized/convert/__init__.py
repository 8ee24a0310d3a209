"""Converters: a Hugging Face folder in, a checkpoint of either format out.

Weights are rounded to nearest, tensor by tensor, or fitted to the inputs that they have on a text.
"""

from nibblespec.optimized.convert.conversion import convert
from nibblespec.optimized.convert.errors import ConversionError

__all__ = ["ConversionError", "convert"]
