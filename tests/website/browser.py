"""Chromium without a window, driven through the pipes of its DevTools protocol."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120
"""How long an answer or an event may take, on a machine with other work."""

Event = dict[str, Any]


def find_chromium() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """A running browser with one page. Only this machine can be reached from it."""

    def __init__(self, program: str, profile: Path) -> None:
        # The browser reads commands from descriptor 3 and writes answers to descriptor 4.
        reads, self._commands = os.pipe()
        self._answers, writes = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reads, writes)]
        self._process = subprocess.Popen(
            [
                *("bash", "-c", f'exec "$@" 3<&{high[0]} 4>&{high[1]}', "bash", program),
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"),
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (reads, writes, *high):
            os.close(end)
        self._read = b""
        self._number = 0
        self._session = ""
        self.events: list[Event] = []
        """Everything that the page and its workers have reported."""

    def __enter__(self) -> "Browser":
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.call(
            "Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True
        )
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._commands)
        os.close(self._answers)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol. Raises AssertionError where the browser refuses it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._next(lambda one: one.get("id") == self._number, f"an answer to {method}")
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, script: str) -> Any:  # noqa: ANN401  # what the script gives
        """Evaluate JavaScript in the page, wait for it, and return its value."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:  # noqa: ANN401  # what the script gives
        """Evaluate JavaScript until it gives something true, and return that."""
        until = time.monotonic() + SECONDS
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"still not true: {script}"
            time.sleep(0.05)
        return value

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.follow(lambda: self.call("Page.navigate", url=url))

    def click(self, selector: str) -> None:
        """Click a link and wait until the page behind it is loaded."""
        self.follow(lambda: self.run(f"document.querySelector({json.dumps(selector)}).click()"))

    def follow(self, action: Callable[[], object]) -> None:
        """Do something that loads a page, and wait for it."""
        done = len(self.events)
        action()
        while not any(one["method"] == "Page.loadEventFired" for one in self.events[done:]):
            self._next(lambda one: "method" in one, "the page")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def choose(self, selector: str, file: Path) -> None:
        """Choose a file in an input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)

    def _next(self, wanted: Callable[[Event], bool], what: str) -> Event:
        """Read messages up to the wanted one; keep the events among them."""
        until = time.monotonic() + SECONDS
        while True:
            while b"\0" not in self._read:
                ready, _, _ = select.select([self._answers], [], [], until - time.monotonic())
                assert ready, f"no word of {what} from the browser within {SECONDS} seconds"
                piece = os.read(self._answers, 2**20)
                assert piece, f"the browser ended before {what}"
                self._read += piece
            line, _, self._read = self._read.partition(b"\0")
            message: Event = json.loads(line)
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message
