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
from forebay.server.openai.responses.items import ItemEvents, message_item
from forebay.server.openai.responses.requests import ResponseBody
from forebay.server.state import ServerState

_STATUSES = {"stop": "completed", "length": "incomplete"}


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
        self._finish_reason: str | None = None

    def logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        return self._logprobs.of(chunk) if self._logprobs else None

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        (choice,) = choices
        found = choice.joined_logprobs()
        status = _STATUSES[str(choice.finish_reason)]
        item = message_item(self._id, 0, status, choice.text, found["content"] if found else [])
        return self._finished(status, [item], usage)

    def start(self, usage: Usage) -> bytes:
        begun = self._response("in_progress")
        event = self._items.event
        return event("response.created", response=begun) + event("response.in_progress", response=begun)

    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        self._finish_reason = chunk.finish_reason or self._finish_reason
        found = self.logprobs(chunk)
        if not chunk.text and not (found and chunk.token_ids):
            return b""
        return self._items.text(chunk.text, found["content"] if found else [])

    def end(self, usage: Usage) -> bytes:
        status = _STATUSES[str(self._finish_reason)]
        data = self._items.close(status)
        response = self._finished(status, self._items.finished, usage)
        return data + self._items.event(f"response.{status}", response=response)

    def failed(self, error: ForebayError) -> bytes:
        why = {"code": "server_error", "message": error.message}  # of the documented codes the one that is ours
        return self._items.event("response.failed", response=self._response("failed") | {"error": why})

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
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
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
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt_tokens + usage.completion_tokens,
    }
