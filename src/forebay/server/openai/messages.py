"""`messages` of a chat, and what else its template gets: from JSON to the form that chat templates expect."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.openai.fields import CALL_FIELDS, FUNCTION_FIELDS, MESSAGE_FIELDS, TEXT_PART_FIELDS, check_fields
from forebay.server.openai.parse import convert, shorten
from forebay.server.openai.requests import ChatBody, Message, MessageCall, TextPart, TokenizeBody
from forebay.structured.tools.request import ToolRequest
from forebay.tokenizer import ChatPrompt, Tokenizer

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
REFUSED_ROLES = {"function": "function calls are deprecated; use 'tool'"}
_OURS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "now", "documents", "self")


def parse_messages(raw: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages in the form chat templates expect: role, text, and calls whose arguments are objects."""
    if not raw:
        raise InvalidValueError("messages must hold at least one message", param="messages")
    return [_parse_message(message, f"messages[{i}]") for i, message in enumerate(raw)]


def render(
    tokenizer: Tokenizer, messages: list[dict[str, Any]], body: ChatBody | TokenizeBody, tools: ToolRequest
) -> ChatPrompt:
    """The prompt of parsed messages. Raises as `Tokenizer.chat_prompt` does, and as `template_arguments`."""
    return tokenizer.chat_prompt(
        messages,
        tools=tools.for_template(),
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        **template_arguments(body, tokenizer.chat_template),
    )


def template_arguments(body: ChatBody | TokenizeBody, template: str | None) -> dict[str, Any]:
    """What a request hands to the chat template besides messages and tools."""
    return template_variables(body.chat_template_kwargs, body.reasoning_effort, template)


def template_variables(given: dict[str, Any], effort: str | None, template: str | None) -> dict[str, Any]:
    """The same of any body. given: its chat_template_kwargs. effort: its reasoning_effort."""
    for name in given:
        if name in _OURS:
            raise InvalidValueError(
                f"chat_template_kwargs.{name} is set by the server; remove it", param=f"chat_template_kwargs.{name}"
            )
    if effort is None:
        return given
    if not re.search(r"\breasoning_effort\b", template or ""):
        raise UnsupportedFieldError(
            "reasoning_effort is not supported: this model's chat template does not use it; remove it",
            param="reasoning_effort",
        )
    return given | {"reasoning_effort": effort}


def _parse_message(raw: dict[str, Any], where: str) -> dict[str, Any]:
    role = raw.get("role")
    if isinstance(role, str) and role in REFUSED_ROLES:
        raise UnsupportedFieldError(
            f"{where}.role {role!r} is not supported: {REFUSED_ROLES[role]}", param=f"{where}.role"
        )
    message = convert(check_fields(raw, MESSAGE_FIELDS, where), Message, where)
    if message.role not in ROLES:
        raise InvalidValueError(
            f"{where}.role must be one of {', '.join(ROLES)}, got {shorten(message.role)}", param=f"{where}.role"
        )
    _check_fit(message, where)
    parsed: dict[str, Any] = {"role": ROLES[message.role], "content": _text(message.content, f"{where}.content")}
    if message.tool_calls:
        parsed["tool_calls"] = [_parse_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(message.tool_calls)]
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            parsed[name] = value
    return parsed


def _check_fit(message: Message, where: str) -> None:
    """Fields that only some roles have."""
    if message.content is None and not message.tool_calls:
        raise InvalidValueError(f"{where}.content is required", param=f"{where}.content")
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidValueError(f"{where}.tool_call_id is required with role tool", param=f"{where}.tool_call_id")
    for name, role in (("tool_calls", "assistant"), ("reasoning_content", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, name) not in (None, []) and message.role != role:
            raise InvalidValueError(
                f"{where}.{name} belongs to role {role}, got {message.role}; remove it", param=f"{where}.{name}"
            )


def _parse_call(raw: dict[str, Any], where: str) -> dict[str, Any]:
    given = check_fields(raw, CALL_FIELDS, where)
    if isinstance(function := given.get("function"), dict):
        given["function"] = check_fields(function, FUNCTION_FIELDS, f"{where}.function")
    call = convert(given, MessageCall, where)
    arguments = call_arguments(call.function.arguments)
    parsed = {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
    return parsed if call.id is None else parsed | {"id": call.id}


def call_arguments(text: str) -> dict[str, Any] | str:
    """Arguments as chat templates expect them: an object, or the text of a call that the model broke off."""
    try:
        arguments = msgspec.json.decode(text)
    except ValueError:
        return text
    return arguments if isinstance(arguments, dict) else text


def _text(content: str | list[dict[str, Any]] | None, where: str) -> str:
    if isinstance(content, list):
        return "\n".join(_parse_part(part, f"{where}[{i}]") for i, part in enumerate(content))
    return content or ""


def _parse_part(raw: dict[str, Any], where: str) -> str:
    kind = raw.get("type")
    if isinstance(kind, str) and kind != "text":
        raise UnsupportedFieldError(
            f"{where}.type {shorten(kind)} is not supported: this model reads text; send parts of type 'text'",
            param=f"{where}.type",
        )
    return convert(check_fields(raw, TEXT_PART_FIELDS, where), TextPart, where).text
