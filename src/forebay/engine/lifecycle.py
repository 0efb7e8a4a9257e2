"""How an engine process lives and ends: the watch over its steps and over its parent."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType

logger = logging.getLogger(__name__)

PARENT_CHECK_S = 1.0
ORPHANED = 3  # exit code


def exit_with_parent(lifeline: int, parent_pid: int) -> None:
    """End this process at once when the parent is gone, even while a step hangs.

    lifeline: a pipe the parent holds open and never writes to again. Its end is noticed at once; the parent's pid is
    looked at besides, for a pipe that another child of the parent inherited.
    """

    def watch() -> None:
        while os.getppid() == parent_pid:
            readable, _, _ = select.select([lifeline], [], [], PARENT_CHECK_S)
            if readable and not os.read(lifeline, 4096):
                break
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="forebay-parent-watch", daemon=True).start()


class StepWatch:
    """A context around each step; a step that takes longer than `limit_s` is logged once, with all stacks.

    The loop cannot answer a ping meanwhile, so the front end's health() reports it too.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._started: float | None = None
        self._stop = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def running(cls, limit_s: float) -> Iterator[StepWatch]:
        """A watch with its thread, which ends with the block."""
        watch = cls(limit_s)
        thread = threading.Thread(target=watch._look, name="forebay-step-watch", daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            watch._stop.set()
            thread.join()

    def __enter__(self) -> StepWatch:
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._started = None

    def _look(self) -> None:
        reported: float | None = None
        while not self._stop.wait(self._limit_s / 4):
            started = self._started
            if started is None or started == reported or time.monotonic() - started < self._limit_s:
                continue
            reported = started
            logger.error("a step has been running for %.1f s; where every thread is:", time.monotonic() - started)
            faulthandler.dump_traceback(sys.stderr)
