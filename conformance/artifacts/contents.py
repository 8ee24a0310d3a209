"""The level `tensors`: the contents of a checkpoint's tensors, and the digests of its files.

Blocks are read and looked at by threads, which NumPy and hashlib let run side by side; what they
find is put together in the order of the files, so that every run says the same.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from nibblespec.conformance.artifacts.bitnest.checksums import (
    CHECKSUM_RULES,
    CHECKSUMS,
    Checksums,
    digest_of,
    read_checksums,
)
from nibblespec.conformance.artifacts.bitnest.contents import Tensors, bitnest_units
from nibblespec.conformance.artifacts.capped import MAX_OF_REQUIREMENT, capped, of_requirement
from nibblespec.conformance.artifacts.dashq.contents import dashq_units
from nibblespec.conformance.artifacts.findings import Finding, apply_rules
from nibblespec.conformance.artifacts.manifest import ManifestReport
from nibblespec.conformance.artifacts.reading.blocks import Run, Source, TensorBytes, find_source
from nibblespec.conformance.artifacts.reading.folder import changed
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header
from nibblespec.conformance.artifacts.scanning.facts import Facts, merge
from nibblespec.conformance.artifacts.scanning.units import Job, Unit, jobs_of, part_bytes, run_job
from nibblespec.conformance.artifacts.validate import Progress
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest

MOST_WORKERS = 16
"""Threads at most: each holds a few blocks in memory."""

TELL_SECONDS = 0.1

Found = tuple[Job, dict[str, Facts]]
Result = TypeVar("Result")


def check_contents(
    folder: Path,
    report: ManifestReport,
    headers: Mapping[str, Header],
    progress: Progress | None = None,
) -> list[Finding]:
    """Check the contents of a checkpoint's tensors, given its manifest and the headers.

    Implements the statements of both formats that are checked by tensors. Tensors that are not
    where or what the headers should say are left to the rules on headers.

    Raises OSError where a file cannot be read, or changes while it is read.
    """
    tensors = _tensors(folder, headers)
    checksums = read_checksums(folder) if _is_package(report) else None
    sources = [find_source(folder / name, name) for name in _to_digest(checksums)]
    run = Run()
    watch = _watch(run, _total(_units(report, tensors), sources), progress)
    with ThreadPoolExecutor(_workers()) as executor:
        try:
            digests = {source.file: executor.submit(digest_of, source, run) for source in sources}
            judged = _judge(executor, _units(report, tensors), run, watch)
            findings = list(capped(judged, MAX_OF_REQUIREMENT, of_requirement))
            actual = {file: _result(future, watch) for file, future in digests.items()}
        except BaseException:
            run.stop.set()
            executor.shutdown(cancel_futures=True)
            raise
    if checksums is not None:
        checked = apply_rules(CHECKSUM_RULES, replace(checksums, digests=actual), CHECKSUMS)
        findings += capped(checked, MAX_OF_REQUIREMENT, of_requirement)
    return findings


def _workers() -> int:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_WORKERS, count or 1)


def _is_package(report: ManifestReport) -> bool:
    return report.format is not None and report.format.id == "bitnest-package-v1"


def _to_digest(checksums: Checksums | None) -> list[str]:
    """Return the names of files to digest, the largest first, as it takes longest."""
    if checksums is None:
        return []
    path = checksums.path
    return sorted(checksums.present, key=lambda name: (-(path / name).stat().st_size, name))


def _units(report: ManifestReport, tensors: Tensors) -> Iterator[Unit]:
    """Yield what is to be looked at."""
    if isinstance(report.manifest, DashqManifest):
        by_name: dict[str, TensorBytes] = {}
        for (_, name), tensor in tensors.items():
            by_name.setdefault(name, tensor)
        yield from dashq_units(report.manifest, by_name)
    elif isinstance(report.manifest, BitnestManifest):
        yield from bitnest_units(report.manifest, tensors)


def _total(units: Iterable[Unit], sources: Iterable[Source]) -> int:
    """Return the bytes that will be read."""
    scanned = sum(part_bytes(part) * len(part.tensors) for unit in units for part in unit.parts)
    return scanned + sum(source.size for source in sources)


def _tensors(folder: Path, headers: Mapping[str, Header]) -> Tensors:
    """Return the tensors whose bytes are all there, and are those of no other, as they lie."""
    found: dict[tuple[str, str], TensorBytes] = {}
    for file, header in sorted(headers.items()):
        source = find_source(folder / file, file)
        if source.size != header.size:
            raise changed(source.path)
        entries = sorted(header.tensors.values(), key=lambda entry: (entry.begin, entry.end))
        starts = [*(entry.begin for entry in entries[1:]), header.size]
        covered = 0
        for entry, following in zip(entries, starts, strict=bool(entries)):
            alone = covered <= entry.begin <= entry.end <= following
            covered = max(covered, entry.end)
            if alone and header.data_start + entry.end <= header.size:
                found[file, entry.name] = TensorBytes(
                    entry=entry,
                    source=source,
                    begin=header.data_start + entry.begin,
                    size=entry.end - entry.begin,
                )
    return found


def _judge(
    executor: ThreadPoolExecutor, units: Iterable[Unit], run: Run, watch: Callable[[], None]
) -> Iterator[Finding]:
    """Scan units on all cores and yield the findings, in the order of the units."""
    jobs = (job for unit in units for job in jobs_of(unit))
    results = _in_order(executor, jobs, run, watch)
    for unit, group in groupby(results, key=lambda result: result[0].unit):
        facts: dict[str, Facts] = {}
        for _, found in group:
            for name, more in found.items():
                facts[name] = merge((facts[name], more)) if name in facts else more
        yield from unit.judge(facts)


def _in_order(
    executor: ThreadPoolExecutor, jobs: Iterator[Job], run: Run, watch: Callable[[], None]
) -> Iterator[Found]:
    """Run jobs on all workers, a few ahead, and yield their results in the order of the jobs."""
    ahead: deque[tuple[Job, Future[dict[str, Facts]]]] = deque()
    for job in jobs:
        ahead.append((job, executor.submit(run_job, job, run)))
        if len(ahead) > 2 * _workers():
            first, future = ahead.popleft()
            yield first, _result(future, watch)
    for first, future in ahead:
        yield first, _result(future, watch)


def _watch(run: Run, total: int, progress: Progress | None) -> Callable[[], None]:
    """Return what passes on how far the workers are."""
    done = 0

    def watch() -> None:
        nonlocal done
        while not run.read.empty():
            done += run.read.get_nowait()
        if progress is not None:
            progress(done, total)

    return watch


def _result(future: Future[Result], watch: Callable[[], None]) -> Result:
    """Wait for a result, and tell how far the workers are meanwhile. Raises what the job did."""
    while not wait((future,), timeout=TELL_SECONDS).done:
        watch()
    watch()
    return future.result()
