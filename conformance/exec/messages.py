"""Messages of the exec protocol: calls into bytes, lines into answers."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from nibblespec.conformance.exec.faults import AdapterError
from nibblespec.conformance.suite.signatures import DTYPES as FLOATS
from nibblespec.conformance.suite.signatures import Forms
from nibblespec.conformance.terminal import visible
from nibblespec.spec import json_strict
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.exec_protocol import ARGUMENTS, ECHO, HELLO, MODULE, PROTOCOL, SCALARS
from nibblespec.spec.operations import Array

DTYPES: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in ("uint8", "int8", "int32")},
    **FLOATS,
}

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call without its id: what its line says, and its arrays."""

    name: str
    scalars: Mapping[str, object]
    arrays: tuple[tuple[str, Array], ...]

    def message(self, number: int) -> bytes:
        """Return the call as it is sent."""
        stored = [little(array) for _, array in self.arrays]
        line = {
            "id": number,
            "call": self.name,
            **self.scalars,
            "arrays": [
                {
                    "name": name,
                    "dtype": array.dtype.name,
                    "shape": list(array.shape),
                    "bytes": len(bytes_),
                }
                for (name, array), bytes_ in zip(self.arrays, stored, strict=True)
            ],
            "payload": sum(map(len, stored)),
        }
        return b"".join((json.dumps(line, separators=(",", ":")).encode(), b"\n", *stored))


def hello() -> Call:
    """Return the first call to a process."""
    return Call(HELLO, {"protocol": PROTOCOL}, ())


def echo(arrays: Sequence[Array]) -> Call:
    """Return a call that asks for its arrays back."""
    return Call(ECHO, {}, tuple((f"a{place}", array) for place, array in enumerate(arrays)))


def operation_call(operation: str, arguments: Sequence[object]) -> Call:
    """Return the call of an operation; absent arrays are left out."""
    given = dict(zip(ARGUMENTS[operation], arguments, strict=True))
    scalars = {name: _scalar(given[name]) for name in SCALARS if name in given}
    arrays = tuple((name, one) for name, one in given.items() if isinstance(one, np.ndarray))
    return Call(operation, scalars, arrays)


def _scalar(value: object) -> object:
    if isinstance(value, Module):
        return {key: getattr(value, key) for key in MODULE}
    # NumPy's numbers are no JSON; plain ones stay as they are.
    return value.item() if isinstance(value, np.generic) else value


def little(array: Array) -> bytes:
    """Return the elements of a C-contiguous array, row-major and little-endian."""
    if sys.byteorder == "big":
        array = array.view(f"u{array.dtype.itemsize}").byteswap()
    return array.tobytes()


def array_of(payload: bytearray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return the array that little-endian bytes hold; it owns them."""
    numbers = np.frombuffer(payload, f"<u{dtype.itemsize}")
    if sys.byteorder == "big":
        numbers = numbers.astype(f"=u{dtype.itemsize}")
    return numbers.view(dtype).reshape(shape)


def size_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the bytes of an array."""
    return math.prod(shape) * dtype.itemsize


def read_line(line: bytes) -> Line:
    """Read the line of an answer as a JSON object. Raises AdapterError."""
    document = json_strict.parse(line)
    if isinstance(document.value, dict) and not document.problems:
        return document.value
    if not line.strip():
        # Where a payload is printed as a line, its line end is left for the next answer.
        raise AdapterError("EXEC-PAYLOAD", "expected a JSON object, found an empty line")
    start = visible(line.decode("utf-8", "replace"), 100)
    if line.lstrip().startswith(b"{"):
        wrong = document.problems[0].message if document.problems else "no object"
        raise AdapterError("EXEC-LINE", f"expected a JSON object, found '{start}': {wrong}")
    raise AdapterError("EXEC-STDOUT", f"expected a JSON object, found '{start}'")


def check_id(line: Line, number: int, more: Callable[[int], bool]) -> None:
    """Raise AdapterError unless a line answers the call of this number.

    `more` tells whether anything comes after a payload of so many bytes.
    """
    found = whole(line.get("id"))
    if found == number:
        return
    # After a second answer to an earlier call comes the answer to this one; otherwise this is it.
    if found is not None and 0 <= found < number and more(whole(line.get("payload", 0)) or 0):
        what = f"expected the answer to call {number}, found another answer to call {found}"
        raise AdapterError("EXEC-ONCE", what)
    shown = _shown(line["id"]) if "id" in line else "no `id`"
    raise AdapterError("EXEC-ID", f"expected the id {number}, found {shown}")


def error_of(line: Line) -> str | None:
    """Return what an answer says of a call that failed; None where it did not."""
    if "error" not in line:
        return None
    if not isinstance(line["error"], str):
        raise AdapterError("EXEC-ERROR", f"`error`: expected a text, found {_shown(line['error'])}")
    if "arrays" in line or _payload(line):
        raise AdapterError("EXEC-ERROR", "an answer has `error` and a result")
    return visible(line["error"], 400)


def check_forms(line: Line, forms: Forms, requirement: str = "EXEC-FORM") -> int:
    """Check what an answer says of its arrays, and return the bytes that follow.

    Raises AdapterError.
    """
    arrays = line.get("arrays")
    if not isinstance(arrays, list):
        found = _shown(arrays) if "arrays" in line else "none"
        raise AdapterError(requirement, f"`arrays`: expected an array, found {found}")
    if len(arrays) != len(forms):
        what = f"`arrays`: expected {len(forms)}, found {len(arrays)}"
        raise AdapterError(requirement, what)
    for place, (found, (dtype, shape)) in enumerate(zip(arrays, forms, strict=True)):
        given = found if isinstance(found, dict) else {}
        sizes = given.get("shape")
        axes = [whole(one) for one in sizes] if isinstance(sizes, list) else None
        if given.get("dtype") != dtype.name or axes != list(shape):
            what = f"expected {dtype.name} {list(shape)}, found {_form(found)}"
            raise AdapterError(requirement, f"array {place}: {what}")
    size = sum(size_of(dtype, shape) for dtype, shape in forms)
    if (announced := _payload(line)) != size:
        what = f"`payload`: expected {size:,} bytes for these arrays, found {announced:,}"
        raise AdapterError("EXEC-PAYLOAD", what)
    return size


def split(payload: bytearray, forms: Forms) -> tuple[Array, ...]:
    """Cut a payload into its arrays."""
    if len(forms) == 1:
        return (array_of(payload, *forms[0]),)
    arrays, begin = [], 0
    for dtype, shape in forms:
        end = begin + size_of(dtype, shape)
        arrays.append(array_of(payload[begin:end], dtype, shape))
        begin = end
    return tuple(arrays)


def _payload(line: Line) -> int:
    value = line.get("payload", 0)
    size = whole(value)
    if size is None or size < 0:
        raise AdapterError("EXEC-PAYLOAD", f"`payload`: expected a number, found {_shown(value)}")
    return size


def whole(value: object) -> int | None:
    """Return a JSON value as the integer that it is, 4.0 included; None where it is none."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def _form(found: object) -> str:
    if isinstance(found, dict) and {"dtype", "shape"} <= found.keys():
        return visible(f"{found['dtype']} {json.dumps(found['shape'])}", 100)
    return _shown(found)


def _shown(value: object) -> str:
    return visible(json.dumps(value), 100)
