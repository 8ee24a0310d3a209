"""Mutate the files of the example checkpoints; level tensors must end in findings on every one.

    python -m tests.fuzz_checkpoints --count 50000 --seed 1

Each mutant is an example checkpoint with one file changed: a safetensors file (its header as bytes
or as JSON, its length, its data), the index, config.json, the manifest or the list of checksums. It
is validated as a folder, and what was found is written in every output form. Prints figures; exits
with 1 where a mutant raises, needs more than `--seconds` of processor time, or memory grows by more
than `--mebibytes` after the first tenth. `--only INDEX` repeats one mutant and writes what was
found in it.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from nibblespec.conformance.artifacts.bitnest.checksums import CHECKSUMS
from nibblespec.conformance.artifacts.output.render_json import reports_json
from nibblespec.conformance.artifacts.output.render_sarif import reports_sarif
from nibblespec.conformance.artifacts.output.render_text import reports_text
from nibblespec.conformance.artifacts.validate import Report, check_path
from nibblespec.conformance.examples.files import INDEX
from nibblespec.conformance.examples.models import BITNEST, DASHQ, SHARDS
from nibblespec.conformance.examples.write import example_files, write_files

from tests.fuzz_manifests import MUTATIONS, bounded, mutate_bytes
from tests.peak_memory import peak_memory

TARGETS: tuple[tuple[str, str], ...] = (
    (DASHQ, SHARDS[0]),
    (DASHQ, SHARDS[1]),
    (DASHQ, SHARDS[1]),
    (DASHQ, INDEX),
    (DASHQ, INDEX),
    (DASHQ, "config.json"),
    (DASHQ, "dashq_config.json"),
    (BITNEST, "aux.safetensors"),
    (BITNEST, "aux.safetensors"),
    (BITNEST, "config.json"),
    (BITNEST, "meta.json"),
    (BITNEST, "planes.safetensors"),
    (BITNEST, CHECKSUMS),
    (BITNEST, CHECKSUMS),
)
"""Format and file; what is listed twice is drawn twice as often."""

LENGTHS = (0, 1, 7, 8, 2**16, 99_999_999, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1)

SPECIAL = (0x00, 0x7C, 0x7E, 0x7F, 0x80, 0x88, 0xFC, 0xFF)
"""Bytes that make numbers zeros, infinities and NaNs, or codes all the same."""

NAMES = (
    b"", b".", b"..", b"../meta.json", b"/dev/zero", b"./config.json", b"rotation", b"a//b", b"\\x",
    b"config.json\r", b"caf\xc3\xa9", b"\xff", b"\x00", b"x" * 300, b"x/" * 3000,
    CHECKSUMS.encode(),
)  # fmt: skip
"""Names for a list of checksums."""

ORIGINALS: dict[str, dict[str, bytes]] = {
    family: {name: data for name, data in example_files(family).items() if isinstance(data, bytes)}
    for family in (DASHQ, BITNEST)
}


def mutate_document(rng: Random, data: bytes) -> bytes:
    """Change a JSON document by one kind of mutation; another could not read what it leaves."""
    mutate = rng.choice(MUTATIONS)
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = mutate(rng, data)
    return data


def mutate_header(rng: Random, data: bytes) -> bytes:
    """Change a safetensors file: its header as JSON, its length field, its end, or any bytes."""
    length = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    match rng.randrange(8):
        case 0:
            return rng.choice(LENGTHS).to_bytes(8, "little") + data[8:]
        case 1:
            return data[: rng.randrange(len(data))]
        case 2:
            return data + rng.randbytes(rng.choice((1, 8, 1000)))
        case 3:
            return mutate_bytes(rng, data[: 8 + length]) + rest
        case 4:
            return data[: 8 + length] + mutate_data(rng, rest)
    changed = mutate_document(rng, header)
    if rng.random() < 0.5:
        changed += b" " * (-len(changed) % 8)
    return len(changed).to_bytes(8, "little") + changed + rest


def mutate_data(rng: Random, data: bytes) -> bytes:
    """Change some bytes of tensors, and not how many there are."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 20))):
        start = rng.randrange(len(data))
        count = min(len(data) - start, rng.choice((1, 2, 4, 64, 5000)))
        special = bytes([rng.choice(SPECIAL)]) * count
        changed[start : start + count] = rng.choice((special, rng.randbytes(count)))
    return bytes(changed)


