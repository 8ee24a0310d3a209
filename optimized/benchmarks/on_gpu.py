"""One run on a machine with a GPU that is at hand for a few minutes and has no network.

    python optimized/benchmarks/on_gpu.py [OUT] [--wheels FOLDER]

It needs Python 3.11, PyTorch, Triton and a clone of the repository, and nothing installed of that
clone. Conformance on CUDA comes first, then the tests of what only a CUDA device shows, then the
benchmarks, in six minutes at most. All that it finds out is written into OUT (by default $OUT, or
`gpu-run`): the logs, `benchmarks.json`, `benchmarks.svg`, and `summary.json` with the card, the
date, the versions and how each part ended. It returns 0 if all parts did well.
"""

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("spec", "schemas", "reference", "optimized", "conformance")
"""Top-level folders that are packages under the namespace `nibblespec`."""

HEAVY = ("torch", "triton", "numpy")
"""What a GPU machine has, in the versions that fit its driver."""

LIGHT = (
    "pydantic",
    "jsonschema",
    "ml_dtypes",
    "safetensors",
    "typer",
    "rich",
    "pytest",
    "hypothesis",
)
"""What is taken from the wheels where it is missing."""

SECONDS = 345
"""For all parts: six minutes, less what starting and ending take."""

MOST_FOR_CONFORMANCE = 180
MOST_FOR_TESTS = 60
LEAST_FOR_BENCHMARKS = 20


@dataclass(frozen=True, slots=True)
class Result:
    """How a part ended."""

    part: str
    command: list[str]
    status: int | None
    """None: it was stopped, since its time was over."""
    seconds: float
    last_line: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts and write what they found."""
    given = parser().parse_args(arguments)
    start = time.monotonic()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    problem = provide(LIGHT, given.wheels) or missing_message(
        HEAVY, "install it, as it suits the GPU"
    )
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    environment = environment_for(out)
    results = []
    for part, command, most in parts(out, given.cpu):
        left = start + given.seconds - time.monotonic()
        results.append(run(part, command(left), min(most, max(left, 1)), out, environment))
    summary = {**facts(environment), "parts": [asdict(result) for result in results]}
    (out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    print(f"written: {out / 'summary.json'}")
    return int(any(result.status != 0 for result in results))


def parts(out: Path, on_cpu: bool) -> list[tuple[str, Any, float]]:
    """Return the parts: their names, their commands given the seconds left, and their most seconds.

    On a CPU they are short and small: to try the script.
    """
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    backend = "torch" if on_cpu else "optimized"
    benchmarks = [sys.executable, "-m", "nibblespec.optimized.benchmarks"]
    files = ["--json", str(out / "benchmarks.json"), "--plot", str(out / "benchmarks.svg")]
    some = ["--cpu", "--only", "activations", "--rows", "1", "--seconds", "0.01"]
    chosen = some if on_cpu else ["--cuda", "--seconds", "0.3"]

    def measuring(left: float) -> list[str]:
        limit = max(LEAST_FOR_BENCHMARKS, left - LEAST_FOR_BENCHMARKS)
        return [*benchmarks, *chosen, *files, "--limit", f"{limit:.0f}"]

    conformance = [*pytest, "conformance", "--backend", backend, "-k", "pack" if on_cpu else ""]
    return [
        ("conformance", lambda _: conformance, MOST_FOR_CONFORMANCE),
        ("tests", lambda _: [*pytest, "tests/test_triton_cuda.py"], MOST_FOR_TESTS),
        ("benchmarks", measuring, float("inf")),
    ]


def run(
    part: str, command: list[str], seconds: float, out: Path, environment: dict[str, str]
) -> Result:
    """Run a command for so many seconds at most; its output goes to a log and its end is told."""
    log = out / f"{part}.txt"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it starts can be stopped with it
        )
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    result = Result(
        part, command, status, round(time.monotonic() - start, 1), lines[-1] if lines else ""
    )
    ended = "stopped" if status is None else f"status {status}"
    print(f"{part}: {ended} after {result.seconds} s: {result.last_line}", flush=True)
    return result


def provide(packages: Sequence[str], wheels: Path | None) -> str:
    """Install what is missing of the packages from a folder of wheels. Return what is wrong."""
    absent = missing(packages)
    if absent and wheels is not None:
        install = ["install", "--quiet", "--no-index", "--find-links", str(wheels), *absent]
        done = subprocess.run([sys.executable, "-m", "pip", *install], check=False)
        if done.returncode:
            return (
                f"pip could not install {', '.join(absent)} from {wheels}; see what it says above"
            )
    return missing_message(
        packages, "give a folder that has their wheels and those of what they need: --wheels FOLDER"
    )


def missing_message(packages: Sequence[str], advice: str) -> str:
    """Return what is missing and what to do, or nothing."""
    absent = missing(packages)
    return f"missing packages: {', '.join(absent)}; {advice}" if absent else ""


def missing(packages: Sequence[str]) -> list[str]:
    """Return those of the packages that are not installed."""
    return [name for name in packages if installed(name) is None]


def installed(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def environment_for(out: Path) -> dict[str, str]:
    """Return an environment that imports this clone, and keeps caches in `out`."""
    links = out / "path" / "nibblespec"
    links.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        link = links / part
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / part)
    given = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(links.parent), given])),
        "TRITON_CACHE_DIR": str(out / "triton-cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(out / "inductor-cache"),
    }


def facts(environment: dict[str, str]) -> dict[str, Any]:
    """Return what was run, on what, and when."""
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "card": output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]),
        "cuda": output(
            [sys.executable, "-c", "import torch; print(torch.version.cuda)"], environment
        ),
        "commit": output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "machine": f"{platform.platform()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in (*HEAVY, *LIGHT, "gemlite")},
    }


def output(command: list[str], environment: dict[str, str] | None = None) -> str | None:
    """Return what a command prints, None where it cannot be run or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    result.add_argument(
        "out",
        nargs="?",
        type=Path,
        default=Path(os.environ.get("OUT") or "gpu-run"),
        help="where results are written (default: $OUT, or gpu-run)",
    )
    result.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="wheels of what is missing, for pip"
    )
    result.add_argument(
        "--seconds", type=float, default=SECONDS, help="time for all (default: %(default)s)"
    )
    result.add_argument(
        "--cpu", action="store_true", help="run a little of it on the CPU, to try this script"
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
