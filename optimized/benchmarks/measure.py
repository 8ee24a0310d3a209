"""Timing of contestants side by side: in turns, in one process, the median of many rounds."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Call = Callable[[], object]

SHORTEST_SAMPLE = 2e-3
"""Seconds: shorter calls are repeated within a sample."""

FEWEST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds for a call: the median of the rounds, and the quickest round."""

    median: float
    best: float
    rounds: int


def time_in_turns(contestants: Mapping[str, Call], seconds: float) -> dict[str, Timing]:
    """Time calls, one after the other in each round, for about that long all together.

    Whatever else happens on the machine then happens to all of them alike.
    """
    repeats = {}
    for name, call in contestants.items():
        call()  # compiles, fills caches
        repeats[name] = max(1, round(SHORTEST_SAMPLE / max(_time(call, 1), 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    start = time.perf_counter()
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() - start < seconds:
        for name, call in contestants.items():
            samples[name].append(_time(call, repeats[name]) / repeats[name])
        rounds += 1
    return {name: _timing(of_name) for name, of_name in samples.items()}


def _time(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def _timing(samples: Sequence[float]) -> Timing:
    return Timing(statistics.median(samples), min(samples), len(samples))
