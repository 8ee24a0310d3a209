"""What is right: the normative text, the manifest models and the operations of a backend."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibblespec.spec.formats import ManifestError, read_manifest

__all__ = ["ManifestError", "read_manifest"]


def __getattr__(name: str) -> object:
    """Import the models on first use: most of the package does without them."""
    if name in __all__:
        from nibblespec.spec import formats  # noqa: PLC0415

        return getattr(formats, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
