"""Finding the backend under test by name."""

import functools
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import cast, get_args

from nibblespec.spec.operations import (
    OPERATIONS,
    Backend,
    Capabilities,
    DashqRounding,
    FloatDtype,
    LinearWeightRounding,
)

NAMES = {
    "reference": "nibblespec.reference:backend",
    "optimized": "nibblespec.optimized:backend",
    "torch": "nibblespec.optimized:torch_backend",
}
"""Backends that have a short name."""

SCALE_ZERO_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""dtypes of scales and zero points."""


class BackendNotFoundError(Exception):
    """The backend cannot be had, or says about itself what makes no sense."""


EXEC = "exec:"
"""What the name of a backend begins with that is a program of its own."""

EXEC_SECONDS = 30.0
"""How long such a program may take for an answer."""


def find_backend(name: str, exec_seconds: float = EXEC_SECONDS) -> Backend:
    """Return the backend that `name` stands for: a short name, module:attribute or exec:COMMAND.

    Raises BackendNotFoundError, saying what to do, where there is none or it is no backend.
    """
    if name.startswith(EXEC):
        # It needs the complaints below.
        from nibblespec.conformance.exec.backend import ExecBackend  # noqa: PLC0415

        return ExecBackend(name.removeprefix(EXEC), exec_seconds)
    location = NAMES.get(name, name)
    module_name, colon, attribute = location.partition(":")
    if not (module_name and colon and attribute):
        raise BackendNotFoundError(
            f"--backend: expected {', '.join(NAMES)}, module:attribute or exec:COMMAND, "
            f"found {name!r}"
        )
    try:
        # An attribute too may import: that of a package that loads its backends when asked.
        found: object = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise BackendNotFoundError(
            f"--backend {name}: {module_name} has no attribute {attribute} ({error})"
        ) from error
    except Exception as error:
        raise BackendNotFoundError(
            f"--backend {name}: cannot be imported: {type(error).__name__}: {error}"
            + _hint(location, error)
        ) from error
    return checked_backend(found, name)


def _hint(location: str, error: Exception) -> str:
    """Say what to install where a backend of this project lacks something."""
    if location.startswith("nibblespec.optimized") and isinstance(error, ImportError):
        return "; it is not installed: pip install 'nibblespec[optimized]'"
    return ""


def checked_backend(found: object, name: str) -> Backend:
    """Return the object as a backend; raise BackendNotFoundError where it is none."""
    for part in ("name", "version", "device"):
        if not isinstance(getattr(found, part, None), str):
            raise BackendNotFoundError(
                f"--backend {name}: expected an object with a string {part!r}, "
                f"found {getattr(found, part, 'none')!r}"
            )
    if not callable(getattr(found, "capabilities", None)):
        raise BackendNotFoundError(
            f"--backend {name}: expected a method capabilities(), found none"
        )
    return cast(Backend, found)


def claims(backend: Backend) -> Capabilities:
    """Ask the backend what it claims; raise BackendNotFoundError where the claim makes no sense."""
    try:
        found = backend.capabilities()
    except Exception as error:
        raise BackendNotFoundError(
            f"{backend.name}: capabilities() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Capabilities):
        raise BackendNotFoundError(
            f"{backend.name}: capabilities() is to return nibblespec.spec.operations.Capabilities, "
            f"found {type(found).__name__}"
        )
    for complaint in complaints(found):
        raise BackendNotFoundError(f"{backend.name}: {complaint}")
    for name in found.operations:
        if not callable(getattr(backend, name, None)):
            # A misspelt method would otherwise look like one that was never claimed.
            raise BackendNotFoundError(
                f"{backend.name}: {name} is claimed, but is no callable of it"
            )
    return found


def complaints(found: Capabilities) -> Iterator[str]:
    """Say what in a claim no test could be made of."""
    kinds: tuple[tuple[str, Sequence[object]], ...] = (
        ("operations", OPERATIONS),
        ("bit_widths", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("dtypes", get_args(FloatDtype)),
        ("scale_zero_dtypes", SCALE_ZERO_DTYPES),
    )
    for field, allowed in kinds:
        expected = f"some of {', '.join(map(str, allowed))}"
        fits: Callable[[object], bool] = functools.partial(_is_one_of, allowed)
        yield from _wrong(field, getattr(found, field), fits, expected)
    for field, multiple in (("group_sizes", 1), ("head_dims", 2), ("hadamard_orders", 1)):
        if getattr(found, field) is not None:
            expected = "positive even numbers" if multiple == 2 else "positive numbers"
            fits = functools.partial(_is_positive, multiple=multiple)
            yield from _wrong(field, getattr(found, field), fits, expected)
    for field, choices in (
        ("dashq_rounding", get_args(DashqRounding)),
        ("linear_weight_rounding", get_args(LinearWeightRounding)),
    ):
        if getattr(found, field) not in choices:
            expected = ", ".join(choices)
            yield f"{field} is {getattr(found, field)!r}, expected one of {expected}"
    for field in ("padded_inputs", "row_invariant_dashq_linear"):
        if not isinstance(getattr(found, field), bool):
            yield f"{field} is {getattr(found, field)!r}, expected True or False"
    first = found.prefill_f16_from
    if first is not None and not _is_positive(first):
        yield f"prefill_f16_from is {first!r}, expected None or a positive number of rows"


def _wrong(
    field: str, claimed: object, fits: Callable[[object], bool], expected: str
) -> Iterator[str]:
    """Complain of a claim that is no tuple, and of each of its values that does not fit."""
    if not isinstance(claimed, tuple | list):
        yield f"{field} is {claimed!r}, expected a tuple of {expected}"
        return
    for value in claimed:
        if not fits(value):
            yield f"{field} claims {value!r}, expected {expected}"


def _is_one_of(allowed: Sequence[object], value: object) -> bool:
    """Say whether a value is allowed, its type included: True and 1.0 are no bit widths."""
    return any(type(value) is type(one) and value == one for one in allowed)


def _is_positive(value: object, multiple: int = 1) -> bool:
    return type(value) is int and value >= 1 and value % multiple == 0
