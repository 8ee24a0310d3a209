"""What an adapter can do wrong, each with the requirement it breaks and how to mend it."""

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "EXEC-STDOUT": "send logs to standard error: standard output is for answers alone",
    "EXEC-LINE": "write each answer as one JSON object on one line",
    "EXEC-ID": "copy `id` from the call into its answer",
    "EXEC-ONCE": "write one answer for each call",
    "EXEC-TIME": "flush standard output after each answer, and read exactly `payload` bytes after"
    " the line of a call; --exec-timeout SECONDS gives a slow adapter more time",
    "EXEC-FORM": "give `dtype` and `shape` of every result, in the order of the protocol's 2.3",
    "EXEC-PAYLOAD": "`payload` is the number of bytes of all arrays of the answer; write them right"
    " after the line feed, and nothing else, to a stream that is open as binary",
    "EXEC-ECHO": "answer echo with the arrays of the call, byte for byte; open standard input and"
    " output as binary",
    "EXEC-ERROR": "answer a call that fails with `id` and `error`, a text, and go on with the next",
    "EXEC-UNKNOWN-KEYS": "look keys up by name and leave alone those that you do not know",
    "EXEC-HELLO": "answer hello with protocol, name, version, device and capabilities"
    " (4 of the protocol)",
    "EXEC-PROTOCOL": "answer hello with the version that the call has in `protocol`",
    "EXEC-CLAIMS": "claim what is there, and no more, under the keys of the protocol's 4",
    "EXEC-ALIVE": "read calls in a loop until standard input ends; what it said last may tell why",
    "EXEC-END": "leave the loop at the end of standard input, with exit status 0",
}
"""How to mend what breaks each requirement of the protocol."""


class AdapterError(Exception):
    """The adapter broke the protocol; the process that did so is of no more use."""

    def __init__(self, requirement: str, found: str, said: str = "") -> None:
        super().__init__(found)
        self.requirement = requirement
        self.found = found
        self.said = said
        """The last lines of the adapter's standard error."""

    def __str__(self) -> str:
        """Say what was found, which requirement it breaks, how to mend it, what stderr had."""
        text = f"{self.found} ({self.requirement}): {ADVICE[self.requirement]}"
        said = self.said.replace("\n", "\n    ")
        return f"{text}\n  standard error ends with:\n    {said}" if said else text


class CallError(Exception):
    """The adapter answered a call with `error`; it is ready for the next one."""
