"""A checkpoint on the Hugging Face Hub, read by range requests: never a byte of the weights.

huggingface_hub does the talking: endpoint, token, proxies and offline mode are what its
environment variables say. All files are read from the commit that the revision was in the
beginning.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from nibblespec.conformance.artifacts.reading.background import in_order
from nibblespec.conformance.artifacts.reading.folder import Extent, Folder, Start, is_telling
from nibblespec.conformance.artifacts.reading.hub_errors import HubError, hub_error, refusal
from nibblespec.conformance.artifacts.reading.tensor_entries import bytes_text

SCHEME = "hf://"

WORKERS = 8
"""Files that are read side by side."""

MOST_AHEAD = 2**22
"""Bytes of a piece that is fetched before it is the file's turn: few, as many may wait."""

PAUSES = (0.5, 2.0)
"""Seconds before a request is tried again that may work the next time."""

_ADDRESS = re.compile(r"hf://(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>\S+?))?/?", re.ASCII)
_RANGE = re.compile(r"bytes (?P<first>[0-9]{1,18})-[0-9]{1,18}/(?P<size>[0-9]{1,18}|\*)")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where a repository is, and how long to wait for it."""

    name: str
    revision: str
    seconds: float
    """How long the server may be silent."""


def open_repository(address: str) -> Folder:
    """List the files at `hf://owner/name[@revision]`.

    Raises HubError where that cannot be done, as the folder's `read` does, and ModuleNotFoundError
    where huggingface_hub is not installed.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise HubError(f"{address}: expected hf://owner/name or hf://owner/name@revision")
    from huggingface_hub import __version__  # noqa: PLC0415 (late, as it is an extra)
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT  # noqa: PLC0415

    if __version__.startswith("0."):
        needed = "pip install 'nibblespec[hub]'"
        raise HubError(f"{address}: huggingface_hub {__version__} is too old: {needed}")
    given = Repository(
        name=match["name"],
        revision=match["revision"] or "main",
        seconds=float(HF_HUB_DOWNLOAD_TIMEOUT),
    )
    [(commit, files)] = _in_background(given, _list, [given])
    repository = replace(given, revision=commit)
    sizes = {path: size for path, size in files.items() if "/" not in path}
    nested = [path.split("/") for path in files if "/" in path]
    folders = {parts[0] for parts in nested}
    telling = {"/".join(parts[:2]) for parts in nested if not parts[0].startswith(".")}
    return Folder(
        place=f"{SCHEME}{repository.name}@{commit}",
        names=tuple(sorted({*sizes, *folders})),
        nested=tuple(sorted(filter(is_telling, telling))),
        strays={},
        read=partial(_read, repository, sizes, folders),
    )


def _list(repository: Repository) -> tuple[str, dict[str, int]]:
    """Return the commit of a repository's revision, and the sizes of its files."""
    from huggingface_hub import HfApi  # noqa: PLC0415

    def ask() -> tuple[str, dict[str, int]]:
        info = HfApi(library_name="nibblespec").model_info(
            repository.name,
            revision=repository.revision,
            files_metadata=True,
            timeout=repository.seconds,
        )
        files = {file.rfilename: file.size for file in info.siblings or ()}
        sizes = {
            path: size
            for path, size in files.items()
            if isinstance(path, str) and type(size) is int and size >= 0
        }
        if sizes.keys() != files.keys():
            raise HubError("the server does not say how large the files are")
        return info.sha or repository.revision, sizes

    return _persist(ask, repository)


def _read(
    repository: Repository,
    sizes: Mapping[str, int],
    folders: set[str],
    files: Iterable[str],
    extent: Extent,
) -> Iterator[Start]:
    """Read how files begin: many side by side, pieces that are large one after the other."""
    starts = [
        Start(file=file, size=sizes[file])
        if file in sizes
        else Start(file=file, irregular="a folder" if file in folders else "no such file")
        for file in files
    ]
    begin = partial(_continue, repository, extent, MOST_AHEAD)
    for start in _in_background(repository, begin, starts):
        if extent(start.pieces, start.size):
            finish = partial(_continue, repository, extent, start.size)
            yield from _in_background(repository, finish, [start])
        else:
            yield start


