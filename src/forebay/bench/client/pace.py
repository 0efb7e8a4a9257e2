"""Waking at a moment of CLOCK_MONOTONIC, to a fraction of a millisecond.

Event loops round their timers to whole milliseconds (libuv's unit, and epoll's). A thread that sleeps on a condition
wakes within some tens of microseconds and tells the loop; nobody spins.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from types import TracebackType
from typing import Self

_Waiter = asyncio.Future[None]


class Pacer:
    """Owns one thread for the time of a `with` block inside a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._due: list[tuple[int, int, _Waiter]] = []  # a heap: (moment, order of asking, who waits)
        self._asked = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="forebay-bench-pacer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    async def until(self, when_ns: int) -> None:
        """Return at `when_ns`, or at once if it is past."""
        if time.monotonic_ns() >= when_ns:
            return
        waiter = self._loop.create_future()
        self._asked += 1
        with self._changed:
            heapq.heappush(self._due, (when_ns, self._asked, waiter))
            if self._due[0][2] is waiter:
                self._changed.notify()
        await waiter

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now_ns = time.monotonic_ns()
                woken = []
                while self._due and self._due[0][0] <= now_ns:
                    woken.append(heapq.heappop(self._due)[2])
                if woken:
                    self._loop.call_soon_threadsafe(_wake, woken)
                elif self._due:
                    self._changed.wait(min((self._due[0][0] - now_ns) / 1e9, threading.TIMEOUT_MAX))
                else:
                    self._changed.wait()


def _wake(waiters: list[_Waiter]) -> None:
    for waiter in waiters:
        if not waiter.done():  # a cancelled one is
            waiter.set_result(None)
