"""What an adapter says about itself: the answer to `hello` as Capabilities."""

import json
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from nibblespec.conformance.exec.faults import AdapterError
from nibblespec.conformance.exec.messages import Line, whole
from nibblespec.conformance.suite.backends import complaints
from nibblespec.conformance.terminal import visible
from nibblespec.spec.exec_protocol import PROTOCOL
from nibblespec.spec.operations import Capabilities

LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The answer to `hello`."""

    name: str
    version: str
    device: str
    capabilities: Capabilities


def identity(line: Line) -> Identity:
    """Read the answer to `hello`. Raises AdapterError."""
    if "protocol" not in line:
        raise AdapterError("EXEC-PROTOCOL", f"expected `protocol` {PROTOCOL}, found none")
    if whole(line["protocol"]) != PROTOCOL:
        found = _shown(line["protocol"])
        raise AdapterError("EXEC-PROTOCOL", f"expected `protocol` {PROTOCOL}, found {found}")
    texts = {key: line.get(key) for key in ("name", "version", "device")}
    for key, value in texts.items():
        if not (isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()):
            what = f"`{key}`: expected a text of 1 to {LONGEST} printable characters"
            raise AdapterError("EXEC-HELLO", f"{what}, found {_found(line, key)}")
    if not isinstance(line.get("capabilities"), dict):
        what = f"`capabilities`: expected an object, found {_found(line, 'capabilities')}"
        raise AdapterError("EXEC-HELLO", what)
    name, version, device = (str(value) for value in texts.values())
    return Identity(
        name=name, version=version, device=device, capabilities=_capabilities(line["capabilities"])
    )


def _capabilities(claimed: Line) -> Capabilities:
    known = [field.name for field in fields(Capabilities)]
    for key in claimed:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"they are {', '.join(known)}"
            raise AdapterError("EXEC-CLAIMS", f"no capability is named {_shown(key)}; {hint}")
    if "operations" not in claimed:
        raise AdapterError("EXEC-CLAIMS", "`capabilities` lacks the key `operations`")
    values: dict[str, Any] = {  # of any type, until the complaints have looked at them
        key: tuple(value) if isinstance(value, list) else value for key, value in claimed.items()
    }
    found = Capabilities(**values)
    for complaint in complaints(found):
        raise AdapterError("EXEC-CLAIMS", visible(complaint, 300))
    return found


def _found(line: Line, key: str) -> str:
    return _shown(line[key]) if key in line else "none"


def _shown(value: object) -> str:
    return visible(json.dumps(value), 100)
