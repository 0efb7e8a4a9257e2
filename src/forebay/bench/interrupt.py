"""Ends that leave no child behind: SIGTERM as Ctrl-C, and neither while a child is being made."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM does what SIGINT would: KeyboardInterrupt, or what an event loop makes of it."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Inside, SIGINT and SIGTERM wait: an exception between fork and the return of Popen would lose the child. Gives a
    function to call afterwards, which raises what has come."""
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))

    def raise_them() -> None:
        for number in dict.fromkeys(came):
            signal.raise_signal(number)

    try:
        yield raise_them
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:  # a shell starts what it puts into the background with SIGINT ignored
        raise KeyboardInterrupt
