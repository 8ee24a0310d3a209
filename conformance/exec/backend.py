"""The backend `exec:COMMAND`: operations that an adapter computes in a process of its own."""

import functools
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

from nibblespec.conformance.exec.claims import Identity, identity
from nibblespec.conformance.exec.faults import AdapterError, CallError
from nibblespec.conformance.exec.messages import (
    Call,
    Line,
    check_forms,
    check_id,
    error_of,
    hello,
    operation_call,
    read_line,
    split,
)
from nibblespec.conformance.exec.process import Process
from nibblespec.conformance.suite.backends import EXEC_SECONDS, BackendNotFoundError
from nibblespec.conformance.suite.outcomes import BackendError
from nibblespec.conformance.suite.signatures import Forms, output_forms, returns_tuple
from nibblespec.spec.exec_protocol import LINE_BYTES
from nibblespec.spec.operations import OPERATIONS, Array, Capabilities

MOST_IN_A_ROW = 3
"""Calls of one operation that may break the protocol, one after the other."""
MOST_OF_ALL = 6
"""The same for calls of any operations."""


class Adapter:
    """One process of an adapter that has answered `hello`.

    Raises AdapterError where it does not, OSError where it cannot be started.
    """

    def __init__(self, words: list[str], seconds: float) -> None:
        self._process = Process(words)
        self._seconds = seconds
        self._number = 0
        self.identity: Identity = self.ask(hello(), lambda line: (identity(line), 0))[0]

    def ask(
        self, call: Call, check: Callable[[Line], tuple[Any, int]], seconds: float | None = None
    ) -> tuple[Any, bytearray]:
        """Make a call; `check` reads the answer's line and says how many bytes follow.

        Raises CallError where the adapter answers that it cannot, AdapterError where it breaks the
        protocol. After the latter, and after any other exception, the process is no more.
        """
        number = self._number
        self._number += 1
        try:
            self._process.begin(call.message(number), seconds or self._seconds)
            line = read_line(self._process.line(LINE_BYTES))
            check_id(line, number, self._process.more)
            said = error_of(line)
            if said is None:
                found, size = check(line)
                return found, self._process.exactly(size)
        except AdapterError as error:
            error.said = error.said or self._process.said()
            self._process.kill()
            raise
        except BaseException:
            # Not only errors: after Ctrl-C the answer would be taken for that of the next call.
            self._process.kill()
            raise
        raise CallError(said)

    def arrays(self, call: Call, forms: Forms, requirement: str = "EXEC-FORM") -> tuple[Array, ...]:
        """Make a call that is answered with arrays of these forms."""

        def check(line: Line) -> tuple[None, int]:
            return None, check_forms(line, forms, requirement)

        return split(self.ask(call, check)[1], forms)

    def end(self) -> tuple[int | None, bytes]:
        """End it; return the exit status (None: it had to be killed) and what it wrote unasked."""
        status = self._process.end()
        return status, self._process.unasked()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()


class ExecBackend:
    """A backend whose operations are calls to a program.

    Raises BackendNotFoundError where the program cannot be started or does not say what it
    claims. `close` ends the program.
    """

    def __init__(self, command: str, seconds: float = EXEC_SECONDS) -> None:
        self._words = command_words(command)
        self._seconds = seconds
        self._adapter: Adapter | None = None
        self._broken: Counter[str] = Counter()
        """Calls of each operation, and of all (""), that broke the protocol since a good one."""
        self._last: dict[str, str] = {}
        try:
            self._adapter = Adapter(self._words, seconds)
        except AdapterError as error:
            raise BackendNotFoundError(f"exec:{command}: hello: {error}") from error
        except CallError as error:
            raise BackendNotFoundError(f"exec:{command}: hello is answered: {error}") from error
        except OSError as error:
            raise BackendNotFoundError(f"exec:{command}: {_not_started(error)}") from error
        self._identity = self._adapter.identity

    @property
    def name(self) -> str:
        """Name, as the adapter gives it."""
        return self._identity.name

    @property
    def version(self) -> str:
        """Version, as the adapter gives it."""
        return self._identity.version

    @property
    def device(self) -> str:
        """What it runs on, as the adapter gives it."""
        return self._identity.device

    def capabilities(self) -> Capabilities:
        """Say what the adapter claims."""
        return self._identity.capabilities

    def close(self) -> None:
        """End the adapter; a later call starts it again."""
        if self._adapter is not None:
            self._adapter.end()
            self._adapter = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an operation that the adapter claims."""
        if name not in OPERATIONS or name not in self._identity.capabilities.operations:
            raise AttributeError(name)
        return functools.partial(self._call, name)

    def _call(self, operation: str, *arguments: Any) -> Array | tuple[Array, ...]:  # noqa: ANN401  # as the operation has them
        """Make a call. Raises BackendError, which is final where the adapter broke the protocol."""
        call = operation_call(operation, arguments)
        forms = output_forms(operation, arguments)
        try:
            self._stop_after_many(operation)
            outputs = self._started().arrays(call, forms)
        except CallError as error:
            self._count(operation)
            advice = "what it does not compute, it must not claim (EXEC-CLAIMS)"
            raise BackendError(
                f"{operation}: the adapter answers with the error: {error}\n  {advice}"
            ) from None
        except AdapterError as error:
            self._adapter = None
            self._count(operation, error)
            raise BackendError(f"{operation}: {error}", final=True) from None
        except OSError as error:
            raise BackendError(f"{operation}: {_not_started(error)}", final=True) from None
        except BaseException:
            self._adapter = None
            raise
        self._count(operation)
        return outputs if returns_tuple(operation) else outputs[0]

    def _started(self) -> Adapter:
        if self._adapter is None:
            self._adapter = Adapter(self._words, self._seconds)
            if self._adapter.identity != self._identity:
                self._adapter.kill()
                what = "started again, it says something else about itself"
                raise AdapterError("EXEC-HELLO", what)
        return self._adapter

    def _count(self, operation: str, error: AdapterError | None = None) -> None:
        """Count a call that broke the protocol; begin anew with one that did not."""
        for one in (operation, ""):
            self._broken[one] = self._broken[one] + 1 if error else 0
            self._last[one] = f"{operation}: {error}"

    def _stop_after_many(self, operation: str) -> None:
        """Raise BackendError where the adapter has broken the protocol too often to go on."""
        for one, most in ((operation, MOST_IN_A_ROW), ("", MOST_OF_ALL)):
            if self._broken[one] >= most:
                what = "the operation" if one else "the adapter"
                raise BackendError(
                    f"{operation} was not called, since {what} broke the protocol {most} times"
                    f" in a row, at last so: {self._last[one]}",
                    final=True,
                )


def command_words(command: str) -> list[str]:
    """Split a command into words. Raises BackendNotFoundError where it is none."""
    if os.name != "posix":
        raise BackendNotFoundError("exec: programs are started on POSIX systems only")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BackendNotFoundError(
            f"exec:{command}: cannot be split into words: {error}"
        ) from error
    if not words:
        raise BackendNotFoundError("exec: expected a command, such as exec:node adapter.mjs")
    if shutil.which(words[0]) is None:
        hint = "is it on PATH, and may it be executed?"
        raise BackendNotFoundError(f"exec:{command}: no program {words[0]!r}: {hint}")
    return words


def _not_started(error: OSError) -> str:
    return f"the adapter cannot be started: {error.strerror or error}"
