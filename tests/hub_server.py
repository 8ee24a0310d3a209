"""A server on this machine that speaks as much of the Hub as is needed, and may misbehave.

The model API lists the files; `resolve` answers small files itself and redirects large ones to
another server, as the Hub does. Both write down what they were asked for.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REPOSITORY = "owner/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIGNATURE = "c2VjcmV0"

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")


@dataclass(frozen=True)
class Asked:
    """One request: to whom, for what, and with which token."""

    server: str
    file: str
    """Of the repository; empty where the list of files was asked for."""
    span: tuple[int, int] | None
    """First and last byte of the range; None where there was none."""
    revision: str
    authorization: str | None


@dataclass
class Hub:
    """What the servers have, and what they were asked for."""

    files: dict[str, bytes]
    asked: list[Asked] = field(default_factory=list)
    revisions: Mapping[str, str] = field(default_factory=lambda: {"main": COMMIT, COMMIT: COMMIT})
    """Names of revisions, with their commits."""
    misbehave: Callable[["Handler", Asked], bool] = lambda _handler, _asked: False
    """Answers a request itself, or says that it did not."""
    redirected: str = ".safetensors"
    """What the names of files end in that the other server has."""
    url: str = ""
    other: str = ""
    busy: int = 0
    busiest: int = 0
    sent: int = 0
    """Bytes that went out."""
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ranges(self) -> dict[str, list[tuple[int, int] | None]]:
        """Return the ranges that files were asked for, where they are."""
        found: dict[str, list[tuple[int, int] | None]] = {}
        for asked in self.asked:
            where = "other" if asked.file.endswith(self.redirected) else "hub"
            if asked.file and asked.server == where:
                found.setdefault(asked.file, []).append(asked.span)
        return found


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one server."""

    hub: Hub
    server_name: str
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Count the connections."""
        super().setup()
        with self.hub.lock:
            self.hub.connections += 1

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""

    def do_GET(self) -> None:
        """Answer a request, unless the hub misbehaves."""
        asked = self._asked()
        if asked is None:
            self.refuse(404)
            return
        with self.hub.lock:
            self.hub.asked.append(asked)
            self.hub.busy += 1
            self.hub.busiest = max(self.hub.busiest, self.hub.busy)
        try:
            if not self.hub.misbehave(self, asked):
                self._answer(asked)
        except ConnectionError:
            self.close_connection = True  # the client has gone away
        finally:
            with self.hub.lock:
                self.hub.busy -= 1

    def _asked(self) -> Asked | None:
        path = unquote(urlsplit(self.path).path)
        raw = urlsplit(self.path).path
        span = _RANGE.fullmatch(self.headers.get("Range", ""))
        if match := _API.fullmatch(raw):
            name, revision, file = match[1], unquote(match[2] or "main"), ""
        elif match := _RESOLVE.fullmatch(raw):
            name, revision, file = match[1], unquote(match[2]), unquote(match[3])
        elif self.server_name == "other":
            name, revision, file = REPOSITORY, COMMIT, path.removeprefix("/blobs/")
        else:
            return None
        if name != REPOSITORY:
            revision = ""
        return Asked(
            server=self.server_name,
            file=file,
            span=(int(span[1]), int(span[2])) if span else None,
            revision=revision,
            authorization=self.headers.get("Authorization"),
        )

    def _answer(self, asked: Asked) -> None:
        commit = self.hub.revisions.get(asked.revision)
        if not asked.revision:
            self.refuse(401, {"X-Error-Code": "RepoNotFound"})
        elif commit is None:
            self.refuse(404, {"X-Error-Code": "RevisionNotFound"})
        elif not asked.file:
            files = self.hub.files.items()
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files]
            self.send_json({"id": REPOSITORY, "sha": commit, "siblings": siblings})
        elif asked.file not in self.hub.files:
            self.refuse(404, {"X-Error-Code": "EntryNotFound"})
        elif asked.server == "hub" and asked.file.endswith(self.hub.redirected):
            target = f"{self.hub.other}/blobs/{asked.file}?Signature={SIGNATURE}"
            self.send_bytes(b"", 302, {"Location": target})
        else:
            self.send_file(asked)

    def send_file(self, asked: Asked, *, whole: bool = False) -> None:
        """Send the part of a file that was asked for, or the whole file."""
        data = self.hub.files[asked.file]
        if asked.span is None or whole:
            self.send_bytes(data, 200)
            return
        first, last = asked.span[0], min(asked.span[1], len(data) - 1)
        if first > last:
            self.refuse(416)
            return
        part = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.send_bytes(data[first : last + 1], 206, part)

    def send_json(self, value: object) -> bool:
        """Send a JSON document."""
        return self.send_bytes(
            json.dumps(value).encode(), 200, {"Content-Type": "application/json"}
        )

    def send_bytes(self, data: bytes, status: int, headers: Mapping[str, str] = {}) -> bool:
        """Send an answer; `headers` may contradict the length. True, for a hub that misbehaves."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(data), 2**16):
            self.wfile.write(data[start : start + 2**16])
            self.hub.sent += len(data[start : start + 2**16])
        return True

    def refuse(self, status: int, headers: Mapping[str, str] = {}) -> bool:
        """Refuse a request."""
        return self.send_bytes(b"", status, headers)


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Hub]:
    """Run the two servers."""
    hub = Hub(files=dict(files))
    servers = []
    for name in ("hub", "other"):
        handler = type(name, (Handler,), {"hub": hub, "server_name": name})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append((server, thread))
    hub.url, hub.other = (f"http://127.0.0.1:{server.server_port}" for server, _ in servers)
    try:
        yield hub
    finally:
        for server, thread in servers:
            server.shutdown()
            thread.join()
            server.server_close()