def mutate_checksums(rng: Random, data: bytes) -> bytes:
    """Change, drop, double or insert lines of a list of checksums."""
    lines = data.split(b"\n")
    index = rng.randrange(len(lines))
    digest, separator, name = lines[index][:64], lines[index][64:66], lines[index][66:]
    match rng.randrange(7):
        case 0:
            lines[index] = digest + separator + rng.choice(NAMES)
        case 1:
            lines[index] = digest + rng.choice((b"", b" ", b" *", b"\t", b"   ")) + name
        case 2:
            lines[index] = rng.choice((digest.upper(), digest[:-1], digest + b"0")) + b"  " + name
        case 3:
            del lines[index]
        case 4:
            lines[index:index] = [lines[index]] * rng.choice((1, 1, 2000))
        case 5:
            lines[index] = rng.choice((b"", b"#", b"\\", b"\xef\xbb\xbf")) + lines[index]
        case _:
            return mutate_bytes(rng, data)
    return rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)


def mutant(seed: int, index: int) -> tuple[str, str, bytes]:
    """Return format, file and contents of one mutant, the same ones at every call."""
    rng = Random(f"{seed}:{index}")
    family, name = rng.choice(TARGETS)
    data = ORIGINALS[family][name]
    if name.endswith(".safetensors"):
        return family, name, mutate_header(rng, data)
    mutate = mutate_checksums if name == CHECKSUMS else mutate_document
    return family, name, mutate(rng, data)


def examine(folder: Path, seed: int, index: int) -> Report:
    """Validate one mutant in its folder, which is put right again."""
    family, name, data = mutant(seed, index)
    path = folder / family / name
    path.write_bytes(data)
    try:
        report = check_path(str(folder / family), "tensors")
    finally:
        path.write_bytes(ORIGINALS[family][name])
    json.loads(reports_json([report], [], version="0"))
    json.loads(reports_sarif([report], [], version="0"))
    reports_text([report], [], strict=False, width=100, colour=True).encode("utf-8")
    return report


@dataclass(kw_only=True)
class Figures:
    """What a run found."""

    mutants: int = 0
    clean: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    """Mutants by requirement id that they break."""
    worst_seconds: float = 0.0
    worst_index: int = 0
    growth: int = 0
    """Bytes by which the peak of memory grew after the first tenth."""
    failures: list[str] = field(default_factory=list)


def run(folder: Path, count: int, seed: int, seconds: float, mebibytes: int) -> Figures:
    """Examine `count` mutants and return the figures; failures name the index to repeat."""
    figures = Figures()
    peak = 0
    for index in range(count):
        if index == count // 10:
            peak = peak_memory()
        start = time.process_time()
        try:
            with bounded(seconds):
                report = examine(folder, seed, index)
        except Exception:
            last = traceback.format_exc(limit=-3)[:2000]
            figures.failures.append(f"mutant {index}, seed {seed}:\n{last}")
            continue
        spent = time.process_time() - start
        if spent > figures.worst_seconds:
            figures.worst_seconds, figures.worst_index = spent, index
        figures.mutants += 1
        figures.clean += not report.findings
        figures.findings.update({found.requirement for found in report.findings})
    figures.growth = peak_memory() - peak
    if figures.growth > mebibytes * 2**20:
        figures.failures.append(f"memory grew by {figures.growth / 2**20:.0f} MiB")
    return figures


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--only", type=int, metavar="INDEX")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for family, files in ORIGINALS.items():
            (folder / family).mkdir()
            write_files(folder / family, dict(files))
        if given.only is not None:
            report = examine(folder, given.seed, given.only)
            print(reports_text([report], [], strict=False, width=100, colour=False))
            return 0
        figures = run(folder, given.count, given.seed, given.seconds, given.mebibytes)
    print(f"{figures.mutants:,} mutants, seed {given.seed}: {figures.clean:,} without findings")
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
