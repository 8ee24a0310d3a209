"""The Triton backend: every operation as kernels, `torch.ops.nibblespec.*`.

On CUDA where there is a device, under Triton's interpreter, on CPU tensors, where there is none.
"""

import torch
from nibblespec.optimized.adapter import NumpyBackend
from nibblespec.optimized.kernels import DEVICE, INTERPRETED, TRITON_VERSION
from nibblespec.optimized.kernels.implementation import OPERATIONS as KERNELS
from nibblespec.optimized.registration import register
from nibblespec.spec.operations import OPERATIONS, Capabilities

NAMESPACE = "nibblespec"

operations = register(NAMESPACE, KERNELS)
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
