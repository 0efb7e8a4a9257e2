"""Bars for work that is under way, on stderr if that is a terminal: of requests with their latencies, or of steps."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forebay.bench.record import RequestRecord

RECENT = 200  # so many of the latest latencies make the live figures
REFRESH_PER_S = 2  # drawing costs the client processor time, which is measured


class StepBar:
    """For a measurement that has steps instead of requests. total: None if it is not known before."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self._title = title
        self._shown = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[live]}"),
            console=Console(stderr=True),
            refresh_per_second=REFRESH_PER_S,
            disable=not self._shown,
        )
        self._task = self._bar.add_task(escape(title), total=total, live="")

    def step(self, live: str = "") -> None:
        """One more is done; `live`: a word about it."""
        if self._shown:
            self._bar.update(self._task, advance=1, live=live)

    def at(self, done: int, total: int, live: str) -> None:
        if self._shown:
            self._bar.update(self._task, completed=done, total=total, live=live)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()


class LiveProgress(StepBar):
    """An Observer (bench/client/observer.py): a step is a request."""

    def __init__(self, total: int, title: str = "measuring") -> None:
        super().__init__(title, total)
        self._ttft: deque[float] = deque(maxlen=RECENT)
        self._gaps: deque[float] = deque(maxlen=RECENT)
        self._open = self._failed = 0

    def sent(self, session: int, turn: int) -> None:
        self._open += 1

    def first_token(self, ttft_s: float) -> None:
        self._ttft.append(ttft_s)

    def tokens(self, gap_s: float, count: int) -> None:
        self._gaps.append(gap_s)

    def ended(self, record: RequestRecord) -> None:
        self._open -= 1
        self._failed += record.failure is not None
        if self._shown:
            self.step(self._live())

    def _live(self) -> str:
        parts = [f"{self._open} open"]
        if self._ttft:
            parts.append(f"TTFT p50 {_middle(self._ttft) * 1e3:.0f} ms")
        if self._gaps:
            parts.append(f"ITL p50 {_middle(self._gaps) * 1e3:.1f} ms")
        if self._failed:
            parts.append(f"[red]{self._failed} failed[/red]")
        return "  ".join(parts)


class Bars:
    """One LiveProgress at a time, of the run that goes on: `start` makes the next and ends the one before."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def start(self, title: str, requests: int) -> LiveProgress:
        self._open.close()
        return self._open.enter_context(LiveProgress(requests, title))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()


def _middle(values: deque[float]) -> float:
    return sorted(values)[len(values) // 2]
