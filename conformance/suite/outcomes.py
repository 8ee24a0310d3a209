"""How a test of the suite ends, where it does not pass."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    _Skipped = Exception
    _Exit = Exception
else:
    _Skipped = pytest.skip.Exception  # a class, though pytest's types do not say so
    _Exit = pytest.exit.Exception


class Violation(AssertionError):  # noqa: N818  # it names a fact about the backend
    """The backend's answer breaks a requirement: the result `fail`.

    `requirements` names what is broken where that is not what the test is about, such as an
    output of the wrong dtype; empty means the requirements that the test states.
    """

    def __init__(self, message: str, *requirements: str) -> None:
        super().__init__(message)
        self.requirements = requirements
        self.case = ""
        """The inputs in words; set by the property that drew them."""


class BackendError(Exception):
    """The backend raised on a valid call: the result `error`. Its exception is the cause.

    `final` says that it is of no use to look for a smaller case that ends so.
    """

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final
        self.case = ""
        """The inputs in words, as a Violation has them."""


class Terminated(_Exit, KeyboardInterrupt):
    """The run was ended by SIGTERM: no test, and no backend, may take that for a failure.

    An interrupt as well: pytest takes any other exception in a module of tests for a fault of it.
    """


class NotClaimed(_Skipped):
    """The backend does not claim what the test is about: the result `not-claimed`."""
