"""A file server for the built site, which serves it from a sub-path and notes what is asked for."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType

SUBPATH = "docs/nibblespec"


class Server:
    """A server on a free port of this machine."""

    def __init__(self, root: Path) -> None:
        self.requests: list[tuple[str, int]] = []
        """Paths with the status of their answer."""
        handler = partial(_Handler, self.requests, directory=str(root))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/{SUBPATH}/"

    def __enter__(self) -> "Server":
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(
        self,
        requests: list[tuple[str, int]],
        request: object,
        address: object,
        server: object,
        *,
        directory: str,
    ) -> None:
        self._requests = requests
        super().__init__(request, address, server, directory=directory)  # type: ignore[arg-type]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        """Note the request instead of writing it to standard error."""
        self._requests.append((self.path, int(code)))

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""
