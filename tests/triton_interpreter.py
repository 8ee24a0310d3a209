"""What tests do to Triton's interpreter and to the memory that kernels write to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from nibblespec.optimized.kernels import INTERPRETED
from torch import Tensor

if INTERPRETED:
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction, InterpreterBuilder

GUARD = 1 << 18
"""Elements before and after an output that a kernel must leave alone."""


@contextmanager
def guarded_outputs() -> Iterator[None]:
    """Fill every new output with NaN, integers with ones; require that nothing else is written.

    Raises AssertionError at the end where a kernel wrote outside of an output.
    """
    plain = torch.empty
    made: list[tuple[Tensor, int]] = []

    def empty(*sizes: Any, **how: Any) -> Tensor:  # noqa: ANN401  # what torch.empty takes
        shape = sizes[0] if isinstance(sizes[0], tuple) else sizes
        size = int(np.prod(shape))
        buffer = plain(size + 2 * GUARD, **how)
        buffer.view(torch.uint8).fill_(0xFF)
        made.append((buffer, size))
        return buffer[GUARD : GUARD + size].view(shape)

    with mock.patch("torch.empty", empty):
        yield
    assert made, "no output was made by torch.empty"
    for buffer, size in made:
        for guard in (buffer[:GUARD], buffer[GUARD + size :]):
            assert bool((guard.view(torch.uint8) == 0xFF).all()), "written outside of an output"


@contextmanager
def programs_in_reverse() -> Iterator[None]:
    """Run the programs of a launch from the last to the first."""
    plain = InterpreterBuilder.set_grid_idx

    def reversed_index(self: Any, x: int, y: int, z: int) -> None:  # noqa: ANN401  # no types
        plain(self, self.grid_dim[0] - 1 - x, y, z)

    with mock.patch.object(InterpreterBuilder, "set_grid_idx", reversed_index):
        yield


@contextmanager
def only_the_last_program() -> Iterator[None]:
    """Run of every launch the last program alone: tensors are too large for all of them.

    The interpreter copies every tensor to the host and back, here on itself: that is left out.
    """
    plain = InterpretedFunction.run

    def run(self: Any, *arguments: Any, grid: tuple[int], **options: Any) -> None:  # noqa: ANN401
        last = grid[0] - 1

        def set_last(builder: Any, *_: int) -> None:  # noqa: ANN401
            builder.grid_idx = (last, 0, 0)

        with mock.patch.object(InterpreterBuilder, "set_grid_idx", set_last):
            plain(self, *arguments, grid=(1,), **options)

    with (
        mock.patch.object(InterpretedFunction, "run", run),
        mock.patch.object(GridExecutor, "_restore_args_dev"),
    ):
        yield
