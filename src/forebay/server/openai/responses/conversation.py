"""The instructions and input items of a Responses body as turns for a chat template."""

from __future__ import annotations

from typing import Any

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.openai.fields import check_fields
from forebay.server.openai.messages import call_arguments
from forebay.server.openai.parse import convert, shorten
from forebay.server.openai.responses.fields import (
    CALL_FIELDS,
    ITEM_FIELDS,
    OUTPUT_FIELDS,
    PART_FIELDS,
    REASONING_ITEM_FIELDS,
    REASONING_PART_FIELDS,
)
from forebay.server.openai.responses.requests import (
    CallItem,
    InputItem,
    OutputItem,
    PromptBody,
    ReasoningItem,
    ReasoningPart,
    TextPart,
)

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TEXT_PARTS = ("input_text", "output_text")
ITEMS = ("message", "function_call", "function_call_output", "reasoning")

Turn = dict[str, Any]  # role and content, calls and reasoning, as chat templates expect them


def conversation(body: PromptBody) -> list[Turn]:
    """Reasoning, a message and calls in a row, as one response has them, are one turn of the assistant's."""
    reader = _Reader()
    if body.instructions:
        reader.turns.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*reader.turns, {"role": "user", "content": body.input}]
    if not body.input:
        raise InvalidValueError("input must be a string or hold at least one message", param="input")
    for i, item in enumerate(body.input):
        reader.read(item, f"input[{i}]")
    return reader.turns


class _Reader:
    """Puts items together as turns."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._calls: set[str] = set()  # call_ids of function_call items

    def read(self, raw: Turn, where: str) -> None:
        kind = raw.get("type")
        if kind == "item_reference":
            raise UnsupportedFieldError(
                f"{where}.type 'item_reference' is not supported: items are not stored; send the item itself",
                param=f"{where}.type",
            )
        if kind == "function_call":
            self._call(convert(check_fields(raw, CALL_FIELDS, where), CallItem, where))
        elif kind == "function_call_output":
            self._output(convert(check_fields(raw, OUTPUT_FIELDS, where), OutputItem, where), where)
        elif kind == "reasoning":
            self._reasoning(convert(check_fields(raw, REASONING_ITEM_FIELDS, where), ReasoningItem, where), where)
        elif isinstance(kind, str) and kind != "message":
            raise UnsupportedFieldError(
                f"{where}.type {shorten(kind)} is not supported: built-in tools are not implemented; send items of "
                f"type {', '.join(ITEMS)}",
                param=f"{where}.type",
            )
        else:
            self._message(convert(check_fields(raw, ITEM_FIELDS, where), InputItem, where), where)

    def _message(self, item: InputItem, where: str) -> None:
        if item.role not in ROLES:
            raise InvalidValueError(
                f"{where}.role must be one of {', '.join(ROLES)}, got {shorten(item.role)}", param=f"{where}.role"
            )
        text = _text(item.content, f"{where}.content")
        turn = self._said() if item.role == "assistant" else None
        if turn is None or (turn["content"] and "tool_calls" not in turn):
            self.turns.append({"role": ROLES[item.role], "content": text})
        else:
            turn["content"] = f"{turn['content']}\n{text}" if turn["content"] else text

    def _reasoning(self, item: ReasoningItem, where: str) -> None:
        thought = "\n".join(_reasoning_text(part, f"{where}.content[{i}]") for i, part in enumerate(item.content))
        self.turns.append({"role": "assistant", "content": "", "reasoning_content": thought})

    def _call(self, item: CallItem) -> None:
        self._calls.add(item.call_id)
        if (turn := self._said()) is None:
            turn = {"role": "assistant", "content": ""}
            self.turns.append(turn)
        function = {"name": item.name, "arguments": call_arguments(item.arguments)}
        turn.setdefault("tool_calls", []).append({"type": "function", "function": function, "id": item.call_id})

    def _output(self, item: OutputItem, where: str) -> None:
        if item.call_id not in self._calls:
            raise InvalidValueError(
                f"{where}.call_id {shorten(item.call_id)} is the call_id of no function_call before it; send that item",
                param=f"{where}.call_id",
            )
        turn = {"role": "tool", "content": _text(item.output, f"{where}.output"), "tool_call_id": item.call_id}
        self.turns.append(turn if item.name is None else turn | {"name": item.name})

    def _said(self) -> Turn | None:
        """The assistant's turn that goes on, if the last one is its."""
        return self.turns[-1] if self.turns and self.turns[-1]["role"] == "assistant" else None


def _text(content: str | list[dict[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(raw: dict[str, Any], where: str) -> str:
    kind = raw.get("type")
    if isinstance(kind, str) and kind not in TEXT_PARTS:
        raise UnsupportedFieldError(
            f"{where}.type {shorten(kind)} is not supported: this model reads text; send parts of type 'input_text'",
            param=f"{where}.type",
        )
    return convert(check_fields(raw, PART_FIELDS, where), TextPart, where).text


def _reasoning_text(raw: dict[str, Any], where: str) -> str:
    part = convert(check_fields(raw, REASONING_PART_FIELDS, where), ReasoningPart, where)
    if part.type != "reasoning_text":
        raise InvalidValueError(f"{where}.type must be reasoning_text, got {shorten(part.type)}", param=f"{where}.type")
    return part.text