def _continue(repository: Repository, extent: Extent, most: int, start: Start) -> Start:
    """Read on, as long as no piece is larger than `most`."""
    while 0 < (wanted := extent(start.pieces, start.size)) <= most:
        first = sum(map(len, start.pieces))
        fetch = partial(_fetch, repository, start, first, wanted)
        piece = _persist(fetch, repository, start.file)
        start = replace(start, pieces=(*start.pieces, piece))
    return start


def _fetch(repository: Repository, start: Start, first: int, count: int) -> bytes:
    """Fetch `count` bytes of a file from `first` on, and no more than that."""
    from huggingface_hub import get_session, hf_hub_url  # noqa: PLC0415

    # Documented, though the package does not export it in the way that mypy asks for.
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # noqa: PLC0415

    url = hf_hub_url(repository.name, start.file, revision=repository.revision)
    headers = build_hf_headers(library_name="nibblespec")
    headers |= {"Range": f"bytes={first}-{first + count - 1}", "Accept-Encoding": "identity"}
    data = bytearray()
    with get_session().stream(
        "GET", url, headers=headers, timeout=repository.seconds, follow_redirects=True
    ) as answer:
        if answer.status_code not in (200, 206):
            raise refusal(answer.status_code, answer.headers, revision=repository.revision)
        # A server that ignores the range sends the whole file, which is cut off.
        skipped = 0 if answer.status_code == 206 else first
        _check_size(answer.status_code, answer.headers, start, first)
        for part in answer.iter_bytes():
            data += part
            # An answer that is read to its end leaves its connection to the next one.
            if len(data) > skipped + count:
                break
    if len(data) < skipped + count:
        expected, found = bytes_text(skipped + count), bytes_text(len(data))
        raise HubError(f"the answer broke off: expected {expected}, found {found}", transient=True)
    return bytes(memoryview(data)[skipped : skipped + count])


def _check_size(status: int, headers: Mapping[str, str], start: Start, first: int) -> None:
    """Make sure that an answer is of the part that was asked for, and of the file listed."""
    if status == 206:
        match = _RANGE.match(headers.get("Content-Range", ""))
        if match is None or int(match["first"]) != first:
            raise HubError("the server sent another part of the file than it was asked for")
        size = match["size"]
    else:
        size = "*" if "Content-Encoding" in headers else headers.get("Content-Length", "*")
    if size not in ("*", str(start.size)):
        expected = bytes_text(start.size)
        raise HubError(f"the file has {size} bytes, and {expected} in the list of files")


def _persist(work: Callable[[], Result], repository: Repository, file: str = "") -> Result:
    """Do what may work the next time up to three times. Raises HubError, which says where."""
    pauses = iter(PAUSES)
    while True:
        try:
            return work()
        except Exception as raised:
            error = hub_error(raised, seconds=repository.seconds, revision=repository.revision)
            pause = next(pauses, None)
            if pause is None or not error.transient:
                place = ": ".join(filter(None, (SCHEME + repository.name, file)))
                # Without the cause: what the libraries say may hold a token.
                raise HubError(f"{place}: {error}") from None
        time.sleep(pause)


def _in_background(
    repository: Repository, work: Callable[[Item], Result], items: list[Item]
) -> Iterator[Result]:
    """Yield the results of the work on all items. Raises HubError, where nothing comes too."""
    patience = 30 + 6 * repository.seconds
    workers = min(WORKERS, len(items))
    try:
        yield from in_order(work, items, workers=workers, patience=patience)
    except TimeoutError:
        message = f"{SCHEME}{repository.name}: nothing came for {patience:g} seconds"
        raise HubError(message) from None
