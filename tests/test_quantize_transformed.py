"""A8 of the Hadamard transform, in one operation: the bits of the two, on every implementation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nibblespec.optimized import portable
from nibblespec.optimized.cpu.kernels import compiled
from nibblespec.optimized.cpu.library import library
from nibblespec.optimized.kernels import DEVICE, launch
from nibblespec.optimized.kernels.implementation import OPERATIONS as KERNELS
from nibblespec.optimized.kernels.quantize_transformed import MOST_ELEMENTS, fits_one_program
from nibblespec.optimized.models.backends import operations_of
from nibblespec.optimized.operations import Operations
from nibblespec.optimized.pytorch import operations
from nibblespec.reference import backend as reference
from torch import Tensor

from tests.torch_samples import FLOATS, generator, normal, signs

ORDERS = {1: 14, 2: 12, 3: 5, 12: 7, 28: 9, 36: 4, 148: 7, 172: 6}
"""Orders of had_K, and the largest k of a width K·2^k: those of published packages among them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A call, and how to make its numbers."""

    order: int
    columns: int
    group: int
    tokens: int
    dtype: torch.dtype
    seed: int
    signs: bool
    gaps: bool
    special: tuple[float, ...]

    def arguments(self) -> tuple[Tensor, Tensor | None, int]:
        """Return x, had_k and the group."""
        size = self.order * self.columns
        x = normal((self.tokens, size), self.seed, self.dtype)
        x[1::3] = 0
        for place, value in enumerate(self.special[: self.tokens]):
            x[-1, (self.seed + 7 * place) % size] = value
        if self.gaps:
            x = torch.stack([x, x], dim=-1)[..., 0]
        if self.order == 1:
            return x, None, self.group
        drawn = torch.randn(self.order, self.order, generator=generator(self.seed))
        return x, signs(self.order, self.seed) if self.signs else drawn, self.group


@st.composite
def samples(draw: st.DrawFn, most_elements: int) -> Sample:
    """Draw a call: every order, groups within lines and across them, numbers of any kind."""
    order = draw(st.sampled_from(tuple(ORDERS)))
    columns = 2 ** draw(st.integers(0, ORDERS[order]))
    size = order * columns
    groups = [width for width in range(1, size + 1) if size % width == 0]
    return Sample(
        order=order,
        columns=columns,
        group=draw(st.just(-1) | st.sampled_from(groups)),
        tokens=draw(st.integers(0, max(1, min(7, most_elements // size)))),
        dtype=draw(st.sampled_from(FLOATS)),
        seed=draw(st.integers(0, 2**20)),
        signs=draw(st.booleans()),
        gaps=draw(st.booleans()),
        special=tuple(
            draw(st.lists(st.sampled_from([math.inf, -math.inf, math.nan, 6e4]), max_size=3))
        ),
    )


def expect_the_bits_of_both(implementation: Operations, sample: Sample, device: str) -> None:
    """Require codes and scales of the two operations; a NaN is like any other."""
    x, had_k, group = sample.arguments()
    x, had_k = x.to(device), None if had_k is None else had_k.to(device)
    codes, scale = implementation.quantize_transformed(x, had_k, group)
    turned = implementation.hadamard(x, had_k, torch.float32)
    expected_codes, expected_scale = implementation.quantize_activations(turned, group)
    assert (codes.dtype, scale.dtype) == (torch.int8, torch.float32)
    assert torch.equal(codes, expected_codes)
    assert scale.shape == expected_scale.shape
    assert bool(((scale == expected_scale) | (scale.isnan() & expected_scale.isnan())).all())


@settings(deadline=None, max_examples=100)
@given(sample=samples(most_elements=100_000))
def test_compiled_kernels_give_the_bits_of_the_two_operations(sample: Sample) -> None:
    found = library()
    if found is None:
        pytest.skip("no compiled kernels here")
    expect_the_bits_of_both(compiled(found), sample, "cpu")


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")  # the interpreter's own maximum
@settings(deadline=None, max_examples=60)
@given(sample=samples(most_elements=40_000))
def test_triton_kernels_give_the_bits_of_the_two_operations(sample: Sample) -> None:
    expect_the_bits_of_both(KERNELS, sample, DEVICE)


@settings(deadline=None, max_examples=20)
@given(sample=samples(most_elements=20_000))
def test_plain_pytorch_gives_the_bits_of_the_two_operations(sample: Sample) -> None:
    expect_the_bits_of_both(portable.OPERATIONS, sample, "cpu")


def test_a_numpy_backend_computes_one_after_the_other() -> None:
    wrapped = operations_of(reference)
    for order, columns, group in ((1, 64, 16), (12, 8, -1)):
        sample = Sample(order, columns, group, 3, torch.float16, 0, True, False, ())
        expect_the_bits_of_both(wrapped, sample, "cpu")
        assert torch.equal(
            wrapped.quantize_transformed(*sample.arguments())[0],
            operations.quantize_transformed(*sample.arguments())[0],
        )


@pytest.mark.parametrize("tokens", [31, 32, 33, 65])
@pytest.mark.parametrize(
    ("order", "columns", "group"), [(1, 8192, -1), (1, 8192, 64), (12, 1024, -1)]
)
def test_tokens_of_several_blocks_are_all_computed(
    tokens: int, order: int, columns: int, group: int
) -> None:
    sample = Sample(order, columns, group, tokens, torch.bfloat16, 0, True, False, ())
    expect_the_bits_of_both(operations, sample, "cpu")


@pytest.mark.parametrize("implementation", [operations, KERNELS], ids=["torch", "optimized"])
def test_a_token_does_not_depend_on_its_neighbours(implementation: Operations) -> None:
    device = "cpu" if implementation is operations else DEVICE
    for order, columns in ((1, 512), (12, 32), (40, 8)):
        matrix = None if order == 1 else signs(order, 0).to(device)
        x = normal((37, order * columns), 0, torch.float16).to(device)
        codes, scale = implementation.quantize_transformed(x, matrix, -1)
        for token in (0, 16, 36):
            alone = implementation.quantize_transformed(x[token : token + 1], matrix, -1)
            assert torch.equal(alone[0][0], codes[token])
            assert torch.equal(alone[1][0], scale[token])


LAUNCHES = {(1, 8192): 1, (28, 512): 1, (12, 128): 1, (148, 128): 3, (172, 64): 3, (1, 32768): 3}
"""Orders and columns, and the kernels that a token takes; two operations take two to four."""


@pytest.mark.parametrize(("order", "columns"), LAUNCHES)
def test_a_token_that_a_program_can_hold_is_one_launch(
    order: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[str] = []

    def record(plain: Callable[..., None]) -> Callable[..., None]:
        def call(kernel: type, *arguments: object, **how: object) -> None:
            launched.append(kernel.__name__)
            plain(kernel, *arguments, **how)

        return call

    package = launch.__name__.rpartition(".")[0]
    for module in ("activations", "hadamard", "quantize_transformed"):
        name = f"{package}.{module}.launch"
        monkeypatch.setattr(name, record(launch.launch))
    matrix = None if order == 1 else signs(order, 0).to(DEVICE)
    x = torch.ones(1, order * columns, dtype=torch.bfloat16, device=DEVICE)
    KERNELS.quantize_transformed(x, matrix, -1)
    assert len(launched) == LAUNCHES[order, columns], launched


def test_what_is_no_row_of_a_tile_is_computed_in_two_operations() -> None:
    assert fits_one_program(12, 128, 12 * 128)
    assert fits_one_program(12, 128, 64)
    assert not fits_one_program(12, 128, 3 * 128)
    assert fits_one_program(1, MOST_ELEMENTS, MOST_ELEMENTS)
    assert not fits_one_program(1, 2 * MOST_ELEMENTS, 128)
    assert not fits_one_program(17, MOST_ELEMENTS // 16, 128)


@pytest.mark.parametrize(
    ("x", "had_k", "group", "match"),
    [
        (torch.zeros(2, 24), None, -1, r"x: expected a last axis of 1·2\^k elements, found 24"),
        (torch.zeros(2, 24), torch.ones(5, 5), -1, r"expected a last axis of 5·2\^k"),
        (torch.zeros(2, 24), torch.ones(3, 2), -1, r"had_k: expected shape \[3, 3\]"),
        (torch.zeros(2, 16), None, 3, "group: expected a divisor of K = 16, found 3"),
        (torch.zeros(2, 16), None, 0, "group: expected at least 1, found 0"),
        (torch.zeros(16), None, -1, r"x: expected shape \[M, K\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    x: Tensor, had_k: Tensor | None, group: int, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        operations.quantize_transformed(x, had_k, group)
