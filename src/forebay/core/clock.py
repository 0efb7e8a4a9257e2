"""Time as a seam, so that a test can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Monotonic nanoseconds, comparable between processes of one machine."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC, which all processes of a machine share."""

    def now_ns(self) -> int:
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told to, for tests."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)
