"""Why the Hub could not be read, in one line that says what to do.

No line holds a token, nor an address with a signature, which is why messages of the libraries
below are not passed on.
"""

from collections.abc import Mapping

_PRIVATE = "log in (hf auth login) or set HF_TOKEN"


class HubError(Exception):
    """The Hub could not be read; the message is one line that says what and why."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        """Whether it may work the next time."""


def hub_error(error: Exception, *, seconds: float, revision: str) -> HubError:
    """Translate what huggingface_hub, or the HTTP library under it, raises on a request.

    `seconds` is how long the request was given, `revision` what it asked for.
    """
    from huggingface_hub.errors import (  # noqa: PLC0415 (late, as it is an extra)
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
    )

    if isinstance(error, HubError):
        return error
    if isinstance(error, OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE is set, and nothing may be fetched")
    if isinstance(error, HFValidationError):
        return HubError("no repository can have this name")
    if isinstance(error, HfHubHTTPError):
        response = error.response
        return refusal(response.status_code, response.headers, revision=revision)
    # Versions of huggingface_hub differ in the HTTP library that they use, not in these names.
    names = {kind.__name__ for kind in type(error).__mro__}
    if "TimeoutException" in names:
        return HubError(f"no answer within {seconds:g} seconds", transient=True)
    if "ConnectError" in names:
        return HubError(f"cannot connect: {error}", transient=True)
    if "ProxyError" in names:
        return HubError("the proxy refuses to connect")
    if "LocalProtocolError" in names or isinstance(error, UnicodeError):
        return HubError("the request cannot be sent: is HF_TOKEN a token?")
    if names & {"NetworkError", "ProtocolError"}:
        return HubError("the connection broke", transient=True)
    return HubError(f"the answer is not that of a Hub ({type(error).__name__})")


def refusal(status: int, headers: Mapping[str, str], *, revision: str) -> HubError:
    """Say what the status of an answer means; `headers` are looked up whatever their case."""
    code = headers.get("X-Error-Code", "")
    if code == "GatedRepo":
        return HubError(f"the repository is gated: ask for access on its page, then {_PRIVATE}")
    if code == "RevisionNotFound":
        return HubError(f"the repository has no revision {revision}")
    if code == "EntryNotFound":
        return HubError("the file is listed, and not there")
    if status == 401 and "credentials" in headers.get("X-Error-Message", "").lower():
        return HubError("the token is refused: log in again (hf auth login) or renew HF_TOKEN")
    if code == "RepoNotFound" or status in (401, 404):
        return HubError(f"no such repository, or a private one: check its name; else {_PRIVATE}")
    if status == 403:
        return HubError("access is forbidden: is the token allowed to read the repository?")
    if status == 429:
        return HubError(f"too many requests: try again {_when(headers)}")
    if status >= 500:
        return HubError(f"the server failed (status {status}): try again later", transient=True)
    return HubError(f"the server answered with status {status}")


def _when(headers: Mapping[str, str]) -> str:
    """Say when a limit on requests ends: `RateLimit: "api";r=0;t=55`, or `Retry-After: 55`."""
    reset = headers.get("RateLimit", "").rpartition("t=")[2]
    for seconds in (reset, headers.get("Retry-After", "")):
        if seconds.isdecimal() and seconds.isascii() and len(seconds) < 6:
            return f"in {int(seconds)} seconds"
    return "later"
