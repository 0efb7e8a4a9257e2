"""A response in the words of OpenAI's Responses, whole or as their sequence of events."""

from __future__ import annotations

import time
from typing import Any

from forebay.core.outputs import CompletionChunk
from forebay.errors import ForebayError
from forebay.server.answer import Wording
from forebay.server.generation import Generation, Usage
from forebay.server.message_reader import Said
from forebay.server.openai.answer import Choice
from forebay.server.openai.logprobs import ChatLogprobs
from forebay.server.openai.responses.items import ItemEvents, items_of
from forebay.server.openai.responses.requests import ResponseBody
from forebay.server.openai.responses.tools import functions
from forebay.server.parts import PartRow, parts_of
from forebay.server.state import ServerState
from forebay.structured.tools.deltas import ContentDelta, Delta, merged

_NO_TEXT = ContentDelta("")


class ResponseWording(Wording):
    """Events: response.created and in_progress, those of each output item, then response.completed, incomplete or
    failed. All are numbered from 0."""

    done = b""

    def __init__(self, state: ServerState, generation: Generation, body: ResponseBody) -> None:
        self._id = generation.id
        self._created_at = int(time.time())
        self._request = _repeated(body)
        self._logprobs = ChatLogprobs(state.engine.tokenizer) if generation.logprobs else None
        self._items = ItemEvents(generation.id)
        self._row = PartRow()
        self._pending: list[dict[str, Any]] = []  # log-probabilities of tokens whose text is still to come
        self._num_reasoning_tokens = 0  # of those that were pending
        self._status = "completed"

    def logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        return self._logprobs.of(chunk) if self._logprobs else None

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        (choice,) = choices
        status = _status(choice.finish_reason)
        found = choice.joined_logprobs()
        logprobs = found["content"][usage.reasoning_tokens :] if found else []
        deltas: list[Delta] = [*choice.deltas, _NO_TEXT] if logprobs else choice.deltas
        return self._finished(status, items_of(self._id, parts_of(merged(deltas)), status, logprobs), usage)

    def start(self, usage: Usage) -> bytes:
        begun = self._response("in_progress")
        event = self._items.event
        return event("response.created", response=begun) + event("response.in_progress", response=begun)

    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        deltas = said.deltas
        if (found := self.logprobs(chunk)) is not None:
            self._pending += found["content"]
        if chunk.finish_reason is not None:
            self._status = _status(chunk.finish_reason)
            if self._num_reasoning_tokens + len(self._pending) > said.num_reasoning_tokens:
                deltas = [*deltas, _NO_TEXT]  # for the log-probabilities of tokens that are no text, such as the last
        logprobs = self._take(said) if any(isinstance(delta, ContentDelta) for delta in deltas) else []
        return self._items.word(self._row.read(deltas), logprobs)

    def end(self, usage: Usage) -> bytes:
        begun = self._row.read([] if self._row.parts else [_NO_TEXT])
        data = self._items.word(begun, []) + self._items.word(self._row.close(), [], self._status)
        items = items_of(self._id, self._row.parts, self._status, self._items.logprobs)
        response = self._finished(self._status, items, usage)
        return data + self._items.event(f"response.{self._status}", response=response)

    def failed(self, error: ForebayError) -> bytes:
        why = {"code": "server_error", "message": error.message}  # of the documented codes the one that is ours
        return self._items.event("response.failed", response=self._response("failed") | {"error": why})

    def _take(self, said: Said) -> list[dict[str, Any]]:
        """What is pending of the message: reasoning comes first, and has no place for log-probabilities."""
        taken = self._pending[said.num_reasoning_tokens - self._num_reasoning_tokens :]
        self._num_reasoning_tokens, self._pending = said.num_reasoning_tokens, []
        return taken

    def _finished(self, status: str, output: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        completed = status == "completed"
        return self._response(status) | {
            "completed_at": int(time.time()) if completed else None,
            "incomplete_details": None if completed else {"reason": "max_output_tokens"},
            "output": output,
            "usage": _usage(usage),
        }

    def _response(self, status: str) -> dict[str, Any]:
        """The response object, before it has any output."""
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
        } | self._request


def _status(finish_reason: str | None) -> str:
    return "incomplete" if finish_reason == "length" else "completed"


def _repeated(body: ResponseBody) -> dict[str, Any]:
    """What a response repeats of its request, with the values that hold where nothing else was implemented."""
    return {
        "model": body.model,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_logprobs": body.top_logprobs,
        "metadata": body.metadata,
        "user": body.user,
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
        "store": False,
        "background": False,
        "previous_response_id": None,
        "text": {"format": body.text.format or {"type": "text"}},
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "tools": functions(body),
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "truncation": "disabled",
        "service_tier": "default",
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """What is written to the cache is not counted apart."""
    prompt_tokens = usage.generation.num_prompt_tokens
    return {
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": prompt_tokens + usage.completion_tokens,
    }
