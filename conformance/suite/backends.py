"""Finding the backend under test by name."""

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


class BackendNotFoundError(Exception):
    """The backend cannot be had, or says about itself what makes no sense."""


def find_backend(name: str) -> Backend:
    """Return the backend that `name` stands for: a short name or `module:attribute`.

    Raises BackendNotFoundError, saying what to do, where there is none or it is no backend.
    """
    location = NAMES.get(name, name)
    module_name, colon, attribute = location.partition(":")
    if not (module_name and colon and attribute):
        raise BackendNotFoundError(
            f"--backend: expected {', '.join(NAMES)} or module:attribute, found {name!r}"
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
    for field, allowed in (
        ("operations", OPERATIONS),
        ("bit_widths", range(1, 9)),
        ("dtypes", get_args(FloatDtype)),
    ):
        for value in getattr(found, field):
            if value not in allowed:
                raise BackendNotFoundError(
                    f"{backend.name}: {field} claims {value!r}, "
                    f"expected some of {', '.join(map(str, allowed))}"
                )
    for field, kinds in (
        ("dashq_rounding", get_args(DashqRounding)),
        ("linear_weight_rounding", get_args(LinearWeightRounding)),
    ):
        if getattr(found, field) not in kinds:
            raise BackendNotFoundError(
                f"{backend.name}: {field} is {getattr(found, field)!r}, "
                f"expected one of {', '.join(kinds)}"
            )
    return found
