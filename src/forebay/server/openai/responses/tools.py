"""`tools` and `tool_choice` of a Responses body, in the form of chat completions and as a response repeats them."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.openai.fields import check_fields
from forebay.server.openai.parse import convert, shorten
from forebay.server.openai.responses.fields import ALLOWED_FIELDS, NAMED_FIELDS, TOOL_FIELDS
from forebay.server.openai.responses.requests import FunctionDefinition, PromptBody
from forebay.structured.tools.request import ToolRequest, parse_tool_request

# Where errors name what these parts of chat's tools are here.
PATHS = {
    r"(\btools\[\d+\])\.function(?=\.)": r"\1",
    r"\btool_choice\.allowed_tools(?=\.)": "tool_choice",
    r"\btool_choice\.function(?=\.)": "tool_choice",
}
_MODES = ("none", "auto", "required")


def tool_request(body: PromptBody) -> ToolRequest:
    """Errors name the paths of chat's tools; see PATHS."""
    tools = []
    for function in functions(body):
        named = {name: value for name, value in function.items() if name != "type" and value is not None}
        tools.append({"type": "function", "function": named})
    return parse_tool_request(tools, _choice(body.tool_choice), body.parallel_tool_calls)


def functions(body: PromptBody) -> list[dict[str, Any]]:
    """The tools with every field, as a response repeats them."""
    found = []
    for i, raw in enumerate(body.tools):
        where = f"tools[{i}]"
        _check_function(raw, where)
        tool = convert(check_fields(raw, TOOL_FIELDS, where), FunctionDefinition, where)
        found.append(msgspec.structs.asdict(tool))
    return found


def _check_function(raw: dict[str, Any], where: str) -> None:
    kind = raw.get("type")
    if isinstance(kind, str) and kind != "function":
        raise UnsupportedFieldError(
            f'{where}.type {shorten(kind)} is not supported: only functions can be called; use "function"',
            param=f"{where}.type",
        )


def _choice(given: str | dict[str, Any] | None) -> Any:
    if given is None or given in _MODES:
        return given
    if isinstance(given, str):
        raise InvalidValueError(
            f'tool_choice is {shorten(given)}; give "none", "auto", "required", {{"type": "function", "name": ...}} or '
            '{"type": "allowed_tools", "mode": ..., "tools": [...]}',
            param="tool_choice",
        )
    if given.get("type") != "allowed_tools":
        return _named(given, "tool_choice")
    fields = check_fields(given, ALLOWED_FIELDS, "tool_choice")
    allowed = {name: value for name, value in fields.items() if name != "type"}
    if isinstance(tools := allowed.get("tools"), list):
        allowed["tools"] = [_named(raw, f"tool_choice.tools[{i}]") for i, raw in enumerate(tools)]
    return {"type": "allowed_tools", "allowed_tools": allowed}


def _named(raw: Any, where: str) -> Any:
    """{"type": "function", "name": ...} in chat's form; what is no object is left for chat's parser to refuse."""
    if not isinstance(raw, dict):
        return raw
    _check_function(raw, where)
    fields = check_fields(raw, NAMED_FIELDS, where)
    return {"type": fields.get("type"), "function": {"name": fields.get("name")}}
