"""Backends for tests of the suite: the reference, with something changed or left out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from nibblespec.reference import backend as reference
from nibblespec.spec.operations import Capabilities

Operation = Callable[..., Any]


@dataclass(frozen=True)
class Changed:
    """The reference with some operations replaced and some claims changed."""

    operations: dict[str, Operation] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    name: str = "changed"
    version: str = "0"
    device: str = "cpu"

    def capabilities(self) -> Capabilities:
        """Claim what the reference claims, and what is changed."""
        return replace(reference.capabilities(), **self.claims)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # an operation, whatever its type
        operations = self.__dict__["operations"]
        return operations[name] if name in operations else getattr(reference, name)


@dataclass(frozen=True)
class Recorder:
    """The reference under other claims; keeps the arguments of every call."""

    claims: Capabilities
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    name: str = "recorder"
    version: str = "0"
    device: str = "cpu"

    def capabilities(self) -> Capabilities:
        """Claim what was given."""
        return self.claims

    def __getattr__(self, name: str) -> Operation:
        function: Operation = getattr(reference, name)

        def call(*arguments: Any) -> Any:  # noqa: ANN401  # as the operation has it
            self.calls.append((name, arguments))
            return function(*arguments)

        return call
