"""The fault seam: an executor that fails on purpose, so that tests meet real failures of a real engine."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from typing import Literal

import msgspec

from forebay.core.step import ModelOutput, SchedulerOutput
from forebay.executor.base import Executor


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong at the `at`-th executed step (counted from 0).

    kind: "raise" fails that step only; "lose" fails it and makes the executor unusable; "hang" never returns;
    "kill" ends the process with SIGKILL; "interrupt" is a Ctrl-C in the middle of it.
    """

    kind: Literal["raise", "lose", "hang", "kill", "interrupt"]
    at: int


class FaultyExecutor:
    """Wraps a real executor and injects one Fault; every other step is passed on."""

    def __init__(self, executor: Executor, fault: Fault) -> None:
        self._executor = executor
        self._fault = fault
        self._count = 0
        self._lost = False

    @property
    def usable(self) -> bool:
        return self._executor.usable and not self._lost

    def execute(self, scheduled: SchedulerOutput) -> Future[ModelOutput]:
        count, self._count = self._count, self._count + 1
        return self._fail() if count == self._fault.at else self._executor.execute(scheduled)

    def _fail(self) -> Future[ModelOutput]:
        if self._fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault.kind == "hang":
            threading.Event().wait()
        if self._fault.kind == "interrupt":
            raise KeyboardInterrupt
        self._lost = self._fault.kind == "lose"
        failed: Future[ModelOutput] = Future()
        failed.set_exception(RuntimeError(f"injected fault {self._fault.kind!r} at step {self._fault.at}"))
        return failed

    def close(self) -> None:
        self._executor.close()
