"""From the engine's tokens to what a user reads: detokenizing, stop strings, chunks. Sync and async faces share it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from forebay.core.messages import AddRequest, EngineOutputs, RequestOutput
from forebay.core.outputs import CompletionChunk
from forebay.core.request import FinishReason
from forebay.engine.ids import child_id
from forebay.engine.stop_strings import StopStrings
from forebay.errors import ForebayError, InternalError, InvalidValueError, RequestAbortedError, error_named
from forebay.observe.metrics import Metrics
from forebay.observe.recorder import Recorder, RequestLine
from forebay.tokenizer import IncrementalDetokenizer, Tokenizer

logger = logging.getLogger(__name__)

MERGE_ABOVE = 64  # so many unread chunks of one child become one: a reader that stalls costs no more than its answer


class _Child:
    """One completion on its way: its detokenizer and stop strings."""

    def __init__(self, tokenizer: Tokenizer, request: AddRequest, index: int) -> None:
        sampling = request.sampling
        self.index = index
        self._detokenizer = IncrementalDetokenizer(
            tokenizer,
            skip_special_tokens=sampling.skip_special_tokens,
            shown_token_ids=sampling.shown_token_ids,
            prompt_token_ids=request.prompt_token_ids,
        )
        self._stops = StopStrings(sampling.stop, show_match=sampling.include_stop_str_in_output)
        self._shown_ends = sampling.stop_token_ids if sampling.include_stop_str_in_output else ()
        self._unstoppable = sampling.min_tokens if sampling.stop else 0  # tokens whose text no stop string is sought in

    @property
    def stopped(self) -> bool:
        return self._stops.matched is not None

    def push(self, output: RequestOutput) -> CompletionChunk | None:
        """The chunk of one step's output; None if there is nothing to say."""
        ended = output.finish_reason
        token_ids, text = ([], "") if self.stopped else self._read(output)
        if ended is not None:
            text += self._stops.push(self._detokenizer.finish()) + self._stops.finish()
            ended = FinishReason.STOP.value if self.stopped else ended
        elif not token_ids and not output.prompt_logprobs:
            return None
        return CompletionChunk(
            index=self.index,
            text=text,
            token_ids=token_ids,
            logprobs=None if output.logprobs is None else output.logprobs[: len(token_ids)],
            finish_reason=ended,
            stop_string=None if ended is None else self._stops.matched,
            num_cached_tokens=output.num_cached_tokens,
            events=output.events,
            prompt_logprobs=output.prompt_logprobs,
            hidden=output.hidden,
        )

    def _read(self, output: RequestOutput) -> tuple[list[int], str]:
        """Tokens that count and their text; what follows the token that completed a stop string is dropped."""
        token_ids = output.token_ids
        readable = token_ids
        # what ended the output is no part of the text, even where its piece is printable
        if output.finish_reason == FinishReason.STOP and token_ids[-1] not in self._shown_ends:
            readable = token_ids[:-1]
        if not self._stops.sought:
            return token_ids, self._detokenizer.push(readable)
        text = ""
        for count, token_id in enumerate(readable, start=1):
            piece = self._detokenizer.push([token_id])
            if self._unstoppable > 1:
                self._unstoppable -= 1
                text += piece
                continue
            text += self._stops.push(piece)
            if self.stopped:
                return token_ids[:count], text
        return token_ids, text


class RequestStream:
    """What a request has to say and nobody has read yet.

    Chunks of one child that were not read are merged into one, so a slow reader costs at most its own output.
    `notify` is called whenever there is something new.
    """

    def __init__(self, request: AddRequest, tokenizer: Tokenizer, notify: Callable[[], None]) -> None:
        self.request = request
        self._notify = notify
        self._error: ForebayError | None = None
        self._unread: dict[int, list[CompletionChunk]] = {}
        self.children = {i: _Child(tokenizer, request, i) for i in range(request.sampling.n)}

    @property
    def ended(self) -> bool:
        """Nothing more will come (what is unread can still be taken)."""
        return self._error is not None or not self.children

    @property
    def ready(self) -> bool:
        """`take` has something to give or to raise, or the stream has ended."""
        return bool(self._unread) or self.ended

    @property
    def done(self) -> bool:
        """Ended without an error, and everything was read."""
        return self._error is None and not self.children and not self._unread

    def put(self, chunk: CompletionChunk) -> None:
        unread = self._unread.setdefault(chunk.index, [])
        unread.append(chunk)
        if len(unread) > MERGE_ABOVE:
            self._unread[chunk.index] = [merged(unread)]
        if chunk.finish_reason is not None:
            del self.children[chunk.index]
        self._notify()

    def fail(self, error: ForebayError) -> None:
        if not self.ended:
            self._error = error
            self._notify()

    def take(self) -> list[CompletionChunk]:
        """What is unread, one chunk per child. Raises the request's error once nothing is unread."""
        if not self._unread and self._error is not None:
            raise self._error
        unread, self._unread = self._unread, {}
        return [merged(chunks) for chunks in unread.values()]


def merged(chunks: list[CompletionChunk]) -> CompletionChunk:
    """Consecutive chunks of one child (at least one) as one."""
    if len(chunks) == 1:
        return chunks[0]
    logprobs = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    return msgspec.structs.replace(
        chunks[-1],
        text="".join([chunk.text for chunk in chunks]),
        token_ids=[token_id for chunk in chunks for token_id in chunk.token_ids],
        logprobs=logprobs if any(chunk.logprobs is not None for chunk in chunks) else None,
        events=tuple([event for chunk in chunks for event in chunk.events]),
        prompt_logprobs=tuple([entry for chunk in chunks for entry in chunk.prompt_logprobs]),
    )


