"""The torch backend: what it claims, what it imports, and the arrays that go in and out."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from nibblespec.optimized import torch_backend
from nibblespec.optimized.arrays import to_array, to_tensor
from nibblespec.optimized.cpu.library import library
from nibblespec.spec.operations import OPERATIONS, Array, Capabilities

CLAIMED = Capabilities(
    operations=(
        "pack_words",
        "unpack_words",
        "dashq_reconstruct",
        "dashq_linear",
        "pack_planes",
        "unpack_planes",
        "nested_reconstruct",
        "quantize_activations",
        "nested_linear",
        "hadamard",
        "kv_quantize",
        "kv_dequantize",
        "kv_attention",
    ),
    bit_widths=(1, 2, 3, 4, 5, 6, 7, 8),
    group_sizes=None,
    dtypes=("float16", "bfloat16", "float32"),
    scale_zero_dtypes=("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"),
    head_dims=None,
    hadamard_orders=None,
    padded_inputs=True,
    dashq_rounding="fused",
    linear_weight_rounding="unrounded",
    prefill_f16_from=None,
    row_invariant_dashq_linear=library() is not None,
)
"""Everything that the formats allow, in the canonical evaluation."""


def test_the_claims_are_the_committed_ones() -> None:
    assert torch_backend.capabilities() == CLAIMED
    assert CLAIMED.operations == OPERATIONS


def test_reports_say_what_the_backend_runs_on() -> None:
    assert torch_backend.name == "torch"
    assert torch_backend.version == torch.__version__
    assert torch_backend.device.startswith("cpu (")


def test_the_package_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, nibblespec.optimized; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_torch_backend_does_not_import_triton() -> None:
    code = (
        "import sys; from nibblespec.optimized import torch_backend; "
        "sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    import nibblespec.optimized as package  # noqa: PLC0415

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.float32,
        np.int8,
        np.uint8,
        np.int32,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    ],
)
def test_arrays_and_tensors_share_memory(dtype: type) -> None:
    array: Array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    array.setflags(write=False)
    tensor = to_tensor(array)
    assert tensor.shape == (2, 3, 4)
    assert tensor.data_ptr() == array.ctypes.data
    back = to_array(tensor)
    assert back.dtype == array.dtype
    assert back.ctypes.data == array.ctypes.data
    assert np.array_equal(back.astype(np.float32), array.astype(np.float32))


def test_a_tensor_keeps_its_array_alive() -> None:
    tensor = to_tensor(np.full(1 << 16, 7, np.int32))
    fill = [np.zeros(1 << 16, np.int32) for _ in range(4)]
    assert len(fill) == 4
    assert bool((tensor == 7).all())


def test_empty_arrays_are_empty_tensors() -> None:
    assert to_tensor(np.zeros((0, 3), np.float16)).shape == (0, 3)
    assert to_array(torch.zeros(3, 0, dtype=torch.bfloat16)).shape == (3, 0)


@pytest.mark.parametrize(
    ("value", "match"),
    [([1], "expected a NumPy array, found list"), (np.zeros(1), "found float64")],
)
def test_what_no_operation_takes_is_refused(value: object, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        to_tensor(value)  # type: ignore[arg-type]  # that is the point


def test_a_scalar_array_is_a_scalar_tensor() -> None:
    assert to_tensor(np.array(3, np.int32)).item() == 3
