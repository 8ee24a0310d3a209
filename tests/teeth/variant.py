"""A variant is a correct backend that computes otherwise than the reference, or claims less."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from nibblespec.reference.backend import ReferenceBackend
from nibblespec.spec.operations import Backend, Capabilities


@dataclass(frozen=True, slots=True)
class Variant:
    """A backend that the suite has to accept."""

    name: str
    what: str
    """What it does, in a line."""
    backend: Backend
    operations: tuple[str, ...]
    """Whose tests are run."""


def computing(
    name: str,
    what: str,
    reference: ReferenceBackend | None = None,
    **operations: Callable[..., Any],
) -> Variant:
    """Make a variant of a reference, the canonical one by default, that replaces operations."""
    base = reference or ReferenceBackend()
    return Variant(
        name, what, _backend(name, base, base.capabilities(), operations), (*operations,)
    )


def claiming(
    name: str,
    what: str,
    capabilities: Capabilities,
    operations: tuple[str, ...] | None = None,
    **replaced: Callable[..., Any],
) -> Variant:
    """Make a variant that claims what `capabilities` say; all its operations are tested."""
    base = ReferenceBackend(
        dashq_rounding=capabilities.dashq_rounding,
        linear_weight_rounding=capabilities.linear_weight_rounding,
        prefill_f16_from=capabilities.prefill_f16_from,
    )
    backend = _backend(name, base, capabilities, replaced)
    return Variant(name, what, backend, operations or capabilities.operations)


def _backend(
    name: str,
    base: ReferenceBackend,
    capabilities: Capabilities,
    replaced: dict[str, Callable[..., Any]],
) -> Backend:
    operations = {one: getattr(base, one) for one in capabilities.operations} | replaced
    return cast(
        Backend,
        SimpleNamespace(
            name=name,
            version=base.version,
            device=base.device,
            capabilities=lambda: capabilities,
            **operations,
        ),
    )
