"""One session as a user would play it: turn after turn, with a pause to think, until one fails."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from forebay.bench.client.answer import AnswerReader
from forebay.bench.client.connection import Connection, Ended, Ending
from forebay.bench.client.endpoint import RequestEncoder, is_chat, messages_of
from forebay.bench.client.observer import Observer
from forebay.bench.client.pace import Pacer
from forebay.bench.client.pool import CONNECT_LIMIT_S, ConnectionPool
from forebay.bench.plan import Message, Session, Turn
from forebay.bench.record import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all sessions of a run share. `records` fills up as requests end."""

    encoder: RequestEncoder
    pool: ConnectionPool
    pacer: Pacer
    observer: Observer
    timeout_s: float
    records: list[RequestRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A session with its place in the workload. first_index: of its first turn among all turns; first_request: the
    bytes of that turn, ready before they are due."""

    number: int
    first_index: int
    session: Session
    first_request: bytes


async def play_session(stage: Stage, part: Part, intended_ns: int) -> int:
    """Send the first turn at `intended_ns` and the others each `think_s` after the end of the one before. Returns when
    the last response that was asked for ended (ns): what comes after the finish reason (usage, [DONE]) belongs to it. A
    failed turn is the last; a cancelled one is not."""
    history: list[Message] = []
    request = part.first_request
    for turn_number, turn in enumerate(part.session.turns):
        await stage.pacer.until(intended_ns)
        record, said, free_ns = await _Exchange(stage, part, turn_number, intended_ns).play(request)
        if record.failure is not None or turn_number + 1 == len(part.session.turns):
            break
        if is_chat(turn):
            history += [*messages_of(turn), {"role": "assistant", "content": said}]
        following = part.session.turns[turn_number + 1]
        intended_ns = free_ns + round(following.think_s * 1e9)
        request = stage.encoder.encode(following, history)  # in the time to think
    return free_ns


class _Exchange:
    """One turn on the wire."""

    def __init__(self, stage: Stage, part: Part, turn_number: int, intended_ns: int) -> None:
        self._stage = stage
        self._part = part
        self._turn_number = turn_number
        self._turn: Turn = part.session.turns[turn_number]
        self._intended_ns = intended_ns
        self._reader = AnswerReader(self._turn, intended_ns, stage.observer)
        self._sent_ns = time.monotonic_ns()
        self._deadline_ns = self._sent_ns + round(stage.timeout_s * 1e9)

    async def play(self, request: bytes) -> tuple[RequestRecord, str, int]:
        """The record, the answer's text as a conversation goes on with it, and when the response ended (ns)."""
        self._stage.observer.sent(self._part.number, self._turn_number)
        ended = await self._send(request)
        record = self._record(ended)
        self._stage.records.append(record)
        self._stage.observer.ended(record)
        return record, self._reader.said, max(ended.at_ns, record.end_ns)

    async def _send(self, request: bytes) -> Ended:
        slow = self._turn.read_bytes_per_s is not None
        connection = None if slow else self._stage.pool.take_idle()
        if connection is not None:
            ended = await self._on(connection, request)
            if ended.how is not Ending.CLOSED or connection.received:
                return ended
            # the server had closed an idle connection while our request was on its way: it has not read it
        connect_limit_s = min(CONNECT_LIMIT_S, self._left_s())
        try:
            async with asyncio.timeout(connect_limit_s):
                connection = await self._stage.pool.connect(slow_reader=slow)
        except TimeoutError:
            detail = f"no connection within {connect_limit_s:g} s"
            how = Ending.UNREACHABLE if connect_limit_s == CONNECT_LIMIT_S else Ending.EXPIRED
            return Ended(how, time.monotonic_ns(), detail)
        except OSError as error:
            return Ended(Ending.UNREACHABLE, time.monotonic_ns(), str(error))
        return await self._on(connection, request)

    async def _on(self, connection: Connection, request: bytes) -> Ended:
        try:
            self._sent_ns = connection.begin(
                request, self._reader, limit_s=self._left_s(), read_bytes_per_s=self._turn.read_bytes_per_s
            )
            return await connection.ended
        finally:
            self._stage.pool.give_back(connection)

    def _left_s(self) -> float:
        return max(0.0, (self._deadline_ns - time.monotonic_ns()) / 1e9)

    def _record(self, ended: Ended) -> RequestRecord:
        reader, turn = self._reader, self._turn
        failure = reader.failure(ended)
        cancelled = failure is None and reader.cancelled_ns is not None
        whole = failure is None and not cancelled
        counted = reader.counted()
        end_ns = reader.finish_ns if whole else reader.cancelled_ns if cancelled else ended.at_ns
        assert end_ns is not None
        return RequestRecord(
            index=self._part.first_index + self._turn_number,
            session=self._part.number,
            turn=self._turn_number,
            bucket=turn.bucket,
            intended_ns=self._intended_ns,
            sent_ns=self._sent_ns,
            headers_ns=reader.headers_ns,
            token_ns=counted.token_ns,
            token_counts=counted.token_counts,
            counted_by=counted.counted_by,
            end_ns=max(end_ns, *counted.token_ns[-1:], self._sent_ns),
            planned_prompt_tokens=turn.prompt_tokens,
            planned_output_tokens=turn.max_tokens,
            prompt_tokens=reader.usage.prompt_tokens,
            cached_tokens=reader.cached_tokens,
            output_tokens=sum(counted.token_counts),
            finish_reason=reader.finish_reason,
            response_id=reader.response_id,
            output_digest=reader.digest() if whole else None,
            correct=reader.holds(turn.expected) if whole and turn.expected is not None else None,
            cancelled=cancelled,
            failure=failure,
        )
