"""A message in Anthropic's words, whole or as their sequence of events."""

from __future__ import annotations

from typing import Any

from forebay.core.outputs import CompletionChunk
from forebay.errors import ForebayError
from forebay.server.answer import Wording
from forebay.server.anthropic.errors import error_object
from forebay.server.generation import Usage
from forebay.server.message_reader import Said
from forebay.server.openai.answer import Choice
from forebay.server.streaming import named_event

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class MessageWording(Wording):
    """Events: message_start, the events of each content block, message_delta with stop reason and usage, message_stop;
    a ping after the first block has begun."""

    done = b""

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model
        self._blocks = _BlockEvents()
        self._stop: dict[str, Any] = _stop(None, None)

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        (choice,) = choices
        content = [_text_block(choice.text)] if choice.text else []
        return self._message(content, _stop(choice.finish_reason, choice.stop_string), usage)

    def start(self, usage: Usage) -> bytes:
        return _event("message_start", message=self._message([], self._stop, usage))

    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        if chunk.finish_reason is not None:
            self._stop = _stop(chunk.finish_reason, chunk.stop_string)
        return self._blocks.text(chunk.text) if chunk.text else b""

    def end(self, usage: Usage) -> bytes:
        delta = _event("message_delta", delta=self._stop, usage=_usage(usage))
        return self._blocks.close() + delta + _event("message_stop")

    def failed(self, error: ForebayError) -> bytes:
        return named_event("error", error_object(error.http_status, error.message))

    def _message(self, content: list[dict[str, Any]], stop: dict[str, Any], usage: Usage) -> dict[str, Any]:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content}
        return head | stop | {"usage": _usage(usage)}


class _BlockEvents:
    """Content blocks as they grow, one open at a time. All that a model writes is text so far; a thinking or tool_use
    block would be one more kind here, opened by a method of its own."""

    def __init__(self) -> None:
        self._index = 0
        self._open: str | None = None  # type of the open block

    def text(self, piece: str) -> bytes:
        return self._in_block(_text_block(""), {"type": "text_delta", "text": piece})

    def close(self) -> bytes:
        """End the open block, if one is."""
        if self._open is None:
            return b""
        self._open = None
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)

    def _in_block(self, empty: dict[str, Any], delta: dict[str, Any]) -> bytes:
        """A delta of a block of `empty`'s type; a new one if another is open, or none."""
        data = b""
        if self._open != empty["type"]:
            data = self.close() + _event("content_block_start", index=self._index, content_block=empty)
            data += _event("ping") if self._index == 0 else b""
            self._open = empty["type"]
        return data + _event("content_block_delta", index=self._index, delta=delta)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _stop(finish_reason: str | None, stop_string: str | None) -> dict[str, Any]:
    """finish_reason: ours, None while the message is not finished."""
    reason = None if finish_reason is None else _STOP_REASONS[finish_reason]
    return {"stop_reason": reason if stop_string is None else "stop_sequence", "stop_sequence": stop_string}


def _usage(usage: Usage) -> dict[str, int]:
    """Their input_tokens are those that were not in the cache. What is written to the cache is not counted apart."""
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.generation.num_prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind} | fields)
