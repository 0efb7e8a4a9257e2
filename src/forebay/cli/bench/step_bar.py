"""A bar on stderr, if that is a terminal, for measurements that have steps instead of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def step_bar(total: int, title: str) -> Iterator[Callable[[str], None]]:
    """Gives a function to call after each step, with a word about it."""
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=total)
        yield lambda word: bar.update(task, advance=1, description=f"{title} {word}".rstrip())
