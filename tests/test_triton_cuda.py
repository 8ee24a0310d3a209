"""What only a CUDA device shows: streams, graphs, device indices, memory beyond 2**31 elements."""

import pytest
import torch
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.ops import operations
from torch import Tensor

from tests.torch_samples import dashq_weight, generator, same_bits

pytestmark = pytest.mark.skipif(INTERPRETED, reason="there is no CUDA device")

LAYOUT = DashqLayout(4, 32, 4096, 4096, 4096)


def layer(device: str, tokens: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x and the weight of LAYOUT on a device."""
    x = torch.randn(tokens, LAYOUT.columns, generator=generator(0)).to(torch.bfloat16)
    words, scale, zero = dashq_weight(LAYOUT, torch.float16, 0)
    return x.to(device), words.to(device), scale.to(device), zero.to(device)


def test_kernels_run_on_the_current_stream() -> None:
    arguments = layer("cuda")
    expected = operations.dashq_linear(*arguments, None, LAYOUT)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Whatever ran on another stream would not wait for this.
        torch.cuda._sleep(10**8)
        doubled = arguments[0] * 2
        found = operations.dashq_linear(doubled, *arguments[1:], None, LAYOUT)
    stream.synchronize()
    assert same_bits(found.cpu(), (expected * 2).cpu())


def test_a_captured_graph_computes_what_it_computed_before() -> None:
    x, words, scale, zero = layer("cuda", tokens=1)
    expected = operations.dashq_linear(x, words, scale, zero, None, LAYOUT)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = operations.dashq_linear(x, words, scale, zero, None, LAYOUT)
    x.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert same_bits(y.cpu(), (expected * 2).cpu())


def test_tensors_decide_on_the_device() -> None:
    last = f"cuda:{torch.cuda.device_count() - 1}"
    expected = operations.dashq_linear(*layer("cuda:0"), None, LAYOUT)
    with torch.cuda.device(0):
        found = operations.dashq_linear(*layer(last), None, LAYOUT)
    assert str(found.device) == last
    assert same_bits(found.cpu(), expected.cpu())


def test_rows_do_not_depend_on_the_number_of_tokens() -> None:
    x, words, scale, zero = layer("cuda", tokens=300)
    expected = operations.dashq_linear(x, words, scale, zero, None, LAYOUT)
    for tokens in (1, 2, 5, 15, 16, 17, 63, 64, 65, 127, 128, 129, 299):
        found = operations.dashq_linear(x[:tokens], words, scale, zero, None, LAYOUT)
        assert same_bits(found.cpu(), expected[:tokens].cpu()), tokens
    for _ in range(20):
        assert same_bits(
            operations.dashq_linear(x, words, scale, zero, None, LAYOUT).cpu(), expected.cpu()
        )


def test_weights_beyond_two_to_the_31_are_right_at_their_end() -> None:
    layout = DashqLayout(4, 32, 2**31 // 4096 + 3, 4096, 4096)
    words, scale, zero = (part.to("cuda") for part in dashq_weight(LAYOUT, torch.float16, 0))
    repeats = layout.rows // LAYOUT.rows + 1
    far_words = words.repeat(repeats)[: layout.rows * 512].clone()
    far_scale, far_zero = (
        parameter.repeat(repeats, 1)[: layout.rows * 128].clone() for parameter in (scale, zero)
    )
    dense = operations.dashq_reconstruct(far_words, far_scale, far_zero, layout, torch.bfloat16)
    part = operations.dashq_reconstruct(words, scale, zero, LAYOUT, torch.bfloat16)
    row = (layout.rows - 1) % LAYOUT.rows
    assert same_bits(dense[-1].cpu(), part[row].cpu())
