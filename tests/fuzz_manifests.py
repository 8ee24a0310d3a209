"""Mutate the example manifests at random; the validator must end in findings on every one.

    python -m tests.fuzz_manifests --count 100000 --seed 1

Each mutant is an example after one to four mutations of its bytes, its tokens or its values. It
is checked, and what was found is written in every output form; where there is no error, the
checkpoint is inspected too. Prints figures; exits with 1 where a mutant raises, needs more than
`--seconds` of processor time, or memory grows by more than `--mebibytes` after the first tenth.
`--only INDEX` repeats one mutant and writes what was found in it; `--save FILE` keeps it.
"""

import argparse
import json
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from nibblespec.conformance.artifacts.findings import worst
from nibblespec.conformance.artifacts.inspect import inspect_manifest
from nibblespec.conformance.artifacts.manifest import check_manifest
from nibblespec.conformance.artifacts.output.render_inspect import inspection_json, inspection_text
from nibblespec.conformance.artifacts.output.render_json import reports_json
from nibblespec.conformance.artifacts.output.render_sarif import reports_sarif
from nibblespec.conformance.artifacts.output.render_text import reports_text
from nibblespec.conformance.artifacts.validate import Report

from tests.peak_memory import peak_memory

Json: TypeAlias = Any  # a JSON value, of any type

EXAMPLES = {
    name: (Path(__file__).parent.parent / "examples" / name).read_bytes()
    for name in ("dashq_config.json", "meta.json")
}

BYTES = (b"", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"\\", b"\n", b"}")
TOKENS = (
    "NaN", "-Infinity", "1e400", "-1e-400", "-0", "-0.0", "4.0", "1E2", "01", "true", "null", "{}",
    "[]", "{", "]", ":", ",", '""', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"[/red]"',
    '"a\tb"', '"\u202e"', "9007199254740993", "18446744073709551616", "9" * 308, "9" * 5000,
    "[" * 100_000, '{"a":' * 50, '"' + "k" * 20_000 + '"',
)  # fmt: skip
VALUES: tuple[Json, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 4.0, 4.5, 8, 9, 31, 32, 33, 64, 127, 128, 2**31 - 1, 2**31,
    2**53, 2**63, 2**64, 10**300, 1e300, -1e300, 5e-324, "", "4", "fp16", "torch.float16",
    "FLOAT16", "float8_e5m2", "int3_packed_u32", "int4_packed_u32\n", "bitnest-package-v1",
    "qwen2", "../R.bin", "/etc/R.bin", "C:\\R.bin", "a\x00b", "\x1b[31m", "[bold]", "[/]", "\u202e",
    "x" * 5000, [], {}, [1], [2, 2], [0, 128], [3072, 8192], {"K": 3}, {"": {}},
    {"shape": [2, 128], "groups": 1, "has_bias": False},
)  # fmt: skip
KEYS = (
    "", ".", "a..b", "a/b", "~0", "a b", "\x00", "\u202e", "[/red]", "format", "format_version",
    "quantized_modules", "layers", "params", "results", "shape", "nbits", "num_groups", "groups",
    "K", "lm_head", "model.layers.0", "model.layers.0.mlp.down_proj",
    "model.layers.0.mlp.experts.up_proj_list.0", "k" * 600,
)  # fmt: skip

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def mutate_bytes(rng: Random, data: bytes) -> bytes:
    """Change, insert, drop, double or cut some bytes."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((0, 1, 1, 2, 8, 100, 5000)))
    match rng.randrange(5):
        case 0:
            return data[:start] + rng.randbytes(end - start) + data[end:]
        case 1:
            return data[:start] + rng.choice(BYTES) + data[start:]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:end] + data[start:end] + data[end:]
    return data[:start]


def mutate_tokens(rng: Random, data: bytes) -> bytes:
    """Replace, insert, drop, double or swap tokens."""
    text = data.decode("utf-8", "replace")
    near = rng.randrange(len(text) + 1)
    tokens = [match.span() for match in _TOKEN.finditer(text, near, near + 2000)]
    if not tokens:
        return data + rng.choice(TOKENS).encode()
    (start, end), (other, other_end) = sorted((rng.choice(tokens), rng.choice(tokens)))
    match rng.randrange(5):
        case 0:
            changed = text[:start] + rng.choice(TOKENS) + text[end:]
        case 1:
            changed = text[:start] + rng.choice(TOKENS) + text[start:]
        case 2:
            changed = text[:start] + text[end:]
        case 3:
            changed = text[:other_end] + text[start:other_end] + text[other_end:]
        case _ if other >= end:
            middle = text[end:other]
            changed = text[:start] + text[other:other_end] + middle + text[start:end]
            changed += text[other_end:]
        case _:
            changed = text[:start] + text[start:end] * 2 + text[end:]
    return changed.encode("utf-8")


def mutate_values(rng: Random, data: bytes) -> bytes:
    """Change, drop, add, copy, rename or swap values; bytes where it is no JSON any more."""
    try:
        document: Json = json.loads(data)
    except ValueError:
        return mutate_bytes(rng, data)
    (parent, key), (other, other_key) = _place(rng, document), _place(rng, document)
    if parent is None or other is None:
        return json.dumps(rng.choice(VALUES)).encode()
    match rng.randrange(8):
        case 0:
            parent[key] = rng.choice(VALUES)
        case 1:
            alike = [value for value in VALUES if type(value) is type(parent[key])]
            parent[key] = rng.choice(alike or VALUES)
        case 2 if isinstance(parent[key], int):
            parent[key] += rng.choice((-1, 1, parent[key], 32))
        case 2:
            parent[key] = [parent[key]]
        case 3:
            del parent[key]
        case 4 if isinstance(parent, dict):
            parent[rng.choice(KEYS)] = rng.choice(VALUES)
        case 5 if isinstance(parent, dict):
            parent[rng.choice(KEYS)] = parent.pop(key)
        case 6:
            other[other_key] = json.loads(json.dumps(parent[key]))
        case _:
            parent[key], other[other_key] = (
                json.loads(json.dumps(value)) for value in (other[other_key], parent[key])
            )
    return json.dumps(
        document, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1))
    ).encode("utf-8", "replace")


def _place(rng: Random, document: Json) -> tuple[Json, Json]:
    """Draw a container and a key or an index in it, as likely a shallow as a deep one."""
    parent, key, inside = None, None, document
    while isinstance(inside, dict | list) and inside and (parent is None or rng.random() < 0.6):
        parent = inside
        key = rng.choice(list(inside)) if isinstance(inside, dict) else rng.randrange(len(inside))
        inside = parent[key]
    return parent, key


MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    mutate_bytes,
    mutate_tokens,
    mutate_values,
)


def mutant(seed: int, index: int) -> tuple[str, bytes]:
    """Return the example's name and the bytes of one mutant, the same ones at every call."""
    rng = Random(f"{seed}:{index}")
    name = rng.choice(list(EXAMPLES))
    data = EXAMPLES[name]
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        data = MUTATIONS[index % len(MUTATIONS)](rng, data)
    return name, data


