"""What is done to Triton's interpreter: during a launch, and no longer."""

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
from torch import Tensor
from triton.runtime import interpreter

LARGEST = 2**31 - 1


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def next_number_kernel(x: tl.tensor, y: tl.tensor) -> None:
    """Write y = x + 1, one int32."""
    tl.store(y, tl.load(x) + 1)


@triton.jit  # type: ignore[untyped-decorator]
def product_kernel(a: tl.tensor, b: tl.tensor, y: tl.tensor, width: tl.constexpr) -> None:
    """Write y = 1 + a · b, float32 [16, width] times [width, 32]."""
    row, column, inner = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, width)
    left = tl.load(a + row[:, None] * width + inner[None, :])
    right = tl.load(b + inner[:, None] * 32 + column[None, :])
    ones = tl.full((16, 32), 1.0, tl.float32)
    product = tl.dot(left, right, ones, input_precision="ieee")
    tl.store(y + row[:, None] * 32 + column[None, :], product)


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(x: tl.tensor, y: tl.tensor) -> None:
    """Write the sum of as many numbers as the first of them says, one int32."""
    total = 0
    for place in range(tl.load(x)):
        total += tl.load(x + place)
    tl.store(y, total)


def product(a: Tensor, b: Tensor) -> Tensor:
    y = torch.empty(16, 32)
    launch(product_kernel, 1, a, b, y, exact=False, width=a.shape[1])
    return y


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
        builder = interpreter.interpreter_builder
        names = interpreter._patch_lang, interpreter._get_np_dtype, type(builder).create_dot
        return *names, builder.options

    before = state()
    next_number(1)
    assert state() == before
    x = torch.ones(1, dtype=torch.int32)
    with pytest.raises(Exception, match="takes 2 positional arguments"):
        launch(next_number_kernel, 1, x, x, x, exact=True)
    assert state() == before


def test_whole_numbers_overflow_as_on_a_device() -> None:
    assert next_number(LARGEST) == -LARGEST - 1


def test_a_loop_ends_where_an_array_of_one_element_says(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_tensor = interpreter._patch_lang_tensor

    def patch_as_triton_3_6(tensor: Any, scope: Any) -> None:  # noqa: ANN401  # Triton has no types
        patch_tensor(tensor, scope)
        # What NumPy 2.5 says where it gets an array of one element.
        scope.set_attr(tensor, "__index__", lambda _: int("only 0-dimensional arrays"))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_as_triton_3_6)
    x = torch.tensor([3, 4, 5, 6], dtype=torch.int32)
    y = torch.empty(1, dtype=torch.int32)
    launch(sum_kernel, 1, x, y, exact=True)
    assert int(y) == 12


@pytest.mark.parametrize("axis", [0, 1])
def test_a_products_bits_do_not_depend_on_its_place_in_a_tile(axis: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(16, 64, generator=generator)
    b = torch.randn(64, 32, generator=generator)
    moved = product(*((a.roll(5, 0).contiguous(), b), (a, b.roll(5, 1).contiguous()))[axis])
    torch.testing.assert_close(moved, product(a, b).roll(5, axis), rtol=0, atol=0)


def test_products_are_added_to_what_is_there() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-9, 9, size, generator=generator).float() for size in ((16, 64), (64, 32))
    )
    assert torch.equal(product(a, b), 1 + a @ b)
