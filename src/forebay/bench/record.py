"""What one request of a run looked like from outside: the raw material of every metric."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FailureKind(StrEnum):
    """Why a request has no complete answer. A request that we cancelled on purpose has not failed."""

    CONNECT = "connect"  # no connection
    TIMEOUT = "timeout"  # longer than the run's limit
    OVERLOADED = "overloaded"  # 429
    CLIENT_ERROR = "client_error"  # another 4xx
    SERVER_ERROR = "server_error"  # 5xx
    STREAM_ERROR = "stream_error"  # an error event after the answer began
    CUT = "cut"  # the stream ended without a finish reason
    PROTOCOL = "protocol"  # not HTTP, not SSE, or not the JSON that was agreed


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """`detail`: the server's own words, shortened."""

    kind: FailureKind
    http_status: int | None = None
    detail: str = ""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request. All times are nanoseconds of CLOCK_MONOTONIC on the client's machine.

    intended_ns: when the workload meant it to be sent; every latency counts from here (boundary client_send).
    sent_ns: when its bytes were given to the socket. headers_ns: the response's first byte.
    token_ns, token_counts: arrival of each chunk that bore tokens, and how many. Their sum is output_tokens.
    counted_by: where the counts come from: "usage" (one token a chunk, and usage agrees), "chunks" (the chunks say it:
      running usage, token ids or logprobs), "spread" (usage gives the sum, spread over the chunks by length of text),
      "assumed" (no usage at all: one token a chunk).
    end_ns: the chunk with the finish reason, or the moment it failed or was cancelled.
    planned_prompt_tokens, planned_output_tokens: what the workload asked for (prompt None: not known before).
    prompt_tokens, cached_tokens: as the server counted them; None where it said nothing.
    correct: whether the answer held the expected text; None where none was expected.
    output_digest: sha256 hex of the whole text, to compare answers without keeping them.
    """

    index: int
    session: int = 0
    turn: int = 0
    bucket: str = "default"
    intended_ns: int
    sent_ns: int
    headers_ns: int | None = None
    token_ns: tuple[int, ...] = ()
    token_counts: tuple[int, ...] = ()
    counted_by: str = "usage"
    end_ns: int
    planned_prompt_tokens: int | None = None
    planned_output_tokens: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int = 0
    finish_reason: str | None = None
    response_id: str | None = None
    output_digest: str | None = None
    correct: bool | None = None
    cancelled: bool = False
    failure: Failure | None = None

    @property
    def completed(self) -> bool:
        """It has a whole answer; only these count in latency distributions."""
        return self.failure is None and not self.cancelled
