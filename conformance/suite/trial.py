"""How one test of the suite is run."""

from dataclasses import dataclass

from nibblespec.spec.operations import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """On what, how long and from which seed a test is run."""

    capabilities: Capabilities
    max_examples: int
    seed: str
    shrink: bool
