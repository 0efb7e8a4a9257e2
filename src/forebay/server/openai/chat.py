"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forebay.core.outputs import CompletionChunk
from forebay.server.answer import Wording
from forebay.server.conversation import Asked, Face, converse
from forebay.server.generation import Generation, Usage
from forebay.server.message_reader import Said
from forebay.server.openai.answer import Choice, response_head
from forebay.server.openai.fields import CHAT_FIELDS
from forebay.server.openai.logprobs import ChatLogprobs
from forebay.server.openai.messages import parse_messages, render
from forebay.server.openai.parse import check_model, parse
from forebay.server.openai.requests import ChatBody
from forebay.server.openai.sampling import chat_names, chat_sampling, include_usage
from forebay.server.speech import Speech
from forebay.server.state import ServerState
from forebay.structured.tools.deltas import (
    ArgumentsDelta,
    CallStarted,
    ContentDelta,
    Delta,
    ParsedMessage,
    ReasoningDelta,
)
from forebay.structured.tools.request import parse_tool_request

CHAT = Face("chatcmpl")
NULL = b"null"


async def chat_completions(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events."""
    return await converse(state, request, CHAT, _read)


def _read(state: ServerState, raw: bytes) -> Asked:
    body = parse(raw, ChatBody, CHAT_FIELDS)
    check_model(body.model, state.model_name)
    sampling, usage_wanted = chat_sampling(body), include_usage(body)
    wants = parse_tool_request(body.tools, body.tool_choice, body.parallel_tool_calls)
    state.message_format.check(wants.choice)
    tokenizer = state.engine.tokenizer
    prompt = render(tokenizer, parse_messages(body.messages), body, wants)
    return Asked(
        prompt,
        sampling,
        Speech(state.message_format, tokenizer, prompt.text, wants.choice, body.thinking_token_budget),
        body.stream,
        lambda generation: _Wording(state, generation, usage_wanted),
        cache_salt=body.cache_salt,
        names=chat_names(body),
    )


class _Wording(Wording):
    """As events: roles first, then text and finish reasons as they come, then the usage if it is wanted."""

    def __init__(self, state: ServerState, generation: Generation, usage_wanted: bool) -> None:
        self._state = state
        self._generation = generation
        self._usage_wanted = usage_wanted
        self._logprobs = ChatLogprobs(state.engine.tokenizer) if generation.logprobs else None
        self._head = b"data: " + msgspec.json.encode(self._object("chat.completion.chunk"))[:-1]
        self._tail = b',"usage":null}\n\n' if usage_wanted else b"}\n\n"

    def logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        return self._logprobs.of(chunk) if self._logprobs else None

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        worded = [
            {
                "index": choice.index,
                "message": _message(choice.message),
                "logprobs": choice.joined_logprobs(),
                "finish_reason": choice.finish_reason,
            }
            for choice in choices
        ]
        return self._object("chat.completion") | {"choices": worded, "usage": _usage(usage)}

    def start(self, usage: Usage) -> bytes:
        role = b'{"role":"assistant","content":"","refusal":null}'
        return b"".join(self._event(i, role) for i in range(self._generation.num_choices))

    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        deltas = [encoded for delta in said.deltas if (encoded := _delta(delta))]
        logprobs = NULL
        if self._logprobs and chunk.token_ids:
            logprobs = msgspec.json.encode(self.logprobs(chunk))
            deltas = deltas or [b'{"content":""}']
        data = b""
        for delta in deltas:  # log-probabilities of a chunk's tokens come with its first delta
            data += self._event(chunk.index, delta, logprobs)
            logprobs = NULL
        if said.finish_reason:
            data += self._event(chunk.index, b"{}", reason=msgspec.json.encode(said.finish_reason))
        return data

    def end(self, usage: Usage) -> bytes:
        if not self._usage_wanted:
            return b""
        return b'%b,"choices":[],"usage":%b}\n\n' % (self._head, msgspec.json.encode(_usage(usage)))

    def _object(self, kind: str) -> dict[str, Any]:
        return response_head(self._state, self._generation, kind)

    def _event(self, index: int, delta: bytes, logprobs: bytes = NULL, reason: bytes = NULL) -> bytes:
        parts = (self._head, index, delta, logprobs, reason, self._tail)
        return b'%b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]%b' % parts


def _message(said: ParsedMessage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.content, "refusal": None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["content"] = said.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
    return message


def _delta(delta: Delta) -> bytes:
    """The `delta` object of an event; nothing for what a client is not told."""
    match delta:
        case ContentDelta(text=text):
            return b'{"content":%b}' % msgspec.json.encode(text)
        case ReasoningDelta(text=text):
            return b'{"reasoning_content":%b}' % msgspec.json.encode(text)
        case CallStarted(index=index, id=id_, name=name):
            function = {"name": name, "arguments": ""}
            call: dict[str, Any] = {"index": index, "id": id_, "type": "function", "function": function}
        case ArgumentsDelta(index=index, text=text):
            call = {"index": index, "function": {"arguments": text}}
        case _:
            return b""
    return msgspec.json.encode({"tool_calls": [call]})


def _usage(usage: Usage) -> dict[str, Any]:
    return usage.as_dict() | {"completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}}
