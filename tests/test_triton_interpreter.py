"""What is done to Triton's interpreter to save time: during a launch, and no longer."""

from typing import Any
from unittest import mock

import pytest
import torch
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.hadamard import hadamard
from nibblespec.optimized.kernels.launch import launch

if not INTERPRETED:
    pytest.skip("kernels are compiled here", allow_module_level=True)

import triton
import triton.language as tl
from triton.runtime import interpreter

LARGEST = 2**31 - 1


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def next_number_kernel(x: tl.tensor, y: tl.tensor) -> None:
    """Write y = x + 1, one int32."""
    tl.store(y, tl.load(x) + 1)


def next_number(number: int) -> int:
    x = torch.tensor([number], dtype=torch.int32)
    y = torch.empty_like(x)
    launch(next_number_kernel, 1, x, y, exact=True)
    return int(y)


def test_the_language_is_patched_once_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    patch = mock.Mock(wraps=interpreter._patch_lang)
    monkeypatch.setattr(interpreter, "_patch_lang", patch)
    hadamard(torch.ones(1, 64), None, torch.float32)
    assert patch.call_count == 1


def test_what_is_patched_is_as_it_was_after_a_launch_and_after_a_fault() -> None:
    def state() -> tuple[Any, ...]:
        options = interpreter.interpreter_builder.options
        return interpreter._patch_lang, interpreter._get_np_dtype, options

    before = state()
    next_number(1)
    assert state() == before
    x = torch.ones(1, dtype=torch.int32)
    with pytest.raises(Exception, match="takes 2 positional arguments"):
        launch(next_number_kernel, 1, x, x, x, exact=True)
    assert state() == before


def test_whole_numbers_overflow_as_on_a_device() -> None:
    assert next_number(LARGEST) == -LARGEST - 1
