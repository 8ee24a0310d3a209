"""What Triton's interpreter does again and again, done once: the same results in less time.

It looks through all of Triton's language for what to replace, not once a launch but for every call
of a function from a kernel, which takes longer than most of these functions do; it makes a table
of all dtypes for every load and cast; and it computes every sum and product of whole numbers a
second time, to find overflows that it then says nothing of, unless it debugs. What the installed
version does not have is left alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_dtypes: dict[str, Any] = {}


@contextmanager
def shortened() -> Iterator[None]:
    """Let the interpreter do once a launch what it otherwise repeats; for one launch."""
    builder = interpreter.interpreter_builder
    plain = {name: getattr(interpreter, name) for name in _SHORTENED if hasattr(interpreter, name)}
    options = builder.options
    for name, function in plain.items():
        setattr(interpreter, name, _SHORTENED[name](function))
    if hasattr(options, "sanitize_overflow"):
        builder.options = replace(options, sanitize_overflow=options.debug)
    try:
        yield
    finally:
        builder.options = options
        for name, function in plain.items():
            setattr(interpreter, name, function)


def _patched_once(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Patch the language for one function of those that see the same modules of it."""
    scopes: dict[tuple[bool, ...], Any] = {}

    def patch_once(function: Any) -> Any:  # noqa: ANN401  # a kernel's function and Triton's scope
        seen = function.__globals__.values()
        modules = tuple(any(value is module for value in seen) for module in (tl, tl.core))
        if modules not in scopes:
            scopes[modules] = patch(function)
        return scopes[modules]

    return patch_once


def _remembered(numpy_dtype: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Remember NumPy's dtypes by the names of Triton's, which cannot all be hashed."""

    def remembered(dtype: Any) -> Any:  # noqa: ANN401  # a dtype of Triton and one of NumPy
        if dtype.name not in _dtypes:
            _dtypes[dtype.name] = numpy_dtype(dtype)
        return _dtypes[dtype.name]

    return remembered


_SHORTENED = {"_patch_lang": _patched_once, "_get_np_dtype": _remembered}
"""Names in Triton's module, and what makes a shorter function of what is there."""
