"""Triton's interpreter, adapted for a launch: in less time, and a product's bits by its factors.

It looks through all of Triton's language for what to replace, not once a launch but for every call
of a function from a kernel, which takes longer than most of these functions do; it makes a table
of all dtypes for every load and cast; and it computes every sum and product of whole numbers a
second time, to find overflows that it then says nothing of, unless it debugs. All that is done
once here, with the same results.

It leaves tl.dot to a matrix library, which on some processors adds up the last rows of a tile
in another order than the first ones. Matrix units do not, so each element is a product by itself
here.

And Triton 3.6 takes an array of one element for a number, such as for the end of a loop, which is
an error since NumPy 2.5. What the installed version does not have is left alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_dtypes: dict[str, Any] = {}


@contextmanager
def adapted() -> Iterator[None]:
    """Let the interpreter be as this module says, for one launch."""
    builder = interpreter.interpreter_builder
    plain = [(*place, getattr(*place)) for place in _ADAPTED if hasattr(*place)]
    options = builder.options
    for owner, name, function in plain:
        setattr(owner, name, _ADAPTED[owner, name](function))
    if hasattr(options, "sanitize_overflow"):
        builder.options = replace(options, sanitize_overflow=options.debug)
    try:
        yield
    finally:
        builder.options = options
        for owner, name, function in plain:
            setattr(owner, name, function)


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


def _by_element(create_dot: Callable[..., Any]) -> Callable[..., Any]:
    """Multiply each row of float32 by each column on its own, all of them in the same order."""

    def product(builder: Any, a: Any, b: Any, sums: Any, *rest: Any) -> Any:  # noqa: ANN401  # Triton has no types
        if not a.data.dtype == b.data.dtype == np.float32:
            return create_dot(builder, a, b, sums, *rest)
        columns = np.ascontiguousarray(b.data.swapaxes(-1, -2))
        each = a.data[..., :, None, None, :] @ columns[..., None, :, :, None]
        return interpreter.TensorHandle(each[..., 0, 0] + sums.data, sums.dtype.scalar)

    return product


def _with_numbers(patch_tensor: Callable[..., None]) -> Callable[..., None]:
    """Patch tensors so that one element is a number, whatever its array's shape."""

    def patch(tensor: Any, scope: Any) -> None:  # noqa: ANN401  # Triton's class and its scope
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda one: int(one.handle.data.item()))

    return patch


_ADAPTED = {
    (interpreter, "_patch_lang"): _patched_once,
    (interpreter, "_patch_lang_tensor"): _with_numbers,
    (interpreter, "_get_np_dtype"): _remembered,
    (interpreter.InterpreterBuilder, "create_dot"): _by_element,
}
"""Names in Triton's module and in its classes, and what adapts the function that is there."""
