"""Triton kernels: compiled where there is a CUDA device, interpreted on the CPU elsewhere.

Triton decides between the two when a kernel is defined, by TRITON_INTERPRET, which `triton_mode`
sets. `INTERPRETED` says what it is.
A process that sets TRITON_INTERPRET=0 without a device can compile kernels ahead of time (`aot`)
but not launch them.
"""

from nibblespec.optimized import triton_mode  # noqa: F401  # before triton is imported

# isort: split
import triton

TRITON_VERSION: str = triton.__version__

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether kernels run under Triton's interpreter, on CPU tensors."""

DEVICE = "cpu" if INTERPRETED else "cuda"
"""The type of device that kernels take their tensors from."""

if INTERPRETED and isinstance(triton.language.sum, triton.runtime.JITFunction):
    raise ImportError(
        "triton was imported before nibblespec.optimized, and compiles although there is no CUDA "
        "device: set TRITON_INTERPRET=1 before triton is imported (torch.compile imports it too), "
        "or import nibblespec.optimized.kernels first"
    )
