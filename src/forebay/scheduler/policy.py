"""Order of requests, and nothing else."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from forebay.core.request import Request

Rank = tuple[tuple[int, ...], int]


class Policy(Protocol):
    """Orders requests; it must not change them, and the key of a request must not change while it lives."""

    def key(self, request: Request) -> tuple[int, ...]:
        """Smaller goes first."""
        ...


class PriorityPolicy:
    """Lower `priority` first, then first come, first served."""

    def key(self, request: Request) -> tuple[int, ...]:
        return (request.priority, request.arrival_ns)


class Ranking:
    """A total order of live requests: the policy's key, then the order of `enter`. A preempted request keeps its rank,
    which puts it back at the front; the best rank is never preempted, so it always progresses."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ranks: dict[str, Rank] = {}
        self._next = count()

    def enter(self, request: Request) -> None:
        self._ranks[request.request_id] = (self._policy.key(request), next(self._next))

    def leave(self, request: Request) -> None:
        del self._ranks[request.request_id]

    def __call__(self, request: Request) -> Rank:
        return self._ranks[request.request_id]