def examine(name: str, data: bytes) -> Report:
    """Check a manifest, and write what was found in every form; the output is thrown away."""
    checked = check_manifest(data, name)
    report = Report(
        path=name,
        folder="",
        level="manifest",
        format=checked.format,
        manifest=checked.manifest,
        findings=tuple(checked.findings),
    )
    json.loads(reports_json([report], [], version="0"))
    json.loads(reports_sarif([report], [], version="0"))
    reports_text([report], [], strict=False, width=100, colour=True).encode("utf-8")
    if checked.manifest is not None and worst(report.findings) != "error":
        inspection = inspect_manifest(checked.manifest)
        json.loads(inspection_json(name, inspection))
        inspection_text(name, inspection, width=100, colour=True).encode("utf-8")
    return report


@dataclass(kw_only=True)
class Figures:
    """What a run found."""

    mutants: int = 0
    clean: int = 0
    structured: int = 0
    """Mutants whose structure held, so that the rules ran."""
    findings: Counter[str] = field(default_factory=Counter)
    """Mutants by requirement id that they break."""
    worst_seconds: float = 0.0
    worst_index: int = 0
    growth: int = 0
    """Bytes by which the peak of memory grew after the first tenth."""
    failures: list[str] = field(default_factory=list)


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what needs more processor time."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(count: int, seed: int, seconds: float, mebibytes: int) -> Figures:
    """Examine `count` mutants and return the figures; failures name the index to repeat."""
    figures = Figures()
    peak = 0
    for index in range(count):
        if index == count // 10:
            peak = peak_memory()
        name, data = mutant(seed, index)
        start = time.process_time()
        try:
            with bounded(seconds):
                report = examine(name, data)
        except Exception:
            last = traceback.format_exc(limit=-3)[:2000]
            figures.failures.append(f"mutant {index} of {name}, seed {seed}:\n{last}")
            continue
        spent = time.process_time() - start
        if spent > figures.worst_seconds:
            figures.worst_seconds, figures.worst_index = spent, index
        figures.mutants += 1
        figures.clean += not report.findings
        figures.structured += report.manifest is not None
        figures.findings.update({found.requirement for found in report.findings})
    figures.growth = peak_memory() - peak
    if figures.growth > mebibytes * 2**20:
        figures.failures.append(f"memory grew by {figures.growth / 2**20:.0f} MiB")
    return figures


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--only", type=int, metavar="INDEX")
    parser.add_argument("--save", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.only is not None:
        name, data = mutant(given.seed, given.only)
        if given.save:
            given.save.write_bytes(data)
        report = examine(name, data)
        print(reports_text([report], [], strict=False, width=100, colour=False))
        return 0
    figures = run(given.count, given.seed, given.seconds, given.mebibytes)
    print(f"{figures.mutants:,} mutants, seed {given.seed}: {figures.clean:,} without findings,")
    print(f"{figures.structured:,} with a sound structure")
    print(f"slowest: {figures.worst_seconds:.3f} s (mutant {figures.worst_index})")
    print(f"memory growth after the first tenth: {figures.growth / 2**20:.1f} MiB")
    for requirement, mutants in sorted(figures.findings.items()):
        print(f"{mutants:8,}  {requirement}")
    for failure in figures.failures[:20]:
        print(failure, file=sys.stderr)
    print(f"{len(figures.failures)} failures", file=sys.stderr)
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main())
