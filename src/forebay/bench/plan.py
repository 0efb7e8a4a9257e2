"""A workload as a value: who sends what and when, fixed before the first byte is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

Message = dict[str, Any]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session.

    prompt: text or token ids for /v1/completions; messages for /v1/chat/completions, to which the session's earlier
      messages and answers are put in front when it is sent.
    prompt_tokens: how many tokens the server must count for it; None where that depends on earlier answers.
    body: further fields of the request body, such as temperature, ignore_eos or tools.
    think_s: pause between the end of the turn before and the moment this one is meant to be sent.
    cancel_after_tokens: hang up once so many tokens have come. read_bytes_per_s: a reader slower than the server.
    expected: text that a right answer contains.
    """

    prompt: str | list[int] | list[Message]
    prompt_tokens: int | None
    max_tokens: int
    bucket: str = "default"
    body: dict[str, Any] = {}
    think_s: float = 0.0
    cancel_after_tokens: int | None = None
    read_bytes_per_s: float | None = None
    expected: str | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that follow each other; a single request is a session of one turn.

    at_s: when its first turn is meant to be sent, from the start of the run. None: as soon as a place is free.
    """

    turns: tuple[Turn, ...]
    at_s: float | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions in order of arrival. `concurrency`: most sessions at once (closed loop); None: each starts at its at_s
    whatever else is open (open loop). `spec`: how it was made, in words and numbers, for the result document."""

    sessions: tuple[Session, ...]
    concurrency: int | None
    spec: dict[str, Any] = {}

    def turns(self) -> Iterator[Turn]:
        return (turn for session in self.sessions for turn in session.turns)

    @property
    def num_requests(self) -> int:
        return sum(len(session.turns) for session in self.sessions)

    @property
    def digest(self) -> str:
        """sha256 hex over everything that is sent, and when. Equal digests: the same load."""
        content = (self.sessions, self.concurrency)
        return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()
