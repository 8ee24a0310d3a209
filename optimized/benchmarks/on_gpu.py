"""One run on a machine with a GPU that is at hand for a few minutes and has no network.

    python optimized/benchmarks/on_gpu.py [OUT] [--wheels FOLDER]

It needs Python 3.11, PyTorch, Triton and a clone of the repository, and nothing installed of that
clone. Conformance on CUDA comes first, then the tests of what only a CUDA device shows, then the
benchmarks, in six minutes at most. All that it finds out is written into OUT (by default $OUT, or
`gpu-run`) as it comes: the logs, `conformance.json`, `benchmarks.json`, `benchmarks.svg`, and
`summary.json` with the card, the date, the versions and how each part ended. It returns 0 if all
parts did well, 1 if one did not, 2 if it could not begin.
"""

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
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
    "pytest-xdist",
    "hypothesis",
)
"""What is taken from the wheels where it is missing, or older than it may be."""

SECONDS = 345
"""For all parts: six minutes, less what starting and ending take."""

MOST_FOR_CONFORMANCE = 200
MOST_FOR_TESTS = 40
LEAST_FOR_BENCHMARKS = 20

TO_END = 10
"""Seconds that a part has to end by itself, with all that it knows, when its time is over."""

MOST_WORKERS = 16
"""Processes that run the suite: nearly all its time is the compiler's, for thousands of kernels."""

MOST_STARTS = 4
"""How often the benchmarks are started at most: they go on after the case that ended them."""

DEVICE = (
    "import torch; p = torch.cuda.get_device_properties(torch.zeros(1, device='cuda').device); "
    "print(f'{p.name}, sm_{p.major}{p.minor}, CUDA {torch.version.cuda}')"
)
"""A program that uses the device and says what it is."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the run."""

    name: str
    command: Callable[[float, bool], list[str]]
    """What to run, given the seconds left and whether it was started before."""
    most: float
    """Its most seconds."""
    starts: int = 1
    """How often it is started at most, where it neither ended by itself nor ran out of time."""


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
        return refuse(problem)
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_for(Path(folder), given.cpu)
        device, why = output([sys.executable, "-c", DEVICE], environment)
        if device is None and not given.cpu:
            return refuse(f"expected a CUDA device that PyTorch can use, found none: {why}")
        known = facts(device)
        results: list[Result] = []
        write_summary(out, known, results)
        for part in parts(out, given.cpu):
            for again in range(part.starts):
                left = start + given.seconds - time.monotonic()
                command = part.command(left, again > 0)
                seconds = min(part.most, max(left, 1))
                results.append(run(part.name, command, seconds, out, environment, again > 0))
                write_summary(out, known, results)  # now: what comes may not end
                if results[-1].status in (None, 0, 1):
                    break
    print(f"written: {out / 'summary.json'}")
    return int(any(result.status != 0 for result in results))


def refuse(problem: str) -> int:
    """Say why nothing was run."""
    print(f"error: {problem}", file=sys.stderr)
    return 2


def write_summary(out: Path, known: dict[str, Any], results: Sequence[Result]) -> None:
    """Write what was run on and how parts ended, whole or not at all."""
    draft = out / "summary.json.part"
    summary = {**known, "parts": [asdict(result) for result in results]}
    draft.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    draft.replace(out / "summary.json")


