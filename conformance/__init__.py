"""Is it right? Artifacts (files someone produced) and backends (code someone wrote)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibblespec.conformance.artifacts.findings import Finding
    from nibblespec.conformance.artifacts.validate import InputError, validate

__all__ = ["Finding", "InputError", "validate"]


def __getattr__(name: str) -> object:
    """Import the validator on first use: the suite does without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nibblespec.conformance.artifacts import findings, validate  # noqa: PLC0415

    return getattr(findings if name == "Finding" else validate, name)
