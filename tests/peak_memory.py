"""The peak of this process's memory, its own and not its parent's."""

import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the largest resident size since the program was started, in bytes.

    On Linux from VmHWM: what getrusage counts survives the start of a program, and so begins at
    the size of the process that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
