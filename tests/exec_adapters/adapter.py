"""An adapter that packs words, with the standard library alone, and what it can do wrong.

`python adapter.py` conforms; `python adapter.py NAME` has the fault NAME of `FAULTS`.
"""

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Answer = tuple[Line, bytes]
FAULTY_FROM = 4
"""The first call, counted from 0, that a fault of single calls is about."""

MUCH = 200_000
"""Bytes that no pipe holds."""

HELLO: Line = {
    "protocol": 1,
    "name": "words",
    "version": "1",
    "device": "cpu",
    "capabilities": {"operations": ["pack_words", "unpack_words"], "bit_widths": [3, 4]},
}


def main(fault: str) -> None:
    """Answer calls until standard input ends."""
    if fault == "floods-errors":
        print("x" * 200_000, file=sys.stderr, flush=True)
    while text := sys.stdin.buffer.readline():
        line = json.loads(text)
        if fault == "trips-over-unknown-keys" and set(line) - KNOWN_KEYS:
            sys.exit("unknown key")
        if line["payload"] > MUCH and fault == "stops-reading":
            time.sleep(60)
        if line["payload"] > MUCH and fault == "answers-before-it-reads":
            send({"id": line["id"], "error": "too much"})
            sys.stdin.buffer.read(line["payload"])
            continue
        size = line["payload"] - (fault == "reads-one-byte-less" and line["payload"] > 0)
        payload = sys.stdin.buffer.read(size)
        if fault == "reads-characters":
            sys.stdin.buffer.read(size - len(payload.decode("utf-8", "ignore")))
        found, bytes_ = answer(line, payload, fault)
        well = line["call"] == "echo" and fault.startswith("says-")
        (send if well else FAULTS.get(fault, send))({"id": line["id"], **found}, bytes_)
    if fault == "answers-twice-at-the-end":
        send({"id": line["id"], **found}, bytes_)
    if fault == "does-not-end":
        time.sleep(60)
    if fault == "ends-with-status-3":
        sys.exit(3)


KNOWN_KEYS = {"id", "call", "protocol", "nbits", "count", "arrays", "payload"}


