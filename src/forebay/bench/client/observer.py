"""Who watches a run while it goes on, such as a progress display."""

from __future__ import annotations

from typing import Protocol

from forebay.bench.record import RequestRecord


class Observer(Protocol):
    """Called inside the event loop of the run, between two reads: it must be quick and must not raise.

    Live counts are what the chunks say, else one token a chunk; the record has the final ones.
    """

    def sent(self, session: int, turn: int) -> None: ...

    def first_token(self, ttft_s: float) -> None: ...

    def tokens(self, gap_s: float, count: int) -> None:
        """A later chunk with tokens; `gap_s` since the chunk before."""

    def ended(self, record: RequestRecord) -> None:
        """Every request that was sent, in order of their ends; also those of a run that is cancelled later."""


class NoObserver:
    """Watches nothing."""

    def sent(self, session: int, turn: int) -> None:
        pass

    def first_token(self, ttft_s: float) -> None:
        pass

    def tokens(self, gap_s: float, count: int) -> None:
        pass

    def ended(self, record: RequestRecord) -> None:
        pass
