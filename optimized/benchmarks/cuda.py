"""Timing on a CUDA device: cold caches, and graphs, so that no launch from Python is measured."""

import functools
from collections.abc import Mapping

import torch
from nibblespec.optimized.benchmarks.machine import Machine, measure_machine
from nibblespec.optimized.benchmarks.measure import Call, Sampler, Timing, sample_in_turns
from torch import Tensor

SIZES = (1 << 30, 8192)
"""Bytes that are filled and copied, and the edge of the matrices that are multiplied."""

FLUSH_BYTES = 1 << 30
"""What is read to empty the caches: many times a level-2 cache, and for so long that a graph of
some hundred kernels is queued meanwhile."""

WARM_UPS = 3


def measure_cuda(seconds: float = 1.0) -> Machine:
    """Measure the rates of the current CUDA device."""
    from nibblespec.optimized import backend  # noqa: PLC0415  # imports Triton

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    runs = f"{backend.device}; sm_{properties.major}{properties.minor}"
    return measure_machine("cuda", (properties.name, runs), SIZES, time_on_cuda, seconds)


def time_on_cuda(contestants: Mapping[str, Call], seconds: float) -> dict[str, Timing]:
    """Time calls as replays of CUDA graphs, one after the other in each round."""
    torch.cuda.empty_cache()  # of what the case before has left, its graphs' memory too
    flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    makers = {
        name: functools.partial(replay_sampler, call, flush) for name, call in contestants.items()
    }
    return sample_in_turns(makers, seconds)


def replay_sampler(call: Call, flush: Tensor) -> Sampler:
    """Record a call, and return a sampler that replays it with cold caches.

    The flush is read, not written: what it wrote would be on its way to memory during the replay.
    While it runs, the replay is queued behind it, so that its launch is not measured.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):  # compiles
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    recorded = graph, result  # the graph writes to the result's memory
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample() -> float:
        flush.sum()
        before.record()
        recorded[0].replay()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) * 1e-3

    sample()
    return sample