def answer(line: Line, payload: bytes, fault: str) -> Answer:
    """Return what a call is answered with."""
    if line["call"] == "hello":
        return hello(fault), b""
    if line["call"] == "echo" and fault != "does-not-know-echo":
        echoed = [{"dtype": one["dtype"], "shape": one["shape"]} for one in line["arrays"]]
        if fault == "echoes-text":
            payload = payload.replace(b"\r\n", b"\n")
        if fault == "echoes-upside-down":
            payload = payload[::-1]
        return {"arrays": echoed, "payload": len(payload)}, payload
    if line["call"] == "pack_words":
        per_word = 32 // line["nbits"]
        words = [0] * -(-len(payload) // per_word)
        for place, code in enumerate(payload):
            words[place // per_word] |= code << (line["nbits"] * (place % per_word))
        return arrays("int32", [len(words)], struct.pack(f"<{len(words)}I", *words))
    if line["call"] == "unpack_words" and fault != "claims-what-it-lacks":
        per_word, mask = 32 // line["nbits"], 2 ** line["nbits"] - 1
        given = struct.unpack(f"<{len(payload) // 4}I", payload)
        codes = [
            (given[place // per_word] >> (line["nbits"] * (place % per_word))) & mask
            for place in range(line["count"])
        ]
        return arrays("uint8", [len(codes)], bytes(codes))
    if fault == "dies-at-an-unknown-call":
        raise ValueError(line["call"])
    if fault == "answers-unknown-calls":
        return {"arrays": []}, b""
    return {"error": f"{line['call']}: not implemented"}, b""


def hello(fault: str) -> Line:
    """Return the answer to hello, wrong in some faults."""
    said: Line = json.loads(json.dumps(HELLO))
    claims = said["capabilities"]
    if fault == "dies-at-hello":
        print("loading kernels", "no device found", sep="\n", file=sys.stderr)
        sys.exit(7)
    if fault == "speaks-another-version":
        said["protocol"] = 2
    if fault == "has-no-name":
        del said["name"]
    if fault == "claims-under-a-wrong-key":
        claims["bit_width"] = claims.pop("bit_widths")
    if fault == "claims-under-a-strange-key":
        claims["bits"] = claims.pop("bit_widths")
    if fault == "claims-an-unknown-operation":
        claims["operations"].append("pack_nibbles")
    if fault == "claims-another-type":
        claims["bit_widths"] = [True]
    if fault == "claims-other-widths":
        claims["bit_widths"] = [4]
    return said


def arrays(dtype: str, shape: list[int], payload: bytes) -> Answer:
    """Return an answer of one array."""
    return {"arrays": [{"dtype": dtype, "shape": shape}], "payload": len(payload)}, payload


def send(line: Line, payload: bytes = b"") -> None:
    """Write an answer as it should be."""
    write(json.dumps(line).encode() + b"\n" + payload)


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def from_some_call_on(fault: Callable[[Line, bytes], None]) -> Callable[[Line, bytes], None]:
    """Let the first calls be answered well."""

    def sometimes(line: Line, payload: bytes) -> None:
        (fault if line["id"] >= FAULTY_FROM else send)(line, payload)

    return sometimes


def crash(_line: Line, _payload: bytes) -> None:
    print("about to read a null pointer", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def half_a_line(line: Line, _payload: bytes) -> None:
    write(json.dumps(line).encode()[:12])
    time.sleep(60)


def half_a_line_and_ends(line: Line, _payload: bytes) -> None:
    write(json.dumps(line).encode()[:12])
    sys.exit(1)


def half_a_payload(line: Line, payload: bytes) -> None:
    write(json.dumps(line).encode() + b"\n" + payload[: len(payload) // 2])
    time.sleep(60)


def endless_line(_line: Line, _payload: bytes) -> None:
    while True:
        write(b"[" * 65_536)


def endless_errors(_line: Line, _payload: bytes) -> None:
    while True:
        print("warning: " + "x" * 1000, file=sys.stderr)


def log_first(line: Line, payload: bytes) -> None:
    write(b"warming up the kernel ...\n")
    send(line, payload)


def log_after(line: Line, payload: bytes) -> None:
    send(line, payload)
    write(b"done in 0.3 ms\n")


def twice(line: Line, payload: bytes) -> None:
    send(line, payload)
    send(line, payload)


def wait_and_answer(line: Line, payload: bytes) -> None:
    if "NOTED" in os.environ:  # tell the test who waits
        Path(os.environ["NOTED"]).write_text(f"{os.getpid()}\n", encoding="ascii")
    time.sleep(60)
    send(line, payload)


def unflushed(line: Line, payload: bytes) -> None:
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n" + payload)


def one_more_byte(line: Line, payload: bytes) -> None:
    send(line, payload + b"\0")


def text_mode(line: Line, payload: bytes) -> None:
    write(json.dumps(line).encode() + b"\n" + payload.replace(b"\n", b"\r\n") + b"\r\n")


def with_arrays(change: Callable[[Line], object]) -> Callable[[Line, bytes], None]:
    """Change what an answer says of its arrays."""

    def changed(line: Line, payload: bytes) -> None:
        if "arrays" in line:
            change(line)
        send(line, payload)

    return from_some_call_on(changed)


FAULTS: dict[str, Callable[[Line, bytes], None]] = {
    "never-answers": lambda _line, _payload: time.sleep(60),
    "never-flushes": unflushed,
    "fails-now-and-then": lambda line, payload: send(
        *((line, payload) if line["id"] % 50 < 49 else ({"id": line["id"], "error": "busy"},))
    ),
    "crashes-now-and-then": lambda line, payload: (
        send(line, payload) if line["id"] < 49 else sys.exit(5)
    ),
    "answers-late": from_some_call_on(wait_and_answer),
    "answers-twice": from_some_call_on(twice),
    "swaps-ids": from_some_call_on(
        lambda line, payload: send(line | {"id": line["id"] ^ 1}, payload)
    ),
    "gives-one-id-to-all": lambda line, payload: send(line | {"id": 0}, payload),
    "answers-without-id": from_some_call_on(
        lambda line, payload: send({key: line[key] for key in line if key != "id"}, payload)
    ),
    "crashes": from_some_call_on(crash),
    "ends-early": from_some_call_on(lambda *_: sys.exit(0)),
    "writes-half-a-line": from_some_call_on(half_a_line),
    "writes-half-a-line-and-ends": from_some_call_on(half_a_line_and_ends),
    "writes-half-a-payload": from_some_call_on(half_a_payload),
    "writes-one-byte-more": from_some_call_on(one_more_byte),
    "writes-an-endless-line": from_some_call_on(endless_line),
    "writes-endless-errors": from_some_call_on(endless_errors),
    "writes-garbage": from_some_call_on(lambda *_: write(bytes(range(256)))),
    "writes-deep-json": from_some_call_on(lambda *_: write(b'{"id":' + b"[" * 60_000 + b"\n")),
    "writes-text": text_mode,
    "translates-line-ends": lambda line, payload: write(
        (json.dumps(line).encode() + b"\n" + payload).replace(b"\n", b"\r\n")
    ),
    "logs-before-answers": from_some_call_on(log_first),
    "logs-after-answers": from_some_call_on(log_after),
    "logs-at-the-start": log_first,
    "says-another-dtype": with_arrays(lambda line: line["arrays"][0].update(dtype="int64")),
    "says-another-shape": with_arrays(lambda line: line["arrays"][0]["shape"].append(1)),
    "says-too-many-arrays": with_arrays(lambda line: line["arrays"].append(line["arrays"][0])),
    "says-no-arrays": with_arrays(lambda line: line.pop("arrays")),
    "says-a-huge-payload": with_arrays(lambda line: line.update(payload=2**50)),
    "says-a-huge-shape": with_arrays(lambda line: line["arrays"][0].update(shape=[2**40, 2**40])),
    "gives-a-number-for-an-error": from_some_call_on(
        lambda line, _payload: send({"id": line["id"], "error": 5})
    ),
}
"""What is wrong with the writing of answers; the other faults are in what is answered."""


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
