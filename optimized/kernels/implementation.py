"""Every operation as Triton kernels."""

from nibblespec.optimized.kernels.activations import quantize_activations
from nibblespec.optimized.kernels.attention import kv_attention
from nibblespec.optimized.kernels.dashq_linear import dashq_linear
from nibblespec.optimized.kernels.dashq_reconstruct import dashq_reconstruct
from nibblespec.optimized.kernels.hadamard import hadamard
from nibblespec.optimized.kernels.kv import kv_dequantize, kv_quantize
from nibblespec.optimized.kernels.nested_linear import nested_linear
from nibblespec.optimized.kernels.nested_reconstruct import nested_reconstruct
from nibblespec.optimized.kernels.planes import pack_planes, unpack_planes
from nibblespec.optimized.kernels.quantize_transformed import quantize_transformed
from nibblespec.optimized.kernels.words import pack_words, unpack_words
from nibblespec.optimized.operations import Operations

OPERATIONS = Operations(
    pack_words=pack_words,
    unpack_words=unpack_words,
    dashq_reconstruct=dashq_reconstruct,
    dashq_linear=dashq_linear,
    pack_planes=pack_planes,
    unpack_planes=unpack_planes,
    nested_reconstruct=nested_reconstruct,
    quantize_activations=quantize_activations,
    nested_linear=nested_linear,
    hadamard=hadamard,
    kv_quantize=kv_quantize,
    kv_dequantize=kv_dequantize,
    kv_attention=kv_attention,
    quantize_transformed=quantize_transformed,
)
"""Unchecked; `nibblespec.optimized.registration.register` adds the checks."""
