"""What one streamed answer says, read while it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from forebay.bench.client.chunk import Chunk, ChunkChoice, ChunkUsage
from forebay.bench.client.connection import Ended, Ending
from forebay.bench.client.counting import ChunkFacts, Counted, count_tokens
from forebay.bench.client.observer import Observer
from forebay.bench.client.sse import EventSplitter, SseError, SseEvent
from forebay.bench.plan import Turn
from forebay.bench.record import Failure, FailureKind

MAX_ERROR_BYTES = 64 * 1024  # of a body that is not the stream we asked for
MAX_TEXT = 2**26  # characters of one answer
MAX_CHUNKS = 2**22  # with tokens, of one answer
SPARE_TOKENS = 64  # servers differ in what they count, but a usage of far more than was asked for is none
FINISH_LINGER_S = 5.0  # for usage and [DONE] after the finish reason
DONE_LINGER_S = 0.25  # for the end of the body after [DONE]
HANG_UP = 0.0
_DETAIL = 300  # characters of the server's own words
_STOPPED = frozenset({"stop", "tool_calls", "function_call"})  # the model ended by itself

_ENDED_BY = {  # before a finish reason came
    Ending.COMPLETE: FailureKind.CUT,
    Ending.CLOSED: FailureKind.CUT,
    Ending.STOPPED: FailureKind.PROTOCOL,
    Ending.EXPIRED: FailureKind.TIMEOUT,
    Ending.BROKEN: FailureKind.PROTOCOL,
    Ending.UNREACHABLE: FailureKind.CONNECT,
}


class AnswerReader:
    """Takes the response of one request from its connection (a Sink). Owns everything that is known of the answer."""

    def __init__(self, turn: Turn, intended_ns: int, observer: Observer) -> None:
        self._cancel_after = turn.cancel_after_tokens
        self._asked = turn.max_tokens
        self._most_tokens = 2 * turn.max_tokens + SPARE_TOKENS
        self._intended_ns = intended_ns
        self._observer = observer
        self._splitter = EventSplitter()
        self._decode = msgspec.json.Decoder(Chunk).decode
        self.status: int | None = None
        self.headers_ns: int | None = None
        self._headers: Mapping[str, str] = {}
        self._streams = False
        self._other_body = bytearray()
        self._chunks: list[ChunkFacts] = []
        self._live_tokens = 0
        self._running_usage = 0
        self._usage_runs = False
        self._said: list[str] = []  # what a conversation goes on with
        self._answer: list[str] = []  # and the names and arguments of tools
        self._whole: list[str] = []  # and reasoning
        self._length = 0
        self.usage = ChunkUsage()
        self.response_id: str | None = None
        self.finish_reason: str | None = None
        self.finish_ns: int | None = None
        self.cancelled_ns: int | None = None
        self._done = False
        self._failure: Failure | None = None

    def head(self, status: int, headers: Mapping[str, str], first_byte_ns: int) -> None:
        self.status, self._headers, self.headers_ns = status, headers, first_byte_ns
        self._streams = status == 200 and headers.get("content-type", "").lower().startswith("text/event-stream")

    def body(self, data: bytes, now_ns: int) -> float | None:
        """Seconds that the rest may take from now on: HANG_UP to take no more, None for no change."""
        if not self._streams:
            self._other_body += data[: MAX_ERROR_BYTES - len(self._other_body)]
            return HANG_UP if len(self._other_body) >= MAX_ERROR_BYTES else None
        try:
            events = self._splitter.feed(data)
        except SseError as error:
            return self._fail(FailureKind.PROTOCOL, str(error))
        limit: float | None = None
        for event in events:
            if self._done:
                break
            change = self._event(event, now_ns)
            if change == HANG_UP:
                return HANG_UP
            limit = change or limit
        return limit

    def _event(self, event: SseEvent, now_ns: int) -> float | None:
        if event.data == b"[DONE]":
            self._done = True
            return DONE_LINGER_S
        if event.name == b"error":
            return self._fail(FailureKind.STREAM_ERROR, own_words(event.data))
        try:
            chunk = self._decode(event.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return self._fail(FailureKind.PROTOCOL, f"{error}: {_text(event.data)}")
        if chunk.error is not None or chunk.object == "error":
            return self._fail(FailureKind.STREAM_ERROR, own_words(event.data))
        return self._chunk(chunk, now_ns)

    def _chunk(self, chunk: Chunk, now_ns: int) -> float | None:
        if self.response_id is None and chunk.id is not None:
            self.response_id = str(chunk.id)[:_DETAIL]
        choices = chunk.choices or ()
        total = None
        if chunk.usage is not None:
            total = chunk.usage.completion_tokens
            if total is not None and total > self._most_tokens:
                return self._fail(FailureKind.PROTOCOL, f"usage says {total} tokens; {self._asked} were asked for")
            self._merge(chunk.usage)
        for choice in choices:
            self._tokens(choice, total, now_ns)
        if total is not None and choices:
            self._usage_runs = True
        if self._length > MAX_TEXT or len(self._chunks) > MAX_CHUNKS:
            return self._fail(FailureKind.PROTOCOL, "an answer longer than we hold in memory")
        for choice in choices:
            if choice.finish_reason and self.finish_ns is None:
                self.finish_reason, self.finish_ns = choice.finish_reason[:_DETAIL], now_ns
                return FINISH_LINGER_S
        if self._cancel_after is not None and self._live_tokens >= self._cancel_after and self.finish_ns is None:
            self.cancelled_ns = now_ns
            return HANG_UP
        return None

    def _merge(self, usage: ChunkUsage) -> None:
        """What a later usage says replaces what an earlier one said; what it leaves out stays."""
        for name in ("prompt_tokens", "completion_tokens", "prompt_tokens_details"):
            if (value := getattr(usage, name)) is not None:
                setattr(self.usage, name, value)

    def _tokens(self, choice: ChunkChoice, total: int | None, now_ns: int) -> None:
        """Note a choice that bears tokens: it has text, or lists tokens, or moves a running usage on. (A usage that
        comes once, with the finish reason, moves nothing: it has not run before.)"""
        text = choice.words()
        entries = choice.entries()
        whole = text.thought + text.said + text.called
        moved = None if total is None else total - self._running_usage
        if not (whole or entries or (self._usage_runs and moved and moved > 0)):
            return
        if total is not None:
            self._running_usage = total
        facts = ChunkFacts(now_ns, len(whole), moved, entries)
        if not self._chunks:
            self._observer.first_token((now_ns - self._intended_ns) / 1e9)
        else:
            self._observer.tokens((now_ns - self._chunks[-1].at_ns) / 1e9, facts.live)
        self._chunks.append(facts)
        self._live_tokens += facts.live
        self._length += len(whole)
        self._said.append(text.said)
        self._answer.append(text.said + text.called)
        self._whole.append(whole)

    def _fail(self, kind: FailureKind, detail: str) -> float:
        self._failure = Failure(kind=kind, http_status=self.status, detail=_shorten(detail))
        return HANG_UP

    @property
    def cached_tokens(self) -> int | None:
        details = self.usage.prompt_tokens_details
        return None if details is None else details.cached_tokens

    @property
    def said(self) -> str:
        """The text for the reader, without reasoning and tool calls."""
        return "".join(self._said)

    def holds(self, expected: str) -> bool:
        return expected in "".join(self._answer)

    def digest(self) -> str:
        """sha256 hex of all text in order of arrival, reasoning and tool calls included."""
        return hashlib.sha256("".join(self._whole).encode()).hexdigest()

    def counted(self) -> Counted:
        stopped = self.finish_reason in _STOPPED
        total = self.usage.completion_tokens
        return count_tokens(self._chunks, total, finish_ns=self.finish_ns, stopped=stopped)

    def failure(self, ended: Ended) -> Failure | None:
        """Why there is no whole answer, after its connection said how the response ended."""
        if self._failure is not None:
            return self._failure
        if self.finish_ns is not None or self.cancelled_ns is not None:
            return None
        if self.status is not None and not self._streams:
            return self._refusal(self.status)
        detail = ended.detail or "the answer ended without a finish reason"
        return Failure(kind=_ENDED_BY[ended.how], http_status=self.status, detail=_shorten(detail))

    def _refusal(self, status: int) -> Failure:
        detail = own_words(bytes(self._other_body))
        if status == 429:
            kind = FailureKind.OVERLOADED
        elif status >= 400:
            kind = FailureKind.SERVER_ERROR if status >= 500 else FailureKind.CLIENT_ERROR
        else:
            kind = FailureKind.PROTOCOL
            place = self._headers.get("location") or self._headers.get("content-type") or "no content-type"
            detail = f"no event stream ({place}): {detail}"
        if "retry-after" in self._headers:
            detail = f"{_shorten(detail)} (Retry-After: {self._headers['retry-after']})"
        return Failure(kind=kind, http_status=status, detail=_shorten(detail))


def own_words(data: bytes) -> str:
    """The message in an error body of one of the usual shapes, else the body itself."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _text(data)
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
    return found if isinstance(found, str) else _text(data)


def _text(data: bytes) -> str:
    return _shorten(data[: 4 * _DETAIL].decode("utf-8", "replace"))


def _shorten(text: str) -> str:
    """One line of printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _DETAIL]).split())
    return line if len(line) <= _DETAIL else line[: _DETAIL - 3] + "..."
