"""What the machine can do at best: the yardsticks of the table."""

import datetime
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized import torch_backend
from nibblespec.optimized.benchmarks.measure import Call, Timing, time_in_turns

BYTES = 1 << 28
"""Memory that is filled and copied: more than caches hold."""

EDGE = 1024
"""Rows and columns of the matrices that are multiplied: no more, since without instructions for
bfloat16 PyTorch takes seconds for them."""

Timer = Callable[[Mapping[str, Call], float], dict[str, Timing]]
"""Times contestants in turns, for about so many seconds."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured rates, per second."""

    name: str
    device: str
    threads: int
    torch: str
    date: str
    """Of the measurement, in UTC."""
    load: float
    """Programs that ran at the same time, on the average of the minute before."""
    fill: float
    """Bytes written by torch.fill_."""
    copy: float
    """Bytes read and written by copy_."""
    matmul: float
    """Multiplications and additions of a bfloat16 matrix product."""

    @property
    def summary(self) -> str:
        """One line about it."""
        return (
            f"{self.name}, {self.device}, torch {self.torch}; "
            f"fill {self.fill / 1e9:.1f} GB/s, copy {self.copy / 1e9:.1f} GB/s, "
            f"bf16 matmul {self.matmul / 1e9:.0f} GFLOP/s"
        )

    def as_json(self, lines: Sequence[Any]) -> dict[str, Any]:
        """Return all figures for a file."""
        return {"machine": asdict(self), "lines": [asdict(line) for line in lines]}


def measure_cpu(seconds: float = 1.0) -> Machine:
    """Measure the rates of this CPU."""
    return measure_machine(
        "cpu", (processor(), torch_backend.device), (BYTES, EDGE), time_in_turns, seconds
    )


def measure_machine(
    device: str, names: tuple[str, str], sizes: tuple[int, int], timer: Timer, seconds: float
) -> Machine:
    """Measure the rates of a device, named for what it is and what runs on it.

    `sizes` are the bytes that are filled and copied, and the edge of the matrices.
    """
    bytes_moved, edge = sizes
    source = torch.zeros(bytes_moved, dtype=torch.uint8, device=device)
    target = torch.ones(bytes_moved, dtype=torch.uint8, device=device)
    square = torch.randn(edge, edge, device=device).to(torch.bfloat16)
    timings = timer(
        {
            "fill": lambda: target.view(torch.int32).fill_(1),
            "copy": lambda: target.copy_(source),
            "matmul": lambda: square @ square,
        },
        seconds,
    )
    name, runs = names
    return Machine(
        name=name,
        device=runs,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        load=os.getloadavg()[0],
        fill=bytes_moved / timings["fill"].median,
        copy=2 * bytes_moved / timings["copy"].median,
        matmul=2 * edge**3 / timings["matmul"].median,
    )


def processor() -> str:
    """Return the name of this CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
