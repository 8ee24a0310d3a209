"""The adapter's process: bytes in and out, within a limit of time and of size, and its end.

One thread, no blocking call: while bytes go in, what comes out is read, so that neither side can
wait for the other for ever.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence

from nibblespec.conformance.exec.faults import AdapterError
from nibblespec.conformance.exec.guard import Guard
from nibblespec.conformance.terminal import visible

CHUNK = 65_536
KEPT_OF_ERRORS = 16_384
SHOWN_LINES = 10
END_SECONDS = 5.0
"""How long an adapter may take to end after its standard input has."""
MORE_SECONDS = 1.0
"""How long to wait for an answer after one that was not asked for."""
MOST_SKIPPED = 1 << 24
"""Bytes of such an answer."""
_POLL_SECONDS = 0.25
"""How often to look whether a process that says nothing is still there."""


class Process:
    """A started adapter. Raises OSError where the program cannot be started."""

    def __init__(self, words: Sequence[str]) -> None:
        self._child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # Its own group: what it starts dies with it, and Ctrl-C is ours to pass on.
            start_new_session=True,
        )
        self._waiting = selectors.DefaultSelector()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._err = self._child.stderr.fileno()
        self._unsent = memoryview(b"")
        self._got, self._errors = bytearray(), bytearray()
        self._deadline, self._seconds = 0.0, 0.0
        try:
            for stream in (self._in, self._out, self._err):
                os.set_blocking(stream, False)
            self._waiting.register(self._out, selectors.EVENT_READ)
            self._waiting.register(self._err, selectors.EVENT_READ)
            self._guard = Guard(self._child.pid)
        except BaseException:
            self._kill()
            raise

    def begin(self, message: bytes, seconds: float) -> None:
        """Send a message; the answer has to be read whole within so many seconds from now."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        # An adapter may answer before it has read all of a call; it gets the rest all the same.
        self._unsent = memoryview(bytes(self._unsent) + message if self._unsent else message)
        self._send()

    def line(self, longest: int) -> bytes:
        """Return the next line, without its line feed."""
        looked = 0
        while (end := self._got.find(b"\n", looked)) < 0 and len(self._got) < longest:
            looked = len(self._got)
            if not self._step():
                raise self._silence("no answer", "half a line")
        if not 0 <= end < longest:
            start = visible(bytes(self._got[:60]).decode("utf-8", "replace"))
            found = f"a line of more than {longest:,} bytes, which begins with {start}"
            raise AdapterError("EXEC-LINE", found, self.said())
        found_line = bytes(self._got[:end])
        del self._got[: end + 1]
        return found_line

    def exactly(self, size: int) -> bytearray:
        """Return the next `size` bytes."""
        while len(self._got) < size:
            if not self._step():
                come = len(self._got)
                what = f"{come:,} of {size:,} bytes of payload"
                raise self._silence(what, what, requirement="EXEC-PAYLOAD")
        if len(self._got) == size:
            found, self._got = self._got, bytearray()
        else:
            found = self._got[:size]
            del self._got[:size]
        return found

    def more(self, size: int) -> bool:
        """Tell whether, within a second, anything comes after the next `size` bytes."""
        self._deadline = min(self._deadline, time.monotonic() + MORE_SECONDS)
        while 0 <= size < MOST_SKIPPED and len(self._got) <= size and self._step():
            pass
        return 0 <= size < len(self._got)

    def unasked(self) -> bytes:
        """Return what has come beyond the answers that were read, of a process that has ended."""
        return bytes(self._got)

    def said(self) -> str:
        """Return the last lines of standard error, made safe to print."""
        for _ in range(16):  # a pipe holds no more than that; one that is filled for ever is left
            self._read(self._err)
        lines = bytes(self._errors).decode("utf-8", "replace").splitlines()
        return "\n".join(visible(line) for line in lines[-SHOWN_LINES:])

    def end(self) -> int | None:
        """End standard input and return the exit status; None where it had to be killed."""
        self._close_input()
        self._seconds, self._deadline = END_SECONDS, time.monotonic() + END_SECONDS
        while self._child.poll() is None and time.monotonic() < self._deadline:
            # What it still writes is read, so that it does not wait for us.
            if not self._step():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(max(0.0, self._deadline - time.monotonic()))
            del self._got[CHUNK:]
        status = self._child.poll()
        self._read(self._out)
        self.kill()
        return status

    def kill(self) -> None:
        """Kill the process and all that it started; harmless where it has ended."""
        self._guard.dismiss()
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._waiting.close()
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert stream is not None
            stream.close()

    def _step(self) -> bool:
        """Wait for something to happen; False where nothing more can, or the time is over."""
        left = self._deadline - time.monotonic()
        if left <= 0 or self._out not in self._waiting.get_map():
            return False
        events = self._waiting.select(min(left, _POLL_SECONDS))
        for key, _ in events:
            if key.fd == self._in:
                self._send()
            else:
                self._read(key.fd)
        if events or self._child.poll() is None:
            return True
        # It has ended, and whatever it started keeps its output open: that is nobody's answer.
        self._waiting.unregister(self._out)
        return False

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._in, self._unsent[: 16 * CHUNK]) :]
        except BlockingIOError:
            if self._in not in self._waiting.get_map():
                self._waiting.register(self._in, selectors.EVENT_WRITE)
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")  # that it is gone shows when it is read from
        if self._in in self._waiting.get_map():
            self._waiting.unregister(self._in)

    def _read(self, stream: int) -> None:
        """Read what is there, once."""
        if stream not in self._waiting.get_map():
            return
        try:
            read = os.read(stream, 16 * CHUNK if stream == self._out else CHUNK)
        except BlockingIOError:
            return
        if not read:
            self._waiting.unregister(stream)
        elif stream == self._out:
            self._got += read
        else:
            self._errors += read
            del self._errors[:-KEPT_OF_ERRORS]

    def _close_input(self) -> None:
        if self._in in self._waiting.get_map():
            self._waiting.unregister(self._in)
        assert self._child.stdin is not None
        self._child.stdin.close()

    def _silence(self, nothing: str, part: str, requirement: str = "EXEC-LINE") -> AdapterError:
        """Say why no more came: the time is over, or the adapter has gone."""
        got = bytes(self._got[:60]).decode("utf-8", "replace")
        found = f"{part}, '{visible(got)}'," if requirement == "EXEC-LINE" and got else nothing
        if self._out in self._waiting.get_map():
            unread = f", and {len(self._unsent):,} bytes of the call were not read"
            found = f"{found} within {self._seconds:g} s{unread if self._unsent else ''}"
            return AdapterError("EXEC-TIME", found, self.said())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        said = self.said()
        requirement = "EXEC-ALIVE" if found is nothing and not got else requirement
        return AdapterError(requirement, f"{found}: {self._fate()}", said)

    def _fate(self) -> str:
        status = self._child.poll()
        if status is None:
            return "the adapter has closed its standard output"
        if status >= 0:
            return f"the adapter has ended with exit status {status}"
        try:
            return f"the adapter was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"the adapter was ended by signal {-status}"
