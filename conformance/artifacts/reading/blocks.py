"""The bytes of tensors, block by block: bounded memory, and no trust that files stay as they are.

Files are read, not mapped: where a mapped file shrinks, the process dies.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import numpy as np
from nibblespec.conformance.artifacts.reading.folder import changed, opened
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry
from numpy.typing import NDArray

BLOCK = 2**20
"""Bytes that are read of a tensor at once: few enough to stay in a core's cache."""

Bytes = NDArray[np.uint8]


class StoppedError(Exception):
    """The run was ended from outside; what remains of it is given up."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the workers of a run and its main thread tell each other."""

    stop: Event = field(default_factory=Event)
    """Set to end the run: workers look before each block."""
    read: SimpleQueue[int] = field(default_factory=SimpleQueue)
    """Numbers of bytes that were done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file as it was when the run began."""

    path: Path
    file: str
    """Its name in findings."""
    size: int
    modified: int
    """Its time of modification, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBytes:
    """Where the bytes of a tensor are."""

    entry: TensorEntry
    source: Source
    begin: int
    """First byte, from the start of the file."""
    size: int


def find_source(path: Path, file: str) -> Source:
    """Describe a regular file as it is now. Raises OSError where it is not there."""
    found = path.stat()
    return Source(path=path, file=file, size=found.st_size, modified=found.st_mtime_ns)


@contextmanager
def reading(source: Source) -> Iterator[FileIO]:
    """Open a file for reading. Raises OSError where it cannot be, or is not what it was."""
    with opened(source.path) as (descriptor, size):
        if (size, os.fstat(descriptor).st_mtime_ns) != (source.size, source.modified):
            raise changed(source.path)
        with FileIO(descriptor, "rb", closefd=False) as stream:
            yield stream


def read_into(stream: FileIO, buffer: Bytes, position: int, source: Source) -> None:
    """Fill a buffer from a position of a file. Raises OSError, with the file's path."""
    view = buffer.data
    try:
        stream.seek(position)
        while view:
            count = stream.readinto(view)
            if not count:
                raise changed(source.path)
            view = view[count:]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(source.path)) from error


def read_blocks(
    tensors: tuple[TensorBytes, ...], start: int, stop: int, run: Run
) -> Iterator[tuple[int, tuple[Bytes, ...]]]:
    """Yield bytes start … stop of tensors side by side: the position, and a block of each.

    Blocks are overwritten by the next ones. Raises OSError as `reading` and `read_into`, and
    StoppedError.
    """
    with ExitStack() as stack:
        streams = [stack.enter_context(reading(tensor.source)) for tensor in tensors]
        buffers = [np.empty(min(BLOCK, stop - start), np.uint8) for _ in tensors]
        for position in range(start, stop, BLOCK):
            if run.stop.is_set():
                raise StoppedError
            count = min(BLOCK, stop - position)
            for tensor, stream, buffer in zip(tensors, streams, buffers, strict=True):
                read_into(stream, buffer[:count], tensor.begin + position, tensor.source)
            yield position, tuple(buffer[:count] for buffer in buffers)
