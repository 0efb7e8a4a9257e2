"""A progress bar on stderr, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str, total: int | None, enabled: bool) -> Iterator[Callable[[int, int | None], None]]:
    """Yield update(bytes done so far, total or None). A bar of unknown total pulses until one is given."""
    if not enabled:
        yield lambda done, total: None
        return
    from rich.console import Console  # 60 ms of imports that only a fetch pays
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)
