"""The self-check of the protocol, `nibblespec exec-check`: not whether values are right."""

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from nibblespec.conformance.exec.backend import Adapter, command_words
from nibblespec.conformance.exec.faults import AdapterError, CallError
from nibblespec.conformance.exec.messages import DTYPES, Call, echo, little, operation_call
from nibblespec.conformance.exec.steps import ORDER, SELECT
from nibblespec.conformance.suite.calls import sample_calls
from nibblespec.conformance.suite.outcomes import NotClaimed
from nibblespec.conformance.suite.signatures import output_forms
from nibblespec.conformance.terminal import visible
from nibblespec.spec.exec_protocol import AXES, ECHO
from nibblespec.spec.operations import OPERATIONS, Array, Capabilities

LARGE = 1 << 20
"""Bytes that no pipe holds: they are read while the adapter writes, or never."""
AFTER_ECHO = (
    "the steps after echo were left out; where bytes change, or do not all arrive, a stream is open"
    " as text or has a utf8 layer"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the check: what it is about, and what is wrong, if anything is."""

    name: str
    says: str
    requirement: str = ""
    """What is broken; empty where nothing is."""


def check_adapter(command: str, seconds: float) -> Iterator[Step]:
    """Check what spec/exec_protocol.md demands of an adapter, step by step.

    It ends with a failed `hello` or `echo`: what follows would fail of the same.
    Raises BackendNotFoundError where `command` is none, OSError where it cannot be started.
    """
    words = command_words(command)
    try:
        adapter: Adapter | None = Adapter(words, seconds)
    except AdapterError as error:
        yield Step("hello", str(error), error.requirement)
        return
    except CallError as error:
        yield Step("hello", f"hello is answered with the error: {error}", "EXEC-HELLO")
        return
    assert adapter is not None
    said = adapter.identity
    operations = said.capabilities.operations
    count = f"{len(operations)} of {len(OPERATIONS)} operations"
    yield Step("hello", f"{said.name} {said.version} on {said.device}, claims {count}")
    for name, check in _checks(said.capabilities):
        try:
            adapter = adapter or Adapter(words, seconds)
            yield Step(name, check(adapter))
        except AdapterError as error:
            if name == ECHO:
                yield Step(name, f"{error}\n  {AFTER_ECHO}", error.requirement)
                return
            yield Step(name, str(error), error.requirement)
            adapter = None
    try:
        yield _end(adapter or Adapter(words, seconds))
    except AdapterError as error:
        yield Step("end", str(error), error.requirement)


def advice(command: str, steps: Sequence[Step]) -> str:
    """Return the next thing to do, after all steps."""
    broken = [step for step in steps if step.requirement]
    if broken:
        return (
            f"mend {broken[0].name} ({broken[0].requirement}: nibblespec explain "
            f"{broken[0].requirement}), then run exec-check again"
        )
    claimed = {step.name for step in steps}
    there = [name for name in ORDER if name in claimed]
    missing = [name for name in ORDER if name not in claimed]
    if not there:
        return f"implement {ORDER[0]} and claim it in the answer to hello"
    run = f"nibblespec conformance --backend {shlex.quote(f'exec:{command}')}"
    if not missing:
        return f"{run} tests the values"
    return f"{run} -k {SELECT[there[-1]]} tests the values; once it passes, go on with {missing[0]}"


def _checks(claims: Capabilities) -> Iterator[tuple[str, Callable[[Adapter], str]]]:
    yield ECHO, _echo
    yield "unknown keys", _unknown_keys
    yield "unknown call", _unknown_call
    for operation in claims.operations:
        yield operation, functools.partial(_operation, operation, claims)


def _echo(adapter: Adapter) -> str:
    calls = _echoed()
    for arrays in calls:
        _ask_back(adapter, echo(arrays), arrays)
    return f"{len(calls)} calls came back, every dtype and every byte"


def _echoed() -> list[list[Array]]:
    """Return arrays of all dtypes and bytes, of no elements and of many, alone and together."""
    every = np.arange(256, dtype=np.uint8)
    shapes = ((), (0,), (3,), (2, 0, 3), (1,) * AXES)
    return [
        [],
        [every],
        [np.frombuffer(b"\r\n\n\r\r\n\x1a\x00" * 9, np.uint8)],
        *([every.view(dtype).reshape(2, -1)] for dtype in DTYPES.values()),
        *([np.zeros(shape, np.uint8)] for shape in shapes),
        [every, every.view(np.int32), np.zeros(0, np.float32), every[:5]],
        [np.resize(every, LARGE)],
    ]


def _ask_back(adapter: Adapter, call: Call, arrays: Sequence[Array]) -> None:
    forms = tuple((array.dtype, array.shape) for array in arrays)
    try:
        found = adapter.arrays(call, forms, "EXEC-ECHO")
    except CallError as error:
        adapter.kill()
        raise AdapterError("EXEC-ECHO", f"echo is answered with the error: {error}") from None
    for place, (given, back) in enumerate(zip(arrays, found, strict=True)):
        if little(given) != little(back):
            sent, came = little(given), little(back)
            wrong = next(i for i, (a, b) in enumerate(zip(sent, came, strict=True)) if a != b)
            what = (
                f"array {place}, {given.dtype.name} {list(given.shape)}: byte {wrong} went in as"
                f" 0x{sent[wrong]:02x} and came back as 0x{came[wrong]:02x}"
            )
            adapter.kill()
            raise AdapterError("EXEC-ECHO", what)


def _unknown_keys(adapter: Adapter) -> str:
    array = np.arange(6, dtype=np.int8)
    call = replace(echo([array]), scalars={"seed": 7, "note": "of a later version"})
    try:
        _ask_back(adapter, call, [array])
    except AdapterError as error:
        what = f"a call with the keys `seed` and `note`: {error.found}"
        raise AdapterError("EXEC-UNKNOWN-KEYS", what, error.said) from None
    return "are left alone"


def _unknown_call(adapter: Adapter) -> str:
    arrays = [np.arange(1000, dtype=np.int32)]
    call = replace(echo(arrays), name="no_such_operation")
    try:
        adapter.arrays(call, ())
    except CallError as error:
        _ask_back(adapter, echo(arrays), arrays)
        return f"is answered with an error: {error}"
    except AdapterError as error:
        what = f"the call no_such_operation: {error.found}"
        raise AdapterError("EXEC-ERROR", what, error.said) from None
    adapter.kill()
    raise AdapterError("EXEC-ERROR", "the call no_such_operation is answered with a result")


def _operation(operation: str, claims: Capabilities, adapter: Adapter) -> str:
    try:
        calls = sample_calls(operation, claims)
    except NotClaimed as nothing:
        adapter.kill()
        raise AdapterError("EXEC-CLAIMS", f"it is claimed for nothing: {nothing}") from None
    tried: dict[str, None] = {}  # a set in order
    for arguments in calls:
        forms = output_forms(operation, arguments)
        tried[" and ".join(dtype.name for dtype, _ in forms)] = None
        try:
            adapter.arrays(operation_call(operation, arguments), forms)
        except CallError as error:
            adapter.kill()
            what = f"it is claimed, and answered with the error: {error}"
            raise AdapterError("EXEC-CLAIMS", what) from None
    return f"{len(calls)} calls are answered in the right form ({', '.join(tried)})"


def _end(adapter: Adapter) -> Step:
    status, unasked = adapter.end()
    if unasked:
        start = visible(unasked[:60].decode("utf-8", "replace"))
        error = AdapterError("EXEC-ONCE", f"after the last answer it wrote more: '{start}'")
    elif status is None:
        error = AdapterError("EXEC-END", "it did not end when standard input did, and was killed")
    elif status != 0:
        error = AdapterError("EXEC-END", f"at the end of standard input it ended with {status}")
    else:
        return Step("end", "ends with standard input")
    return Step("end", str(error), error.requirement)
