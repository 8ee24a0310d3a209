"""Timing of contestants side by side: in turns, in one process, the median of many rounds."""

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Call = Callable[[], object]
Sampler = Callable[[], float]
"""Measures once: seconds for a call."""

SHORTEST_SAMPLE = 2e-3
"""Seconds: shorter calls are repeated within a sample."""

SHORT_CALL = 0.2
"""Seconds: before a sample of shorter calls, one is made that does not count."""

FEWEST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds for a call: the median of the rounds, and the quickest round."""

    median: float
    best: float
    rounds: int


def time_in_turns(contestants: Mapping[str, Call], seconds: float) -> dict[str, Timing]:
    """Time calls on this CPU, one after the other in each round, for about that long in all."""
    return sample_in_turns(
        {name: functools.partial(sampler_of, call) for name, call in contestants.items()}, seconds
    )


def sample_in_turns(
    makers: Mapping[str, Callable[[], Sampler]], seconds: float
) -> dict[str, Timing]:
    """Make samplers, and take a sample of each in every round, for about that long in all.

    Whatever else happens on the machine then happens to all of them alike.
    """
    samplers = {name: make() for name, make in makers.items()}
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    start = time.perf_counter()
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() - start < seconds:
        for name, sample in samplers.items():
            samples[name].append(sample())
        rounds += 1
    return {name: _timing(of_name) for name, of_name in samples.items()}


def sampler_of(call: Call) -> Sampler:
    """Call twice, to compile and to fill caches, and return a sampler.

    Its first call does not count: what the contestants before it did to memory is not its own, such
    as that the system, or the host of a virtual machine, took back the pages that it gets.
    """
    call()
    once = max(_time(call, 1), 1e-6)
    repeats = max(1, round(SHORTEST_SAMPLE / once))

    def sample() -> float:
        if once < SHORT_CALL:
            call()
        return _time(call, repeats) / repeats

    return sample


def _time(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def _timing(samples: Sequence[float]) -> Timing:
    return Timing(statistics.median(samples), min(samples), len(samples))
