"""A message in Anthropic's words, whole or as their sequence of events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forebay.core.outputs import CompletionChunk
from forebay.errors import ForebayError
from forebay.server.answer import Wording
from forebay.server.anthropic.errors import error_object
from forebay.server.anthropic.partial_input import tool_input
from forebay.server.generation import Usage
from forebay.server.message_reader import TOOL_CALLS, Said
from forebay.server.openai.answer import Choice
from forebay.server.parts import Part, PartKind, PartRow, Step, parts_of
from forebay.server.streaming import named_event
from forebay.structured.tools.deltas import merged

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", TOOL_CALLS: "tool_use"}


class MessageWording(Wording):
    """Events: message_start, the events of each content block, message_delta with stop reason and usage, message_stop;
    a ping after the first block has begun."""

    done = b""

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model
        self._row = PartRow()
        self._stop: dict[str, Any] = _stop(None, None)

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, Any]:
        (choice,) = choices
        content = [_block(part) for part in parts_of(merged(choice.deltas))]
        return self._message(content, _stop(choice.finish_reason, choice.stop_string), usage)

    def start(self, usage: Usage) -> bytes:
        return _event("message_start", message=self._message([], self._stop, usage))

    def piece(self, chunk: CompletionChunk, said: Said) -> bytes:
        if said.finish_reason is not None:
            self._stop = _stop(said.finish_reason, chunk.stop_string)
        return _worded(self._row.read(said.deltas))

    def end(self, usage: Usage) -> bytes:
        delta = _event("message_delta", delta=self._stop, usage=_usage(usage))
        return _worded(self._row.close()) + delta + _event("message_stop")

    def failed(self, error: ForebayError) -> bytes:
        return named_event("error", error_object(error.http_status, error.message))

    def _message(self, content: list[dict[str, Any]], stop: dict[str, Any], usage: Usage) -> dict[str, Any]:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content}
        return head | stop | {"usage": _usage(usage)}


def _worded(steps: Iterable[tuple[Step, Part, str]]) -> bytes:
    return b"".join(_word(step, part, text) for step, part, text in steps)


def _word(step: Step, part: Part, text: str) -> bytes:
    """The events of one step of a block."""
    if step is Step.BEGIN:
        begun = _event("content_block_start", index=part.index, content_block=_block(part))
        return begun + _event("ping") if part.index == 0 else begun
    if step is Step.GROW:
        return _event("content_block_delta", index=part.index, delta=_delta(part.kind, text))
    ended = _event("content_block_stop", index=part.index)
    if part.kind is not PartKind.REASONING:
        return ended
    signature = {"type": "signature_delta", "signature": ""}
    return _event("content_block_delta", index=part.index, delta=signature) + ended


def _block(part: Part) -> dict[str, Any]:
    if part.call is not None:
        return {"type": "tool_use", "id": part.call.id, "name": part.call.name, "input": tool_input(part.text)}
    if part.kind is PartKind.REASONING:
        return {"type": "thinking", "thinking": part.text, "signature": ""}  # nothing is signed here
    return {"type": "text", "text": part.text}


def _delta(kind: PartKind, text: str) -> dict[str, str]:
    if kind is PartKind.CALL:
        return {"type": "input_json_delta", "partial_json": text}
    if kind is PartKind.REASONING:
        return {"type": "thinking_delta", "thinking": text}
    return {"type": "text_delta", "text": text}


def _stop(finish_reason: str | None, stop_string: str | None) -> dict[str, Any]:
    """finish_reason: ours, None while the message is not finished."""
    reason = None if finish_reason is None else _STOP_REASONS[finish_reason]
    return {"stop_reason": reason if stop_string is None else "stop_sequence", "stop_sequence": stop_string}


def _usage(usage: Usage) -> dict[str, Any]:
    """Their input_tokens are those that were not in the cache. What is written to the cache is not counted apart."""
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.generation.num_prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind} | fields)
