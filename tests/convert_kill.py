"""Kill conversions and look at what they leave: a program of its own, since it forks.

    python -m tests.convert_kill WORK

WORK holds a folder `model`. Conversions replace `out` in turns with one checkpoint and another one.
Some are killed at each place in turn where they open, rename, cut, lock or remove a file, others
after a random time. After each, `out` has to be one of the two checkpoints, byte for byte, and so
does every folder beside it that has a manifest; each removes what the one before has left. Prints
how many were killed, and how many of these left the new checkpoint; exits with 1 where one left
anything else, or where anything is beside the checkpoint in the end.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert import convert

EVENTS = (
    "open",
    "os.rename",
    "os.truncate",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.chmod",
    "fcntl.flock",
)
WAYS: tuple[dict[str, Any], ...] = (
    {"to": "dashq", "bits": 3},
    {"to": "bitnest", "group_size": 16},
)
ROUNDS = 25

State = dict[str, bytes]


def contents(folder: Path) -> State:
    """Return all files of a folder, by name relative to it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run(work: Path, way: dict[str, Any], begin: Callable[[], None] = lambda: None) -> int:
    """Convert in a new process that calls `begin` first; return the process."""
    child = os.fork()
    if child == 0:
        begin()
        convert(work / "model", work / "out", overwrite=True, **way)
        os._exit(0)
    return child


def kill_at(number: int) -> Callable[[], None]:
    """Return what has this process killed when it does something of EVENTS for that time."""

    def begin() -> None:
        left = number

        def look(event: str, _: tuple[Any, ...]) -> None:
            nonlocal left
            if event in EVENTS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)

    return begin


def is_whole(work: Path, states: tuple[State, ...]) -> bool:
    """Say whether `out`, and all beside it that has a manifest, is one of the states."""
    beside = [folder for folder in work.glob(".out-*") if any_manifest(folder)]
    return all(contents(folder) in states for folder in [work / "out", *beside])


def any_manifest(folder: Path) -> bool:
    """Say whether a validator would take a folder for a checkpoint."""
    return any((folder / name).exists() for name in ("dashq_config.json", "meta.json"))


def main() -> int:
    """Kill conversions in the folder that is named; return the exit status."""
    torch.set_num_threads(1)
    work, draw = Path(sys.argv[1]), random.Random(5)
    convert(work / "model", work / "out", **WAYS[0])  # what it imports, no child has to
    states, seconds = [], 0.0
    for way in WAYS:
        start = time.monotonic()
        os.waitpid(run(work, way), 0)
        seconds = max(seconds, time.monotonic() - start)
        states.append(contents(work / "out"))
    killed = finished = number = 0
    for round_ in range(10_000):
        now = contents(work / "out")
        way = WAYS[1 - states.index(now)]
        number += 1
        if number > 0:
            child = run(work, way, kill_at(number))
            _, status = os.waitpid(child, 0)
            if status == 0:  # it came through: random times from here on
                number = -ROUNDS - 1
        else:
            child = run(work, way)
            time.sleep(draw.uniform(0, 1.3 * seconds))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if not is_whole(work, tuple(states)):
            print(f"round {round_}, {way}: neither the old checkpoint nor the new one")
            return 1
        if os.WIFSIGNALED(status):
            killed += 1
            finished += contents(work / "out") != now
        if number == -1:
            break
    os.waitpid(run(work, WAYS[0]), 0)
    if beside := [folder.name for folder in work.glob(".out-*")]:
        print(f"{beside}: left by a conversion that was killed")
        return 1
    print(f"{killed} {finished}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
