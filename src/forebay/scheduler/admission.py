"""The bounded queue in front of the engine: who may wait, and what to tell those who may not."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from forebay.core.request import Request, RequestStatus, WaitReason
from forebay.errors import ContextLengthError, InvalidValueError, OverloadedError
from forebay.kvcache.block_manager import BlockManager
from forebay.scheduler.policy import Ranking

_DECAY = 0.98  # weight of the past at each step: a memory of about 50 steps
_RETRY_UNMEASURED_S = 1.0
_RETRY_MIN_S, _RETRY_MAX_S = 0.1, 600.0


class Throughput:
    """Tokens per second of recent steps; idle time does not count."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, num_tokens: int, duration_ns: int) -> None:
        self._tokens = self._tokens * _DECAY + num_tokens
        self._seconds = self._seconds * _DECAY + duration_ns / 1e9

    @property
    def tokens_per_s(self) -> float | None:
        """None before the first step that took time."""
        return self._tokens / self._seconds if self._seconds > 0 else None

    def retry_after(self, places: int, lengths: Sequence[int]) -> float:
        """Seconds until `places` requests have left: requests end at the rate throughput / mean tokens of one (Little).
        lengths: prompt + max_tokens of those that are there, which stand for the unknown output lengths, so this errs
        to the long side."""
        rate = self.tokens_per_s
        if not rate:
            return _RETRY_UNMEASURED_S
        return min(max(places * sum(lengths) / len(lengths) / rate, _RETRY_MIN_S), _RETRY_MAX_S)


class Admission:
    """The waiting requests in rank order, at most `max_waiting` of them (preempted ones come on top)."""

    def __init__(self, max_waiting: int, blocks: BlockManager, ranking: Ranking) -> None:
        self._max_waiting = max_waiting
        self._blocks = blocks
        self._ranking = ranking
        self.waiting: list[Request] = []
        self.throughput = Throughput()

    def check(self, requests: Sequence[Request], live: Iterable[Request]) -> None:
        """Raises what stands against queueing `requests`: InvalidValueError or ContextLengthError (they can never run),
        OverloadedError (no room now)."""
        if len(requests) > self._max_waiting:
            raise InvalidValueError(
                f"n={len(requests)} is more than the waiting queue holds; "
                f"use n <= {self._max_waiting} or raise max_waiting",
                param="n",
            )
        for request in requests:
            self._check_fits(request)
        if self._num_new() + len(requests) > self._max_waiting:
            lengths = [request.max_total_tokens for request in (*live, *requests)]
            retry_after = self.throughput.retry_after(len(requests), lengths)
            raise OverloadedError(
                f"max_waiting={self._max_waiting} requests are waiting already; retry in {retry_after:.1f} s",
                retry_after=retry_after,
            )

    def put(self, request: Request) -> None:
        """Queue a new or a preempted request at its rank."""
        insort(self.waiting, request, key=self._ranking)

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)

    def _num_new(self) -> int:
        """How many of `waiting` have not run yet."""
        return sum(request.status is RequestStatus.WAITING for request in self.waiting)

    def explain(self, skipped: Sequence[tuple[Request, WaitReason | None]]) -> None:
        """Set wait reasons: each skipped candidate has its own, and those behind the last one share its."""
        if not skipped:
            return
        for request, reason in skipped:
            request.wait_reason = reason
        last, reason = skipped[-1]
        for request in self.waiting[self.waiting.index(last) + 1 :]:
            request.wait_reason = reason

    def _check_fits(self, request: Request) -> None:
        least = 0 if request.wants_hidden else 1
        if not request.prompt_token_ids or request.max_tokens < least:
            name, value = ("max_tokens", request.max_tokens) if request.prompt_token_ids else ("prompt", "no tokens")
            raise InvalidValueError(f"{name} must be at least 1 token, got {value}", param=name)
        largest = self._blocks.largest_total_tokens()
        if largest is None or request.max_total_tokens <= largest:
            return
        prompt, room = request.num_prompt_tokens, largest - request.num_prompt_tokens
        if room < least:
            raise ContextLengthError(
                f"prompt has {prompt} tokens and the KV cache holds {largest}; "
                f"shorten it to at most {largest - least} tokens",
                param="prompt",
            )
        raise ContextLengthError(
            f"max_tokens={request.max_tokens} after a prompt of {prompt} tokens can never fit the "
            f"KV cache of {largest} tokens; the largest max_tokens that fits is {room}",
            param="max_tokens",
        )
