"""pytest plugin: a worker that has lost its CUDA device ends, and another one takes its place.

After an access outside of memory every call on CUDA fails, for as long as the process lives. In a
worker of pytest-xdist, all tests after the one at fault would fail.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_failed: set[str] = set()


def is_lost() -> bool:
    """Say whether this process has a CUDA device that fails whatever is asked of it."""
    torch: Any = sys.modules.get("torch")  # who has not imported it has no device
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def pytest_runtest_logreport(report: "pytest.TestReport") -> None:
    """Keep in mind which test failed."""
    if report.failed:
        _failed.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """End a worker whose test has lost the device, once what the test says of it is sent."""
    if "PYTEST_XDIST_WORKER" in os.environ and nodeid in _failed and is_lost():
        os._exit(1)
