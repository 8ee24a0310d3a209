"""The capability gate: the only way from a test to an operation of the backend.

`operation` returns what the backend claims, wrapped so that every call keeps the contract of
`nibblespec.spec.operations`; what it does not claim ends the test as `not-claimed`. `require` does
the same for the finer capabilities, and `claimed` filters what may be drawn.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from nibblespec.conformance.suite.outcomes import BackendError, NotClaimed, Terminated, Violation
from nibblespec.conformance.suite.signatures import Forms, output_forms, returns_tuple
from nibblespec.spec.operations import Backend, Capabilities
from numpy.typing import NDArray

Value = TypeVar("Value")
Operation = Callable[..., Any]
Array = NDArray[Any]


def operation(backend: Backend, capabilities: Capabilities, name: str) -> Operation:
    """Return the backend's operation, its calls checked.

    Raises NotClaimed where the backend does not claim the operation. One that is claimed is there:
    `backends.claims` has seen to it.
    """
    require(name in capabilities.operations, f"operation {name}")
    return checked(name, getattr(backend, name))


def require(claim: bool, what: str) -> None:
    """Raise NotClaimed, naming `what`, unless the backend claims it."""
    if not claim:
        raise NotClaimed(f"{what} is not claimed")


def claimed(
    candidates: Iterable[Value], claims: tuple[Value, ...] | None, what: str
) -> tuple[Value, ...]:
    """Return the candidates that the backend claims; `claims` None claims all.

    Raises NotClaimed, naming `what`, where that leaves none.
    """
    kept = tuple(value for value in candidates if claims is None or value in claims)
    require(bool(kept), f"{what} this test can use")
    return kept


def checked(name: str, function: Operation) -> Operation:
    """Wrap an operation: read-only inputs in, unchanged inputs and fresh outputs back.

    The wrapper raises BackendError where the operation raises, and Violation where it breaks
    NUM-INPUT-UNCHANGED, NUM-OUTPUT-FORM or NUM-OUTPUT-FRESH.
    """

    def call(*arguments: object) -> object:
        given = tuple(_read_only(argument) for argument in arguments)
        forms = output_forms(name, arguments)
        _fill_free_memory(forms)
        answer = _call(name, function, given)
        outputs = _outputs(name, answer, forms)
        _expect_unchanged(name, given, arguments)
        _expect_fresh(name, outputs, given)
        return answer

    return call


def _read_only(argument: object) -> object:
    """Copy an array, C-contiguous and read-only, so that nothing else aliases it."""
    if not isinstance(argument, np.ndarray):
        return argument
    if argument.dtype.kind not in "iu" and not np.isfinite(argument).all():
        raise ValueError("the suite was about to make an invalid call: an input is not finite")
    copy = np.array(argument, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def _fill_free_memory(forms: Forms) -> None:
    """Leave rubbish (NaN in every float dtype) where the allocator is likely to look next.

    An element that is never written then cannot be right because of what was there before.
    """
    for dtype, shape in forms:
        size = int(np.prod(shape)) * dtype.itemsize
        rubbish = [np.full(size, 0xFF, np.uint8) for _ in range(2)]
        del rubbish


def _call(name: str, function: Operation, given: tuple[object, ...]) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a backend warns about is its own affair
        try:
            return function(*given)
        except (KeyboardInterrupt, Terminated, BackendError):
            raise
        # Not only Exception: a backend must not end the test by its own pytest.skip or exit.
        except BaseException as error:
            raise BackendError(f"{name} raised {type(error).__name__}: {error}") from error


def _outputs(name: str, answer: object, forms: Forms) -> tuple[Array, ...]:
    """Check number, type, dtype and shape of the outputs and return them as a tuple."""
    if returns_tuple(name):
        if not isinstance(answer, tuple) or len(answer) != len(forms):
            found = f"{len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
            raise Violation(
                f"{name}: expected a tuple of {len(forms)} arrays, found {found}",
                "NUM-OUTPUT-FORM",
            )
        outputs = answer
    else:
        outputs = (answer,)
    for place, (output, (dtype, shape)) in enumerate(zip(outputs, forms, strict=True)):
        which = f"{name}, output {place}" if len(forms) > 1 else name
        wanted = f"expected a NumPy array {dtype} {list(shape)}"
        if not isinstance(output, np.ndarray):
            found = type(output).__name__
            raise Violation(f"{which}: {wanted}, found {found}", "NUM-OUTPUT-FORM")
        if output.dtype != dtype or output.shape != shape:
            found = f"{output.dtype} {list(output.shape)}"
            raise Violation(f"{which}: {wanted}, found {found}", "NUM-OUTPUT-FORM")
    return outputs


def _expect_unchanged(name: str, given: tuple[object, ...], before: tuple[object, ...]) -> None:
    for place, (after, original) in enumerate(zip(given, before, strict=True)):
        if not (isinstance(after, np.ndarray) and isinstance(original, np.ndarray)):
            continue
        if after.tobytes() != original.tobytes():
            raise Violation(f"{name}: argument {place} was changed", "NUM-INPUT-UNCHANGED")


def _expect_fresh(name: str, outputs: tuple[Array, ...], given: tuple[object, ...]) -> None:
    arrays = [argument for argument in given if isinstance(argument, np.ndarray)]
    for place, output in enumerate(outputs):
        for other in (*arrays, *outputs[:place]):
            if output.size and other.size and np.may_share_memory(output, other):
                raise Violation(
                    f"{name}: output {place} shares memory with an argument or another output",
                    "NUM-OUTPUT-FRESH",
                )