def parts(out: Path, on_cpu: bool) -> list[Part]:
    """Return the parts. On a CPU they are short and small: to try the script.

    Tests are named in the log as they end, and a warning, such as of the installed PyTorch, is no
    failure of a kernel.
    """
    python = [sys.executable, "-m"]
    pytest = [*python, "pytest", "-v", "-W", "default", "-p", "no:cacheprovider"]
    workers = min(MOST_WORKERS, os.cpu_count() or 1)
    # A worker that has lost its device fails all its tests: another one takes its place.
    side_by_side = ["-n", str(workers), "-p", "nibblespec.optimized.benchmarks.lost_device"]
    backend = "torch" if on_cpu else "optimized"
    conformance = [*pytest, "conformance", "--backend", backend, *side_by_side]
    conformance += ["--report", str(out / "conformance.json")]
    tests = [*pytest, "tests/test_triton_cuda.py"]
    figures = ["--json", str(out / "benchmarks.json"), "--plot", str(out / "benchmarks.svg")]
    some = ["--cpu", "--only", "activations", "--rows", "1", "--seconds", "0.01"]
    chosen = some if on_cpu else ["--cuda", "--seconds", "0.15"]
    benchmarks = [*python, "nibblespec.optimized.benchmarks", *chosen, *figures]

    def measure(left: float, again: bool) -> list[str]:
        limit = max(LEAST_FOR_BENCHMARKS, left - LEAST_FOR_BENCHMARKS)
        return [*benchmarks, "--limit", f"{limit:.0f}", *(["--resume"] if again else [])]

    return [
        Part(
            "conformance",
            lambda *_: conformance + (["-k", "pack"] if on_cpu else []),
            MOST_FOR_CONFORMANCE,
        ),
        Part("tests", lambda *_: tests, MOST_FOR_TESTS),
        Part("benchmarks", measure, float("inf"), MOST_STARTS),
    ]


def run(
    part: str,
    command: list[str],
    seconds: float,
    out: Path,
    environment: dict[str, str],
    again: bool = False,
) -> Result:
    """Run a command for so many seconds at most; its output goes to a log and its end is told.

    When its time is over it is asked to end, as by Ctrl-C, and then killed with all it started.
    """
    log = out / f"{part}.txt"
    start = time.monotonic()
    with log.open("a" if again else "w", encoding="utf-8") as file:
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
            status = process.wait(max(seconds - TO_END, seconds / 2))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(TO_END, seconds / 2))
        finally:
            with suppress(ProcessLookupError):  # where nothing of it is left
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
    if wheels is not None:
        # pip leaves alone what is there in a version that pyproject.toml allows.
        wanted = [requirement for requirement in requirements() if name_of(requirement) in packages]
        wanted += [name for name in packages if name not in map(name_of, wanted)]
        install = ["install", "--quiet", "--no-index", "--find-links", str(wheels), *wanted]
        done = subprocess.run([sys.executable, "-m", "pip", *install], check=False)
        if done.returncode:
            return f"pip could not install what is needed from {wheels}; see what it says above"
    return missing_message(
        packages, "give a folder that has their wheels and those of what they need: --wheels FOLDER"
    )


def requirements() -> list[str]:
    """Return what pyproject.toml asks for, each with its versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["optimized"], *extras["suite"], *extras["test"]]


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement asks for."""
    return requirement.partition(";")[0].partition("[")[0].partition(">")[0].partition("=")[0]


def missing_message(packages: Sequence[str], advice: str) -> str:
    """Return what is missing and what to do, or nothing."""
    absent = [name for name in packages if installed(name) is None]
    return f"missing packages: {', '.join(absent)}; {advice}" if absent else ""


def installed(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def environment_for(folder: Path, on_cpu: bool = False) -> dict[str, str]:
    """Return an environment that imports this clone, as installed, through links in a folder."""
    links = folder / "nibblespec"
    links.mkdir()
    for part in PARTS:
        (links / part).symlink_to(ROOT / part)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / f"nibblespec-{project['version']}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    given = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), given])),
        "PYTHONUNBUFFERED": "1",
    }
    return environment if on_cpu else {**environment, "TRITON_INTERPRET": "0"}


def facts(device: str | None) -> dict[str, Any]:
    """Return what is run, on what, and when."""
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory"
    card, _ = output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    commit, _ = output(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device,
        "card": card,
        "commit": commit,
        "machine": f"{platform.platform()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in (*HEAVY, *LIGHT, "transformers", "gemlite")},
    }


def output(command: list[str], environment: dict[str, str] | None = None) -> tuple[str | None, str]:
    """Return what a command prints, None where it cannot be run or fails, and why it does."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=environment
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return done.stdout.strip(), ""


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


def run_as_program(arguments: Sequence[str] | None = None) -> None:
    """Run all parts; who ends this process by SIGTERM ends what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(arguments))


if __name__ == "__main__":
    run_as_program()
