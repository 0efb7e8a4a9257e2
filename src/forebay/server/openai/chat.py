"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forebay.core.outputs import CompletionChunk
from forebay.core.sampling_params import SamplingParams
from forebay.server.body import read_json_body
from forebay.server.generation import Generation, Usage, prepare, run
from forebay.server.openai.answer import counting_refusals, gather, respond, response_head
from forebay.server.openai.fields import CHAT_FIELDS
from forebay.server.openai.logprobs import ChatLogprobs
from forebay.server.openai.parse import check_model, parse, parse_messages
from forebay.server.openai.requests import ChatBody
from forebay.server.openai.sampling import chat_sampling, include_usage
from forebay.server.state import ServerState


class _Read(NamedTuple):
    """All that a body says."""

    prompt: str
    sampling: SamplingParams
    stream: bool
    usage_wanted: bool


async def chat_completions(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events."""
    received_ns = state.engine.now_ns()
    with counting_refusals(state):
        body = await read_json_body(request, state.settings)
        read = await asyncio.to_thread(_read, state, body)  # a chat template can take long on any body
    # the template has written the special tokens
    generation = await prepare(
        state, "chatcmpl", [read.prompt], read.sampling, received_ns, field="messages", add_special_tokens=False
    )
    answer = _Answer(state, generation)
    return respond(state, generation, answer.whole, answer.events(read.usage_wanted) if read.stream else None)


def _read(state: ServerState, raw: bytes) -> _Read:
    body = parse(raw, ChatBody, CHAT_FIELDS)
    check_model(body.model, state.model_name)
    sampling, usage_wanted = chat_sampling(body), include_usage(body)
    prompt = state.engine.tokenizer.render_chat(parse_messages(body.messages))
    return _Read(prompt, sampling, body.stream, usage_wanted)


class _Answer:
    """The response to one request, whole or as events."""

    def __init__(self, state: ServerState, generation: Generation) -> None:
        self._state = state
        self._generation = generation
        self._usage = Usage(generation)
        self._wording = ChatLogprobs(state.engine.tokenizer) if generation.logprobs else None

    def _logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        return self._wording.of(chunk) if self._wording else None

    async def whole(self) -> bytes:
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": choice.joined_logprobs(),
                "finish_reason": choice.finish_reason,
            }
            for choice in await gather(self._state, self._generation, self._usage, self._logprobs)
        ]
        head = response_head(self._state, self._generation, "chat.completion")
        return msgspec.json.encode(head | {"choices": choices, "usage": self._usage.as_dict()})

    async def events(self, usage_wanted: bool) -> AsyncGenerator[bytes, None]:
        """Roles first, then text and finish reasons as they come."""
        head = (
            b"data: " + msgspec.json.encode(response_head(self._state, self._generation, "chat.completion.chunk"))[:-1]
        )
        form = _EventForm(head, b',"usage":null}\n\n' if usage_wanted else b"}\n\n")
        started = False
        async with aclosing(run(self._state, self._generation)) as chunks:
            async for chunk in chunks:
                self._usage.add(chunk)
                if not started:
                    started = True
                    yield b"".join(form.role(i) for i in range(self._generation.num_choices))
                if data := self._event(form, chunk):
                    yield data
        if usage_wanted:
            yield b'%b,"choices":[],"usage":%b}\n\n' % (head, msgspec.json.encode(self._usage.as_dict()))

    def _event(self, form: _EventForm, chunk: CompletionChunk) -> bytes:
        data = b""
        if chunk.text or (self._wording and chunk.token_ids):
            data = form.text(chunk.index, chunk.text, msgspec.json.encode(self._logprobs(chunk)))
        return data + form.finish(chunk.index, chunk.finish_reason) if chunk.finish_reason else data


class _EventForm:
    """Events with everything but the changing parts written once."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head = head
        self._tail = tail

    def role(self, index: int) -> bytes:
        return self._event(index, b'{"role":"assistant","content":"","refusal":null}', b"null", b"null")

    def text(self, index: int, text: str, logprobs: bytes) -> bytes:
        return self._event(index, b'{"content":%b}' % msgspec.json.encode(text), logprobs, b"null")

    def finish(self, index: int, reason: str) -> bytes:
        return self._event(index, b"{}", b"null", msgspec.json.encode(reason))

    def _event(self, index: int, delta: bytes, logprobs: bytes, reason: bytes) -> bytes:
        parts = (self._head, index, delta, logprobs, reason, self._tail)
        return b'%b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]%b' % parts
