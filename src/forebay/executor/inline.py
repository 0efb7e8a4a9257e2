"""The executor of one device: the runner is called in the loop's own thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from forebay.core.step import ModelOutput, SchedulerOutput


class Runner(Protocol):
    """What an executor runs: a pure function of its input and the KV cache."""

    def execute(self, scheduled: SchedulerOutput) -> ModelOutput: ...

    def close(self) -> None: ...


class InlineExecutor:
    """Runs each step before `execute` returns; the future is already done (look-ahead depth 0).

    A runner that raised is still usable: KV is committed only from a step that succeeded, so a failed step left
    nothing behind that a later one could read.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._closed = False

    @property
    def usable(self) -> bool:
        return not self._closed

    def execute(self, scheduled: SchedulerOutput) -> Future[ModelOutput]:
        future: Future[ModelOutput] = Future()
        try:
            future.set_result(self._runner.execute(scheduled))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._runner.close()
