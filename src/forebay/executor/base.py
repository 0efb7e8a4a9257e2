"""The seam between the engine loop and wherever model runners live."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from forebay.core.step import ModelOutput, SchedulerOutput


class Executor(Protocol):
    """Runs steps. Results are futures, so that a loop may look one step ahead."""

    @property
    def usable(self) -> bool:
        """Whether later steps can run after one failed: False once a worker or its cache is lost."""
        ...

    def execute(self, scheduled: SchedulerOutput) -> Future[ModelOutput]:
        """Start one step. An error of the step is the future's exception; this call itself does not raise."""
        ...

    def close(self) -> None:
        """Release workers and device memory. No step may follow."""
        ...
