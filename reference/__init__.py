"""The NumPy reference: every operation, bit-exact, written to be read.

`backend` is the reference as a backend of the conformance suite; the modules are named by subject.
"""

from nibblespec.reference.backend import backend

__all__ = ["backend"]
