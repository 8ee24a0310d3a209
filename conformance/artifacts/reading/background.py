"""Work that may be held up, such as a request, in threads that nobody has to wait for.

The main thread waits where signals reach it, and a bounded time; what hangs, a name server that
does not answer for instance, keeps neither an interrupt nor the end of the process.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TypeVar

TICK = 0.1
"""Seconds between two looks at signals."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], *, workers: int, patience: float
) -> Iterator[Result]:
    """Yield the results of the work on all items, in their order.

    At most twice as many items as there are workers are begun ahead of the one that is waited
    for. Raises what the work raises on an item, and TimeoutError where the next result is not
    there after `patience` seconds. The threads end after the last item, or when nobody asks for
    results any more.
    """
    todo: SimpleQueue[tuple[Item, Future[Result]] | None] = SimpleQueue()
    ahead: deque[Future[Result]] = deque()
    for _ in range(workers):
        Thread(target=_run, args=(work, todo), daemon=True).start()
    try:
        for item in items:
            future: Future[Result] = Future()
            ahead.append(future)
            todo.put((item, future))
            if len(ahead) > 2 * workers:
                yield _result(ahead.popleft(), patience)
        while ahead:
            yield _result(ahead.popleft(), patience)
    finally:
        for future in ahead:
            future.cancel()
        for _ in range(workers):
            todo.put(None)


def _result(future: Future[Result], patience: float) -> Result:
    """Wait for a result, with a look at signals now and then: they may reach other threads."""
    deadline = monotonic() + patience
    while not wait((future,), timeout=TICK).done:
        if monotonic() > deadline:
            raise TimeoutError
    return future.result()


def _run(
    work: Callable[[Item], Result], todo: SimpleQueue[tuple[Item, Future[Result]] | None]
) -> None:
    """Do what there is to do, until there is None."""
    while (task := todo.get()) is not None:
        item, future = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(work(item))
        except BaseException as error:
            future.set_exception(error)
