"""A bar for a run that is under way, with the latencies as they come."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forebay.bench.record import RequestRecord

RECENT = 200  # so many of the latest latencies make the live figures
REFRESH_PER_S = 2  # drawing costs the client processor time, which is measured


class LiveProgress:
    """An Observer (bench/client/load.py) that draws on stderr, if that is a terminal."""

    def __init__(self, total: int, title: str = "measuring") -> None:
        self._ttft: deque[float] = deque(maxlen=RECENT)
        self._gaps: deque[float] = deque(maxlen=RECENT)
        self._open = self._failed = 0
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
        self._task = self._bar.add_task(title, total=total, live="")

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
            self._bar.update(self._task, advance=1, live=self._live())

    def _live(self) -> str:
        parts = [f"{self._open} open"]
        if self._ttft:
            parts.append(f"TTFT p50 {_middle(self._ttft) * 1e3:.0f} ms")
        if self._gaps:
            parts.append(f"ITL p50 {_middle(self._gaps) * 1e3:.1f} ms")
        if self._failed:
            parts.append(f"[red]{self._failed} failed[/red]")
        return "  ".join(parts)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()


def _middle(values: deque[float]) -> float:
    return sorted(values)[len(values) // 2]
