"""The shape every generation endpoint has: an Answer runs a generation, a Wording puts it into the words of a face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar

import msgspec
from starlette.responses import Response

from forebay.core.outputs import CompletionChunk
from forebay.errors import ForebayError
from forebay.server.generation import Generation, Usage, run
from forebay.server.message_reader import MessageReader, Said
from forebay.server.openai.answer import Choice, gather
from forebay.server.state import ServerState
from forebay.server.streaming import DONE, AnswerResponse, EventStream, error_event


class Wording(ABC):
    """One answer in the words of a face. Made for one request and used once: either `whole`, or `start`, then `piece`
    for each chunk, then `end`, all of which return complete server-sent events, or nothing. What is not overridden is
    as in OpenAI's chat completions.
    """

    done: ClassVar[bytes] = DONE  # follows a stream that is complete

    def logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        """Those of a chunk as `whole` finds them in its choices, None where nobody asked for them."""
        return None

    @abstractmethod
    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        """The JSON object of a finished answer."""

    def start(self, usage: Usage) -> bytes:
        """Sent with the first chunk; `usage` counts it already."""
        return b""

    @abstractmethod
    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        """What a chunk has to say. `said`: as its reader understood it."""

    def end(self, usage: Usage) -> bytes:
        """Follows the last chunk."""
        return b""

    def failed(self, error: ForebayError) -> bytes:
        """The last event of a stream that cannot be completed; neither `end` nor `done` follows."""
        return error_event(error)


class Answer:
    """The answer to one HTTP request. Whatever reads a choice's text before it is worded, as a parser of tool calls and
    reasoning does, belongs between the chunks here and the wording."""

    def __init__(
        self, state: ServerState, generation: Generation, wording: Wording, readers: list[MessageReader]
    ) -> None:
        """readers: one for each choice."""
        self._state = state
        self._generation = generation
        self._wording = wording
        self._readers = readers
        self._usage = Usage(generation)

    def response(self, *, stream: bool) -> Response:
        """Server-sent events, or one JSON object."""
        headers = self._generation.headers()
        if not stream:
            return AnswerResponse(self._whole, headers)
        return EventStream(
            self._events(),
            headers,
            write_timeout_s=self._state.settings.write_timeout_s,
            done=self._wording.done,
            failed=self._wording.failed,
        )

    async def _whole(self) -> bytes:
        choices = await gather(self._state, self._generation, self._usage, self._wording.logprobs, self._readers)
        self._count_reasoning()
        return msgspec.json.encode(self._wording.whole(choices, self._usage))

    async def _events(self) -> AsyncGenerator[bytes, None]:
        started = False
        async with aclosing(run(self._state, self._generation)) as chunks:
            async for chunk in chunks:
                self._usage.add(chunk)
                said = self._readers[chunk.index].read(chunk)
                data = b"" if started else self._wording.start(self._usage)
                started = True
                data += self._wording.piece(chunk, said)
                if data:
                    yield data
        self._count_reasoning()
        if data := self._wording.end(self._usage):
            yield data

    def _count_reasoning(self) -> None:
        self._usage.reasoning_tokens = sum(reader.num_reasoning_tokens for reader in self._readers)
