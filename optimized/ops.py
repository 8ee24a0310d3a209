"""The Triton backend: every operation as kernels, `torch.ops.nibblespec.*`.

On CUDA where there is a device, under Triton's interpreter, on CPU tensors, where there is none.
"""

import torch
from nibblespec.optimized.adapter import NumpyBackend
from nibblespec.optimized.kernels import DEVICE, INTERPRETED, TRITON_VERSION
from nibblespec.optimized.kernels.activations import quantize_activations
from nibblespec.optimized.kernels.attention import kv_attention
from nibblespec.optimized.kernels.dashq_linear import dashq_linear
from nibblespec.optimized.kernels.dashq_reconstruct import dashq_reconstruct
from nibblespec.optimized.kernels.hadamard import hadamard
from nibblespec.optimized.kernels.kv import kv_dequantize, kv_quantize
from nibblespec.optimized.kernels.nested_linear import nested_linear
from nibblespec.optimized.kernels.nested_reconstruct import nested_reconstruct
from nibblespec.optimized.kernels.planes import pack_planes, unpack_planes
from nibblespec.optimized.kernels.words import pack_words, unpack_words
from nibblespec.optimized.operations import Operations
from nibblespec.optimized.registration import register
from nibblespec.spec.operations import OPERATIONS, Capabilities

NAMESPACE = "nibblespec"

operations = register(
    NAMESPACE,
    Operations(
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
    ),
)
"""Checked, and usable under torch.compile and torch.export."""


def capabilities() -> Capabilities:
    """Claim everything that the formats allow, in the canonical evaluation.

    Matrix units take factors of 16 bits, hence the weights rounded to the layer's dtype. No path
    depends on the number of rows.
    """
    return Capabilities(
        operations=OPERATIONS,
        dashq_rounding="fused",
        linear_weight_rounding="rounded",
        prefill_f16_from=None,
        row_invariant_dashq_linear=True,
    )


def describe_device() -> str:
    """Say what kernels run on."""
    if INTERPRETED:
        return f"cpu (Triton {TRITON_VERSION}, interpreted: no CUDA device)"
    return f"cuda ({torch.cuda.get_device_name()}; Triton {TRITON_VERSION})"


backend = NumpyBackend(
    name="optimized",
    version=torch.__version__,
    place=DEVICE,
    operations=operations,
    describe_device=describe_device,
    describe_capabilities=capabilities,
)
