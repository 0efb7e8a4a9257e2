"""Latencies, by definition: the one place that turns times of tokens into TTFT, ITL, TPOT and E2E.

The server's metrics and the load client use the same functions on what each of them saw; only the boundary differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from forebay.core.messages import Event


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Latencies of one completion in seconds; None where what was seen does not reach that far.

    queue: from queued to first admitted. grammar: from asked for to compiled. ttft: from the boundary to the first
    token. itl: one gap per token after the first; tokens that arrive together have gaps of 0 between them. tpot: their
    mean. e2e: from the boundary to the end.
    """

    queue: float | None
    ttft: float | None
    itl: tuple[float, ...]
    tpot: float | None
    e2e: float | None
    grammar: float | None = None

    @classmethod
    def between(
        cls,
        start_ns: int | None,
        token_ns: Sequence[int],
        end_ns: int | None,
        *,
        queue: float | None = None,
        grammar: float | None = None,
    ) -> RequestTimes:
        """start_ns: the boundary. token_ns: when each token was there, in order, one entry per token."""
        itl = tuple((later - earlier) / 1e9 for earlier, later in pairwise(token_ns))
        return cls(
            queue=queue,
            grammar=grammar,
            ttft=_seconds(start_ns, token_ns[0] if token_ns else None),
            itl=itl,
            tpot=(token_ns[-1] - token_ns[0]) / 1e9 / len(itl) if itl else None,
            e2e=_seconds(start_ns, end_ns),
        )

    @classmethod
    def of(cls, events: Iterable[Event]) -> RequestTimes:
        """From the events of a completion. Boundary: server_receive, on the clock all processes of a machine share."""
        first: dict[str, int] = {}
        tokens: list[int] = []
        for event in events:
            first.setdefault(event.kind, event.t_ns)
            if event.kind == "token":
                tokens.append(event.t_ns)
        queue = _seconds(first.get("queued"), first.get("admitted"))
        grammar = _seconds(first.get("grammar"), first.get("compiled"))
        return cls.between(first.get("received"), tokens, first.get("finished"), queue=queue, grammar=grammar)


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9
