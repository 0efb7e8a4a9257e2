"""What the two generation endpoints share: parsing that is counted, and gathering chunks into choices."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from forebay.core.outputs import CompletionChunk
from forebay.errors import RequestError
from forebay.server.generation import Generation, Usage, run
from forebay.server.message_reader import MessageReader, Said
from forebay.server.openai.logprobs import joined
from forebay.server.state import ServerState
from forebay.server.streaming import AnswerResponse, EventStream
from forebay.structured.tools.deltas import Delta, ParsedMessage, collect


@contextmanager
def counting_refusals(state: ServerState) -> Iterator[None]:
    """Count what parsing refuses, as the engine counts what it refuses itself."""
    try:
        yield
    except RequestError as error:
        state.engine.metrics.refused(error.label)
        raise


@dataclass(slots=True)
class Choice:
    """One finished completion."""

    index: int
    stop_string: str | None = None
    texts: list[str] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)  # what a reader made of the texts, if there was one
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    num_tokens: int = 0
    logprob_sum: float = 0.0  # of the tokens, where log-probabilities were asked of the engine

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, chunk: CompletionChunk, logprobs: dict[str, Any] | None) -> None:
        self.texts.append(chunk.text)
        self.num_tokens += len(chunk.token_ids)
        self.logprob_sum += sum(found.logprob for found in chunk.logprobs or ())
        if logprobs is not None:
            self.logprobs.append(logprobs)
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
            self.stop_string = chunk.stop_string

    def hear(self, said: Said) -> None:
        self.deltas += said.deltas
        self.finish_reason = said.finish_reason or self.finish_reason

    @property
    def message(self) -> ParsedMessage:
        """What a reader understood."""
        return collect(self.deltas)

    def joined_logprobs(self) -> dict[str, Any] | None:
        return joined(self.logprobs) if self.logprobs else None


def best_of_each(choices: list[Choice], generated: int, kept: int) -> list[Choice]:
    """Of the `generated` choices of each prompt the `kept` with the highest mean log-probability a token, best first;
    ties to the lowest index. All of them in their order if as many are kept."""
    if kept == generated:
        return choices
    groups = [choices[at : at + generated] for at in range(0, len(choices), generated)]
    ranked = [sorted(group, key=lambda c: -c.logprob_sum / max(c.num_tokens, 1)) for group in groups]
    return [choice for group in ranked for choice in group[:kept]]


async def gather(
    state: ServerState,
    generation: Generation,
    usage: Usage,
    logprobs: Callable[[CompletionChunk], dict[str, Any] | None],
    readers: Sequence[MessageReader] = (),
) -> list[Choice]:
    """Run to the end. `logprobs` words those of a chunk. readers: none, or one for each choice."""
    choices = [Choice(i) for i in range(generation.num_choices)]
    async with aclosing(run(state, generation)) as chunks:
        async for chunk in chunks:
            usage.add(chunk)
            choices[chunk.index].add(chunk, logprobs(chunk))
            if readers:
                choices[chunk.index].hear(readers[chunk.index].read(chunk))
    return choices


def response_head(state: ServerState, generation: Generation, kind: str) -> dict[str, Any]:
    """The fields every response object and every event begins with."""
    return {
        "id": generation.id,
        "object": kind,
        "created": int(time.time()),
        "model": state.model_name,
        "system_fingerprint": state.fingerprint,
    }


def respond(
    state: ServerState,
    generation: Generation,
    whole: Callable[[], Coroutine[Any, Any, bytes]],
    events: AsyncGenerator[bytes, None] | None,
) -> Response:
    """A stream if there are events, else one JSON object."""
    if events is None:
        return AnswerResponse(whole, generation.headers())
    return EventStream(events, generation.headers(), write_timeout_s=state.settings.write_timeout_s)
