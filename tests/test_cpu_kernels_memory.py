"""The compiled kernels touch what is theirs and nothing else: a run under AddressSanitizer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from nibblespec.optimized.cpu.build import built_library
from nibblespec.optimized.cpu.kernels import compiled
from nibblespec.optimized.cpu.library import Library
from tests.torch_samples import bounded_calls, empty_calls, exact_calls

flags = ("-march=native", "-O0", "-fsanitize=address")
kernels = compiled(Library(built_library((flags,), Path(sys.argv[1]))))
calls = [*exact_calls(), *bounded_calls(), *empty_calls()]
for call in calls:
    getattr(kernels, call.operation)(*call.arguments)
print("every call is fine", flush=True)
(call,) = (call for call in calls[:1] if call.operation == "dashq_reconstruct")
words, *others = call.arguments
kernels.dashq_reconstruct(words[:-1].clone(), *others)
"""


def test_no_access_is_out_of_bounds(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("no AddressSanitizer")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "CXX": compiler,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "cache")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "every call is fine" in done.stdout, done.stderr[-4000:]
    # The last call has a word too few: the sanitizer is awake.
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr
