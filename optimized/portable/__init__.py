"""Every operation in plain PyTorch, on any device: no loop over groups or rows.

One elementwise operation at a time: on every device each is correctly rounded by itself, and none
is contracted with the next (`addcmul`, `baddbmm` and the like are not used). What has to be
invariant to the number of rows is summed by `sums.tree_sum`, never by a matrix product in floating
point, whose order of summation follows the shape.
"""

from nibblespec.optimized.operations import Operations, one_after_the_other
from nibblespec.optimized.portable import (
    activations,
    attention,
    dashq,
    hadamard,
    kv,
    nested,
    planes,
    words,
)

OPERATIONS = Operations(
    pack_words=words.pack_words,
    unpack_words=words.unpack_words,
    dashq_reconstruct=dashq.dashq_reconstruct,
    dashq_linear=dashq.dashq_linear,
    pack_planes=planes.pack_planes,
    unpack_planes=planes.unpack_planes,
    nested_reconstruct=nested.nested_reconstruct,
    quantize_activations=activations.quantize_activations,
    nested_linear=nested.nested_linear,
    hadamard=hadamard.hadamard,
    kv_quantize=kv.kv_quantize,
    kv_dequantize=kv.kv_dequantize,
    kv_attention=attention.kv_attention,
    quantize_transformed=one_after_the_other(hadamard.hadamard, activations.quantize_activations),
)
"""Unchecked; `nibblespec.optimized.registration.register` adds the checks."""
