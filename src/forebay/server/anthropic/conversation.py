"""The system prompt and messages of a Messages body as turns for a chat template."""

from __future__ import annotations

from typing import Any

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.anthropic.fields import (
    BLOCKS,
    MESSAGE_FIELDS,
    RESULT_BLOCKS,
    TEXT_BLOCK_FIELDS,
    THINKING_BLOCK_FIELDS,
    TOOL_RESULT_FIELDS,
    TOOL_USE_FIELDS,
)
from forebay.server.anthropic.parse import check_one_of, parse_block
from forebay.server.anthropic.requests import (
    InputMessage,
    PromptBody,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from forebay.server.openai.fields import FieldTable, Kind, check_fields
from forebay.server.openai.parse import convert, shorten
from forebay.tokenizer import ChatPrompt, Tokenizer

ROLES = ("user", "assistant", "system")
_ROLE_OF = {"thinking": "assistant", "tool_use": "assistant", "tool_result": "user"}  # text is anyone's

Turn = dict[str, Any]  # role and content, calls and reasoning, as chat templates expect them


def conversation(body: PromptBody) -> list[Turn]:
    """Messages of one role in a row are one turn, as the API documents; a tool_result is a turn of role tool.

    Raises RequestError with the path of what is wrong.
    """
    if not body.messages:
        raise InvalidValueError("messages must hold at least one message", param="messages")
    reader = _Reader()
    if body.system:
        reader.read("system", body.system, "system")
        reader.turns = [turn for turn in reader.turns if turn["content"]]
    for i, raw in enumerate(body.messages):
        where = f"messages[{i}]"
        message = convert(check_fields(raw, MESSAGE_FIELDS, where), InputMessage, where)
        check_one_of(message.role, ROLES, f"{where}.role")
        reader.read(message.role, message.content, f"{where}.content")
    if reader.turns[-1].get("tool_calls"):
        raise InvalidValueError(
            f"messages[{len(body.messages) - 1}] ends with a tool_use; send a message of the user's with its "
            "tool_result after it",
            param=f"messages[{len(body.messages) - 1}]",
        )
    return reader.turns


def render(
    tokenizer: Tokenizer, turns: list[Turn], tools: list[dict[str, Any]] | None = None, **variables: Any
) -> ChatPrompt:
    """The prompt. If the last turn is the assistant's, it ends where that turn does and the answer continues it.

    Raises UnsupportedFieldError for a template that does not show the last turn as it is.
    """
    going_on = turns[-1]["role"] == "assistant"
    return tokenizer.chat_prompt(turns, tools=tools, continue_final_message=going_on, **variables)


class _Reader:
    """Puts blocks together as turns."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._calls: set[str] = set()  # ids of tool_use blocks

    def read(self, role: str, content: str | list[dict[str, Any]], where: str) -> None:
        """One message."""
        if isinstance(content, str) or not content:
            self._text(role, content if isinstance(content, str) else "")
            return
        for i, raw in enumerate(content):
            self._block(role, raw, f"{where}[{i}]")

    def _block(self, role: str, raw: dict[str, Any], where: str) -> None:
        kind = _kind(raw, BLOCKS, where)
        if _ROLE_OF.get(kind, role) != role:
            raise InvalidValueError(
                f"{where}.type {kind!r} belongs to role {_ROLE_OF[kind]}, got {role}", param=f"{where}.type"
            )
        if kind == "thinking":
            thought = parse_block(raw, THINKING_BLOCK_FIELDS, ThinkingBlock, where).thinking
            turn = self._turn(role)
            turn["reasoning_content"] = _joined(turn.get("reasoning_content", ""), thought)
        elif kind == "tool_use":
            call = parse_block(raw, TOOL_USE_FIELDS, ToolUseBlock, where)
            self._calls.add(call.id)
            function = {"name": call.name, "arguments": call.input}
            calls = self._turn(role).setdefault("tool_calls", [])
            calls.append({"id": call.id, "type": "function", "function": function})
        elif kind == "tool_result":
            self._result(parse_block(raw, TOOL_RESULT_FIELDS, ToolResultBlock, where), where)
        else:
            self._text(role, parse_block(raw, TEXT_BLOCK_FIELDS, TextBlock, where).text)

    def _result(self, result: ToolResultBlock, where: str) -> None:
        if result.tool_use_id not in self._calls:
            raise InvalidValueError(
                f"{where}.tool_use_id {shorten(result.tool_use_id)} is the id of no tool_use before it; send the "
                "message with that",
                param=f"{where}.tool_use_id",
            )
        text = result.content
        if not isinstance(text, str):
            text = "\n".join(_result_text(raw, f"{where}.content[{i}]") for i, raw in enumerate(text))
        self.turns.append({"role": "tool", "tool_call_id": result.tool_use_id, "content": text})

    def _text(self, role: str, text: str) -> None:
        turn = self._turn(role)
        turn["content"] = _joined(turn["content"], text)

    def _turn(self, role: str) -> Turn:
        """The turn that goes on: the last one, if its role is this one."""
        if not self.turns or self.turns[-1]["role"] != role:
            self.turns.append({"role": role, "content": ""})
        return self.turns[-1]


def _joined(before: str, text: str) -> str:
    return f"{before}\n{text}" if before else text


def _kind(raw: dict[str, Any], known: FieldTable, where: str) -> str:
    """The type of a block. Raises InvalidValueError for one that is none, UnsupportedFieldError for what is refused."""
    kind = raw.get("type")
    if not isinstance(kind, str):
        return "text"  # whose fields say what is missing
    check_one_of(kind, known, f"{where}.type")
    if known[kind].kind is Kind.REFUSED:
        raise UnsupportedFieldError(
            f"{where}.type {kind!r} is not supported: {known[kind].why}; send blocks of type 'text'",
            param=f"{where}.type",
        )
    return kind


def _result_text(raw: dict[str, Any], where: str) -> str:
    _kind(raw, RESULT_BLOCKS, where)
    return parse_block(raw, TEXT_BLOCK_FIELDS, TextBlock, where).text
