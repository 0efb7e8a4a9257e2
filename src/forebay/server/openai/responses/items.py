"""Output items of a response: reasoning, messages, function calls; whole or as the events they grow by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forebay.server.parts import Part, PartKind, Step
from forebay.server.streaming import named_event

_PREFIXES = {PartKind.TEXT: "msg", PartKind.REASONING: "rs", PartKind.CALL: "fc"}
_DELTAS = {
    PartKind.TEXT: "response.output_text.delta",
    PartKind.REASONING: "response.reasoning_text.delta",
    PartKind.CALL: "response.function_call_arguments.delta",
}


class ItemEvents:
    """The events of output items, and the numbers of all events. logprobs: of the message's tokens so far."""

    def __init__(self, response_id: str) -> None:
        self.logprobs: list[dict[str, Any]] = []
        self._response_id = response_id
        self._next = 0  # sequence number

    def event(self, kind: str, **fields: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return named_event(kind, {"type": kind, "sequence_number": number} | fields)

    def word(
        self, steps: Iterable[tuple[Step, Part, str]], logprobs: list[dict[str, Any]], status: str = "completed"
    ) -> bytes:
        """Steps of a row of parts. logprobs: they go with the first text among them. status: of an item that ends."""
        data = b""
        for step, part, text in steps:
            if step is Step.BEGIN:
                data += self._begin(part)
            elif step is Step.END:
                data += self._end(part, status)
            elif part.kind is PartKind.TEXT:
                data += self.event(_DELTAS[part.kind], **self._in_part(part), delta=text, logprobs=logprobs)
                self.logprobs += logprobs
                logprobs = []
            else:
                data += self.event(_DELTAS[part.kind], **self._where(part), delta=text)
        return data

    def _begin(self, part: Part) -> bytes:
        item = item_of(self._response_id, part, "in_progress", [])
        if part.kind is PartKind.CALL:
            return self.event("response.output_item.added", output_index=part.index, item=item)
        (content,) = item["content"]
        data = self.event("response.output_item.added", output_index=part.index, item=item | {"content": []})
        return data + self.event("response.content_part.added", **self._in_part(part), part=content)

    def _end(self, part: Part, status: str) -> bytes:
        item = item_of(self._response_id, part, status, self.logprobs)
        if part.kind is PartKind.CALL:
            said = {"name": item["name"], "arguments": item["arguments"]}
            data = self.event("response.function_call_arguments.done", **self._where(part), **said)
        else:
            (content,) = item["content"]
            name = "output_text" if part.kind is PartKind.TEXT else "reasoning_text"
            said = {field: content[field] for field in ("text", "logprobs") if field in content}
            data = self.event(f"response.{name}.done", **self._in_part(part), **said)
            data += self.event("response.content_part.done", **self._in_part(part), part=content)
        return data + self.event("response.output_item.done", output_index=part.index, item=item)

    def _where(self, part: Part) -> dict[str, Any]:
        return {"item_id": _item_id(self._response_id, part), "output_index": part.index}

    def _in_part(self, part: Part) -> dict[str, Any]:
        return self._where(part) | {"content_index": 0}


def items_of(response_id: str, parts: list[Part], status: str, logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All items of a response that has ended; one without any gets an empty message. status: of the last one."""
    parts = parts or [Part(PartKind.TEXT, 0)]
    last = len(parts) - 1
    return [item_of(response_id, part, status if part.index == last else "completed", logprobs) for part in parts]


def item_of(response_id: str, part: Part, status: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """logprobs: of a message's tokens."""
    head = {"id": _item_id(response_id, part), "status": status}
    if part.call is not None:
        if status != "in_progress":
            head["status"] = "completed" if part.complete else "incomplete"
        call = {"call_id": part.call.id, "name": part.call.name, "arguments": part.text}
        return head | {"type": "function_call"} | call
    if part.kind is PartKind.REASONING:
        content = {"type": "reasoning_text", "text": part.text}
        return head | {"type": "reasoning", "summary": [], "content": [content]}
    said = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": logprobs}
    return head | {"type": "message", "role": "assistant", "content": [said]}


def _item_id(response_id: str, part: Part) -> str:
    unique = response_id.removeprefix("resp_")
    prefix = _PREFIXES[part.kind]
    return f"{prefix}_{unique}" if part.index == 0 else f"{prefix}_{unique}_{part.index}"
