"""A broken kernel is a copy of the kernels' package with one small change of its text.

Copies are packages of their own, in a folder that has to stay as long as they are used: Triton
reads a kernel's source when it is first called.
"""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import nibblespec.optimized.kernels
from nibblespec.optimized.operations import Operations

KERNELS = Path(nibblespec.optimized.kernels.__file__).parent
ROOT = Path(__file__).parents[2]
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMutant:
    """A fault, as a change of one file's text, and the check that has to notice it."""

    name: str
    fault: str
    """In a line, as one would report it."""
    file: str
    """Of optimized/kernels."""
    old: str
    """Text that is in the file exactly once."""
    new: str
    by: Literal["suite", "check", "process", "ptx"]
    """What rejects it: the conformance suite, a check of `tests.triton_checks` and the like, such a
    check in a process of its own, which may crash, or what is promised of the PTX."""
    at: str
    """The suite's test, the check, or the specialization (whose name begins so)."""
    says: str = ""
    """Part of what is said of it; of the suite, a requirement that is named."""


def broken_package(mutant: KernelMutant, folder: Path) -> Path:
    """Return a copy of the kernels' package in `folder` with the change made.

    Raises ValueError where the text to change is not there exactly once.
    """
    package = folder / f"broken_kernels_{next(_numbers)}"
    shutil.copytree(KERNELS, package, ignore=shutil.ignore_patterns("__pycache__"))
    file = package / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.name}: expected this text once in optimized/kernels/{mutant.file}, found it "
            f"{text.count(mutant.old)} times; the kernel has changed, adapt the mutant to it:\n"
            f"{mutant.old}"
        )
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    for file in package.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        renamed = re.sub(r"\bnibblespec\.optimized\.kernels\b", package.name, text)
        file.write_text(renamed, encoding="utf-8")
    return package


@contextmanager
def broken_operations(mutant: KernelMutant, folder: Path) -> Iterator[Operations]:
    """Import the mutant's operations, unchecked; forget its modules at the end."""
    package = broken_package(mutant, folder)
    sys.path.insert(0, str(folder))
    try:
        implementation = importlib.import_module(f"{package.name}.implementation")
        yield implementation.OPERATIONS
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == package.name]:
            del sys.modules[name]


def fate_of_process(mutant: KernelMutant, folder: Path) -> str:
    """Run the mutant's check in a process of its own: `rejected`, `crashed` or `passed`.

    Raises RuntimeError where the process ends in any other way.
    """
    run = _python(["-m", "tests.kernel_mutants.process", mutant.name, str(folder)], folder)
    fates = {0: "passed", 3: "rejected", -signal.SIGSEGV: "crashed", -signal.SIGBUS: "crashed"}
    if run.returncode not in fates:
        raise RuntimeError(f"{mutant.name}: exit {run.returncode}: {run.stderr[-2000:]}")
    return fates[run.returncode]


def broken_promises(mutant: KernelMutant, folder: Path, arch: int = 90) -> list[str]:
    """Compile the mutant's specialization for one architecture; return what it breaks."""
    package = broken_package(mutant, folder)
    command = ["-m", f"{package.name}.aot", mutant.at, "--arch", str(arch), "--processes", "1"]
    run = _python(command, folder, TRITON_INTERPRET="0")
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: cannot compile: {run.stderr[-2000:]}")
    return [line for text in run.stdout.splitlines() for line in json.loads(text)["broken"]]


def _python(
    arguments: list[str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python where `folder`, these tests and all that can be imported here can be imported."""
    path = os.pathsep.join([str(folder), str(ROOT), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
