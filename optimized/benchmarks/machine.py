"""What the machine can do at best: the yardsticks of the table."""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized import torch_backend
from nibblespec.optimized.benchmarks.measure import time_in_turns

BYTES = 1 << 28
"""Memory that is filled and copied: more than caches hold."""

EDGE = 2048
"""Rows and columns of the matrices that are multiplied."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured rates, per second."""

    name: str
    device: str
    threads: int
    torch: str
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


def measure_machine(seconds: float = 1.0) -> Machine:
    """Measure the rates of this CPU."""
    source = torch.zeros(BYTES, dtype=torch.uint8)
    target = torch.ones(BYTES, dtype=torch.uint8)
    square = torch.randn(EDGE, EDGE).to(torch.bfloat16)
    timings = time_in_turns(
        {
            "fill": lambda: target.view(torch.int32).fill_(1),
            "copy": lambda: target.copy_(source),
            "matmul": lambda: square @ square,
        },
        seconds,
    )
    return Machine(
        name=_processor(),
        device=torch_backend.device,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        fill=BYTES / timings["fill"].median,
        copy=2 * BYTES / timings["copy"].median,
        matmul=2 * EDGE**3 / timings["matmul"].median,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
