"""An adapter of all operations: the reference behind the protocol, read with a code of its own."""

import json
import sys
from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.reference import backend
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module

from tests.vector_program import ORDER

Line = dict[str, Any]


def array(given: Line) -> Any:  # noqa: ANN401  # an array of any dtype
    """Read an array of a call from standard input."""
    data = sys.stdin.buffer.read(given["bytes"])
    dtype = getattr(ml_dtypes, given["dtype"], None) or given["dtype"]
    return np.frombuffer(data, np.uint8).view(dtype).reshape(given["shape"])


def answer(line: Line, arrays: Line) -> tuple[Line, bytes]:
    """Return the line and the payload that a call is answered with."""
    call = line["call"]
    if call == "hello":
        said = {"protocol": 1, "name": "reference", "version": "1", "device": "cpu"}
        return {**said, "capabilities": asdict(backend.capabilities())}, b""
    if call == "echo":
        results = tuple(arrays.values())
    elif call in ORDER:
        given = {**line, **arrays}
        if "module" in given:
            given["module"] = Module.model_validate(given["module"])
        found = getattr(backend, call)(*(given.get(name) for name in ORDER[call]))
        results = found if isinstance(found, tuple) else (found,)
    else:
        return {"error": f"{call}: not implemented"}, b""
    described = [{"dtype": one.dtype.name, "shape": one.shape} for one in results]
    payload = b"".join(one.tobytes() for one in results)
    return {"arrays": described, "payload": len(payload)}, payload


def main() -> None:
    """Answer calls until standard input ends."""
    while text := sys.stdin.buffer.readline():
        line = json.loads(text)
        arrays = {given["name"]: array(given) for given in line.pop("arrays")}
        found, payload = answer(line, arrays)
        sys.stdout.buffer.write(json.dumps({"id": line["id"], **found}).encode() + b"\n" + payload)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
