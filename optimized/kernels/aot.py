"""Compile every kernel ahead of time, for GPUs that are not there, and look at what came out.

    TRITON_INTERPRET=0 python -m nibblespec.optimized.kernels.aot [--arch 90] [NAME ...]

Each module of kernels lists its `SPECIALIZATIONS`: every kernel with the argument types and the
launch configuration that it is used with. For each of them and each architecture, the PTX keeps
its promises (`ptx`) and ptxas needs no stack, which is where spilled registers go.
"""

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module

import triton
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.ptx import Promises, broken_promises
from triton.backends.compiler import GPUTarget

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities that are compiled for: A100, H100/H200, B200."""

MODULES: tuple[str, ...] = ("dashq_specializations", "bitnest_specializations")
"""Modules of this package that list SPECIALIZATIONS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialization:
    """One kernel as it is launched: types, constants, configuration, and what it promises."""

    name: str
    kernel: triton.runtime.KernelInterface
    types: Mapping[str, str]
    """Of the parameters that are no constants: `*i32`, `*bf16`, `i32`, …"""
    constants: Mapping[str, object]
    promises: Promises
    odd: frozenset[str] = field(default=frozenset())
    """Parameters that are not known to be divisible by 16; pointers and sizes otherwise are."""
    num_warps: int = 4
    num_stages: int = 2
    archs: tuple[int, ...] = ARCHITECTURES
    """Compute capabilities that launch it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What came out for one architecture."""

    name: str
    arch: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    broken: list[str]
    """Broken promises, in words; empty where all is well."""


def specializations() -> Iterator[Specialization]:
    """Yield the specializations of all modules."""
    for module in MODULES:
        yield from import_module(f"nibblespec.optimized.kernels.{module}").SPECIALIZATIONS


def compile_for(specialization: Specialization, arch: int) -> Compiled:
    """Compile a specialization for compute capability `arch` and check what it promises."""
    ptx, cubin = compile_ptx(specialization, arch)
    registers, stack, shared = resources(cubin)
    broken = broken_promises(ptx, specialization.promises)
    if stack:
        broken.append(f"a stack of {stack} bytes: registers are spilled")
    return Compiled(
        name=specialization.name,
        arch=arch,
        registers=registers,
        stack_bytes=stack,
        shared_bytes=shared,
        broken=broken,
    )


def compile_ptx(specialization: Specialization, arch: int) -> tuple[str, bytes]:
    """Compile a specialization for compute capability `arch`: PTX and machine code."""
    if INTERPRETED:
        raise RuntimeError("kernels are interpreted here; set TRITON_INTERPRET=0 to compile them")
    names = specialization.kernel.arg_names
    signature = {name: specialization.types.get(name, "constexpr") for name in names}
    divisible = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if name in specialization.types
        and name not in specialization.odd
        and specialization.types[name] != "fp32"
    }
    source = triton.compiler.ASTSource(
        specialization.kernel, signature, dict(specialization.constants), divisible
    )
    options = {
        "num_warps": specialization.num_warps,
        "num_stages": specialization.num_stages,
        "enable_fp_fusion": not specialization.promises.exact,
    }
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    return compiled.asm["ptx"], compiled.asm["cubin"]


def resources(cubin: bytes) -> tuple[int, int, int]:
    """Return registers per thread, stack bytes per thread and static shared bytes of a kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", report)
    if not found:
        raise RuntimeError(f"cuobjdump: expected REG, STACK and SHARED, found {report!r}")
    registers, stack, shared = map(int, found.groups())
    return registers, stack, shared


def compile_named(name: str, arch: int) -> Compiled:
    """Compile the specialization of a name for compute capability `arch`."""
    return compile_for(next(one for one in specializations() if one.name == name), arch)


def compile_all(
    names: Collection[str], archs: Collection[int], processes: int
) -> Iterator[Compiled]:
    """Compile the named specializations (none named: all) for each architecture that uses them."""
    work = [
        (one.name, arch)
        for one in specializations()
        if not names or one.name in names
        for arch in one.archs
        if arch in archs
    ]
    # Not forked: the compiler has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(compile_named, *zip(*work, strict=True), chunksize=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print one JSON line per result, return 1 if any broke a promise."""
    parser = argparse.ArgumentParser(description="Compile kernels ahead of time.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="specializations; none: all")
    parser.add_argument("--arch", type=int, action="append", help="compute capability, e.g. 90")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="compile side by side"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {one.name for one in specializations()}
    if unknown:
        parser.error(f"unknown names: {', '.join(sorted(unknown))}")
    broken = False
    for compiled in compile_all(options.names, options.arch or ARCHITECTURES, options.processes):
        print(json.dumps(asdict(compiled)), flush=True)
        broken = broken or bool(compiled.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
