"""The Triton backend: what it claims, what it says it runs on, and what it launches exactly."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from nibblespec.optimized import backend
from nibblespec.optimized.kernels import DEVICE, INTERPRETED, TRITON_VERSION, launch
from nibblespec.optimized.kernels.aot import specializations
from nibblespec.optimized.kernels.implementation import OPERATIONS as KERNELS

from tests.test_torch_backend import CLAIMED
from tests.torch_samples import bounded_calls, exact_calls


def test_the_claims_are_the_committed_ones() -> None:
    assert backend.capabilities() == replace(
        CLAIMED, linear_weight_rounding="rounded", row_invariant_dashq_linear=True
    )


def test_reports_say_whether_kernels_are_compiled_or_interpreted() -> None:
    assert backend.name == "optimized"
    assert backend.place == DEVICE
    assert TRITON_VERSION in backend.device
    assert ("interpreted" in backend.device) == INTERPRETED


def test_importing_triton_first_is_refused_where_there_is_no_device() -> None:
    if not INTERPRETED:
        pytest.skip("there is a CUDA device: kernels are compiled whatever came first")
    code = "import triton.language, nibblespec.optimized.kernels"
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "set TRITON_INTERPRET=1 before triton is imported" in run.stderr


def test_kernels_are_launched_as_exactly_as_their_specializations_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: dict[str, set[bool]] = {}

    def record(kernel: Any, *_: object, exact: bool, **__: object) -> None:  # noqa: ANN401
        launched.setdefault(kernel.__name__, set()).add(exact)

    for name in (
        "activations",
        "attention",
        "dashq_linear",
        "dashq_reconstruct",
        "hadamard",
        "kv",
        "nested_linear",
        "nested_reconstruct",
        "parts",
        "planes",
        "quantize_transformed",
        "words",
    ):
        monkeypatch.setattr(f"{launch.__name__.rpartition('.')[0]}.{name}.launch", record)
    for call in (*exact_calls(), *bounded_calls()):
        getattr(KERNELS, call.operation)(*call.arguments)
    promised: dict[str, set[bool]] = {}
    for one in specializations():
        promised.setdefault(one.kernel.__name__, set()).add(one.promises.exact)
    assert {name: promised[name] for name in launched} == launched
