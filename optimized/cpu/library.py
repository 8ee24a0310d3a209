"""The compiled kernels: loading them, once, and calling them."""

import ctypes
import functools
import logging
import os
from pathlib import Path

import torch
from nibblespec.optimized.cpu.build import BuildError, built_library

SWITCH = "NIBBLESPEC_CPU_KERNELS"
"""Environment variable: "off" means plain PyTorch."""

logger = logging.getLogger("nibblespec.optimized")

_INT, _CODE, _POINTER, _FLOAT = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_float

SIGNATURES: dict[str, tuple[type, ...]] = {
    "dashq_reconstruct": (*[_POINTER] * 2, _CODE, *[_POINTER] * 2, _CODE, _POINTER),
    "dashq_linear": (
        *[_POINTER] * 2,
        *[_INT] * 2,
        _POINTER,
        _CODE,
        *[_POINTER] * 3,
        _CODE,
        _POINTER,
    ),
    "nested_reconstruct": (
        *[_INT] * 3,
        *[_POINTER] * 2,
        _CODE,
        _POINTER,
        _CODE,
        _POINTER,
    ),
    "nested_linear": (*[_INT] * 5, *[_POINTER] * 6, _CODE, _POINTER),
    "quantize_activations": (*[_INT] * 2, _CODE, *[_POINTER] * 3),
    "hadamard": (*[_INT] * 3, _CODE, *[_POINTER] * 2, _FLOAT, _CODE, _POINTER),
    "quantize_transformed": (*[_INT] * 4, _CODE, *[_POINTER] * 2, _FLOAT, *[_POINTER] * 2),
    "kv_quantize": (
        *[_INT] * 2,
        _CODE,
        *[_POINTER] * 2,
        *[_INT] * 2,
        *[_POINTER] * 3,
    ),
    "kv_attention": (*[_INT] * 7, *[_POINTER] * 8, _FLOAT, _CODE, _POINTER),
}
"""Argument types of the functions of library.cpp, without their prefix."""


class Library:
    """A loaded library: `call` by name, and what instructions it uses."""

    def __init__(self, path: Path) -> None:
        handle = ctypes.CDLL(str(path))
        self._functions = {}
        for name, types in SIGNATURES.items():
            function = getattr(handle, f"nibblespec_{name}", None)
            if function is None:
                raise OSError(f"{path}: has no function nibblespec_{name}; remove it")
            function.argtypes = types
            function.restype = ctypes.c_int32
            self._functions[name] = function
        handle.nibblespec_instructions.restype = ctypes.c_char_p
        self.instructions: str = handle.nibblespec_instructions().decode()
        handle.nibblespec_use_threads.argtypes = (ctypes.c_void_p,)
        handle.nibblespec_use_threads(_parallel_for())

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; raise MemoryError where it ran out of memory."""
        if self._functions[name](*arguments):
            raise MemoryError(f"{name}: out of memory")


@functools.cache
def library() -> Library | None:
    """Return the kernels for this machine, None where there are none: the log says why, once."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0"):
        return None
    try:
        return Library(built_library())
    except (BuildError, OSError) as error:
        logger.warning("CPU kernels are off, plain PyTorch is used instead (slower): %s", error)
        return None


def _parallel_for() -> int | None:
    """Return the address of PyTorch's parallel loop, so that its threads do the work.

    Without it the kernels run on the calling thread.
    """
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).is_file():
            function = getattr(ctypes.CDLL(str(folder / name)), "torch_parallel_for", None)
            return None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    return None