@dataclass(slots=True)
class _Entry:
    """A request the engine still knows. `open`: child indices it has not ended; `stream`: None once nobody reads."""

    request: AddRequest
    stream: RequestStream | None
    open: set[int]

    def child_ids(self) -> list[str]:
        return [child_id(self.request.request_id, index) for index in sorted(self.open)]


class OutputProcessor:
    """Owns the open streams of one front end and feeds metrics and recorder with all that comes from the engine."""

    def __init__(self, tokenizer: Tokenizer, metrics: Metrics, recorder: Recorder) -> None:
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._recorder = recorder
        self._entries: dict[str, _Entry] = {}
        self._num_children = 0

    @property
    def num_open(self) -> int:
        """Requests that the engine has not ended."""
        return len(self._entries)

    @property
    def num_children(self) -> int:
        """Their completions that it has not ended."""
        return self._num_children

    def open(self, request: AddRequest, notify: Callable[[], None] = lambda: None) -> RequestStream:
        """A stream for a request that is about to be sent. Raises InvalidValueError if its id is in use."""
        if request.request_id in self._entries:
            raise InvalidValueError(f"request_id {request.request_id!r} is in use; choose another", param="request_id")
        stream = RequestStream(request, self._tokenizer, notify)
        self._entries[request.request_id] = _Entry(request, stream, set(range(request.sampling.n)))
        self._num_children += request.sampling.n
        self._metrics.received()
        return stream

    def open_ids(self) -> list[str]:
        return list(self._entries)

    def lengths(self) -> list[int]:
        """Prompt + max_tokens of each completion that the engine has not ended."""
        return [
            len(entry.request.prompt_token_ids) + entry.request.max_tokens
            for entry in self._entries.values()
            for _ in entry.open
        ]

    def process(self, message: EngineOutputs) -> list[str]:
        """Route one message. Returns engine request ids to abort: a stop string is complete, or a sibling failed."""
        if message.record is not None:
            self._metrics.step(message.record)
            self._recorder.step(message.record)
        return [request_id for output in message.outputs for request_id in self._route(output)]

    def close(self, request_id: str) -> list[str]:
        """Nobody reads this request any more. Returns ids of engine requests to abort."""
        entry = self._entries.get(request_id)
        if entry is None or entry.stream is None:
            return []
        entry.stream = None
        return entry.child_ids()

    def fail_all(self, error: ForebayError) -> None:
        """End every open stream with `error`: the engine is gone."""
        entries, self._entries, self._num_children = self._entries, {}, 0
        for entry in entries.values():
            if entry.stream is not None:
                entry.stream.fail(error)

    def _route(self, output: RequestOutput) -> list[str]:
        entry = self._entries.get(output.request_id)
        if entry is None or output.child_index not in entry.open:
            return []
        self._metrics.output(output)
        stream = entry.stream
        chunk, error = (None, _error_of(output)) if stream is None else self._read(stream, output)
        if output.finish_reason is not None:
            self._end(entry, output, error, output.finish_reason if chunk is None else str(chunk.finish_reason))
        if stream is not None and error is not None:
            entry.stream = None
            stream.fail(error)
            return entry.child_ids()
        if stream is None or chunk is None:
            return []
        # text goes on until the step that completes a stop string; the engine has yet to learn of it
        stopped = chunk.finish_reason is None and stream.children[chunk.index].stopped
        stream.put(chunk)
        return [child_id(output.request_id, chunk.index)] if stopped else []

    def _read(self, stream: RequestStream, output: RequestOutput) -> tuple[CompletionChunk | None, ForebayError | None]:
        """What an output is to its reader: a chunk, an error, or nothing."""
        child = stream.children[output.child_index]
        error = None if child.stopped else _error_of(output)
        if error is not None:
            return None, error
        try:
            return child.push(output), None
        except Exception as unexpected:  # a fault of ours in one request's text must not end the others
            logger.exception("cannot read the output of request %s", output.request_id)
            return None, InternalError(f"the output cannot be turned into text: {unexpected!r}")

    def _end(self, entry: _Entry, output: RequestOutput, error: ForebayError | None, reason: str) -> None:
        """The engine has ended one child."""
        entry.open.remove(output.child_index)
        self._num_children -= 1
        if not entry.open:
            del self._entries[output.request_id]
        num_prompt = len(entry.request.prompt_token_ids)
        self._recorder.request(
            RequestLine(
                request_id=output.request_id,
                child_index=output.child_index,
                reason=reason if error is None else error.label,
                num_prompt_tokens=num_prompt,
                num_cached_tokens=output.num_cached_tokens,
                events=output.events,
            )
        )
        if error is None or isinstance(error, InternalError | RequestAbortedError):
            self._metrics.finished(reason, num_prompt, output.num_cached_tokens, output.events)
        elif output.child_index == 0:  # once for a request, not for each child
            self._metrics.refused(error.label)


def _error_of(output: RequestOutput) -> ForebayError | None:
    """The error that an output ends its request with, if it does."""
    if output.finish_reason == FinishReason.ABORT:
        return RequestAbortedError(output.error or "the request was aborted")
    if output.finish_reason != FinishReason.ERROR:
        return None
    return error_named(
        output.error_code or InternalError.code,
        output.error or "no reason given",
        param=output.error_param,
        retry_after=output.retry_after,
    )
