"""Compiling the C++ kernels, once for a machine: on first use, into the user's cache.

A plain shared library, loaded with ctypes. Against torch.utils.cpp_extension: no ninja, no minute
of compiling PyTorch's headers, no tie to its C++ ABI; the kernels want pointers and sizes, and
threads, which PyTorch's C interface has.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent / "src"

FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # a contracted multiplication and addition rounds once instead of twice
    "-fno-math-errno",
    "-w",
)
"""Never -ffast-math or parts of it: they allow reciprocals, other orders, subnormals as zero."""

NATIVE: tuple[tuple[str, ...], ...] = (("-march=native",), ("-mcpu=native",), ())
"""What makes compilers use all that this processor has; the first that the compiler takes."""

TIMEOUT_SECONDS = 600


class BuildError(Exception):
    """The kernels cannot be compiled here; the message says why and what to do."""


def built_library(natives: Sequence[tuple[str, ...]] = NATIVE, cache: Path | None = None) -> Path:
    """Return the compiled library, from the cache or compiled now.

    The file's name has a hash of all that the code depends on, and one of its content: a library
    that is cut off would end the process that loads it. It is written under another name and
    renamed, so that processes may do this at the same time. Raises BuildError.
    """
    folder = cache_folder() if cache is None else cache
    fingerprint = _fingerprint(natives)
    try:
        for cached in folder.glob(f"{fingerprint}-*.so"):
            _expect_ours(cached)
            if cached.name == _name(fingerprint, cached):
                return cached
            cached.unlink(missing_ok=True)  # half of one
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
            product = Path(scratch) / "library.so"
            _compile(product, natives)
            target = folder / _name(fingerprint, product)
            product.replace(target)
    except OSError as error:
        raise BuildError(
            f"cannot write to the cache {folder} ({error}); set XDG_CACHE_HOME to a folder "
            f"that can be written to"
        ) from error
    _expect_ours(target)
    return target


def _name(fingerprint: str, library: Path) -> str:
    return f"{fingerprint}-{hashlib.sha256(library.read_bytes()).hexdigest()[:32]}.so"


def cache_folder() -> Path:
    """Return the folder of compiled kernels: $XDG_CACHE_HOME/nibblespec, ~/.cache by default.

    Raises BuildError for a user without a home, as containers have them.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    except RuntimeError as error:
        raise BuildError(f"{error}; set XDG_CACHE_HOME to a folder of your own") from error
    return root / "nibblespec" / "cpu-kernels"


def compiler() -> str:
    """Return the C++ compiler: $CXX, or the platform's."""
    named = os.environ.get("CXX", "")
    for candidate in [named] if named else ["c++", "g++", "clang++"]:
        found = shutil.which(candidate)
        if found:
            return found
    raise BuildError(
        f"no C++ compiler found ({named or 'c++, g++, clang++'}); install one, or name it in CXX"
    )


def _compile(product: Path, natives: Sequence[tuple[str, ...]]) -> None:
    program = compiler()
    said = ""
    for native in natives:
        command = [program, *FLAGS, *native, str(SOURCES / "library.cpp"), "-o", str(product)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{program} failed: {error}") from error
        if done.returncode == 0 and product.is_file():
            return
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
    raise BuildError(f"{program} cannot compile the CPU kernels: {said}")


def _fingerprint(natives: Sequence[tuple[str, ...]]) -> str:
    parts = [platform.system(), platform.machine(), _processor(), repr(FLAGS), repr(natives)]
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            parts += [source.name, source.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """Return what the processor can do, since code for another one may not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _expect_ours(library: Path) -> None:
    """Refuse a library that another user put or may put there: it is code that we are to run."""
    if not hasattr(os, "getuid"):
        return
    for path in (library, library.parent):
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise BuildError(
                f"{path} belongs to another user or can be written to by others; remove it, or "
                f"set XDG_CACHE_HOME to a folder of your own"
            )
