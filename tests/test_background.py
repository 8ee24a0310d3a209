"""Work in threads that nobody has to wait for: its order, its end, and what it raises."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest
from nibblespec.conformance.artifacts.reading.background import in_order


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Yield what work may wait for; it happens in the end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def doubled(items: list[int], workers: int = 3) -> list[int]:
    return list(in_order(lambda item: 2 * item, items, workers=workers, patience=20))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_results_are_in_the_order_of_the_items(count: int) -> None:
    assert doubled(list(range(count))) == [2 * item for item in range(count)]


def test_a_result_waits_for_those_before_it(release: threading.Event) -> None:
    def work(item: int) -> int:
        if item == 0:
            release.wait(20)
        elif item == 1:
            release.set()
        return item

    assert list(in_order(work, [0, 1, 2], workers=2, patience=20)) == [0, 1, 2]


def test_as_many_items_are_worked_on_at_once_as_there_are_workers() -> None:
    meeting = threading.Barrier(3)

    def work(_: int) -> int:
        return meeting.wait(20)

    assert sorted(in_order(work, [0, 1, 2], workers=3, patience=20)) == [0, 1, 2]


def test_what_the_work_raises_is_raised_in_its_turn() -> None:
    results = in_order(lambda item: 1 // item, [1, 0, 1], workers=1, patience=20)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_few_items_are_begun_before_they_are_asked_for() -> None:
    begun: list[int] = []
    results = in_order(begun.append, range(1000), workers=2, patience=20)
    next(results)
    assert len(begun) <= 5


def test_nothing_is_begun_after_the_last_result_that_is_asked_for() -> None:
    begun: list[int] = []
    results = in_order(begun.append, range(1000), workers=2, patience=20)
    assert len(list(islice(results, 3))) == 3
    del results
    assert len(begun) < 10


def test_what_takes_too_long_is_not_waited_for(release: threading.Event) -> None:
    def work(_: int) -> bool:
        return release.wait(20)

    with pytest.raises(TimeoutError):
        next(in_order(work, [0], workers=1, patience=0.01))


def test_what_hangs_does_not_keep_the_process_from_its_end() -> None:
    program = (
        "import signal, threading, _thread\n"
        "from nibblespec.conformance.artifacts.reading.background import in_order\n"
        "def work(_):\n"
        "    _thread.interrupt_main()\n"
        "    threading.Event().wait()\n"
        "try:\n"
        "    next(in_order(work, [0], workers=1, patience=600))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.stdout, result.stderr) == ("interrupted\n", "")
