"""A guard: kills the adapter where this process is killed and can no longer do so itself."""

import contextlib
import subprocess

_SCRIPT = 'read -r line || kill -s KILL -- "-$1"'


class Guard:
    """A shell that waits for a line. Where its standard input ends without, it kills a group."""

    def __init__(self, group: int) -> None:
        # In a session of its own: Ctrl-C must not end it before its time.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "guard", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Let it go without killing anything."""
        if self._shell.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.communicate(b"\n")
