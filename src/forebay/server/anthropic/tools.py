"""`tools` and `tool_choice` of a Messages body, in the form of chat completions."""

from __future__ import annotations

from typing import Any

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.anthropic.fields import TOOL_FIELDS
from forebay.server.anthropic.parse import check_one_of, parse_block
from forebay.server.anthropic.requests import PromptBody, ToolChoiceBody, ToolDefinition
from forebay.server.openai.parse import shorten
from forebay.structured.tools.request import ToolRequest, parse_tool_request

# Where errors name what these parts of chat's tools are here.
PATHS = {
    r"(\btools\[\d+\])\.function\.parameters\b": r"\1.input_schema",
    r"(\btools\[\d+\])\.function(?=\.)": r"\1",
    r"\btool_choice\.function(?=\.)": "tool_choice",
}
_MODES = {"auto": "auto", "any": "required", "none": "none"}


def tool_request(body: PromptBody) -> ToolRequest:
    """Errors name the paths of chat's tools; see PATHS."""
    tools = [_function(raw, f"tools[{i}]") for i, raw in enumerate(body.tools)]
    choice = body.tool_choice
    if choice is None:
        return parse_tool_request(tools, None)
    return parse_tool_request(tools, _choice(choice, tools), not choice.disable_parallel_tool_use)


def _function(raw: dict[str, Any], where: str) -> dict[str, Any]:
    kind = raw.get("type")
    if isinstance(kind, str) and kind != "custom":
        raise UnsupportedFieldError(
            f"{where}.type {shorten(kind)} is not supported: the model knows no tools of its own; give the tool a name "
            "and an input_schema",
            param=f"{where}.type",
        )
    tool = parse_block(raw, TOOL_FIELDS, ToolDefinition, where)
    function = {"name": tool.name, "parameters": tool.input_schema, "strict": tool.strict}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _choice(given: ToolChoiceBody, tools: list[dict[str, Any]]) -> Any:
    check_one_of(given.type, ("auto", "any", "tool", "none"), "tool_choice.type")
    if given.type == "tool":
        if given.name is None:
            raise InvalidValueError("tool_choice.name is required with type tool", param="tool_choice.name")
        return {"type": "function", "function": {"name": given.name}}
    if given.name is not None:
        raise InvalidValueError(
            f"tool_choice.name needs type tool, got {shorten(given.type)}", param="tool_choice.name"
        )
    if given.type == "any" and not tools:
        raise InvalidValueError("tool_choice.type is any, but there are no tools; add tools", param="tool_choice.type")
    return _MODES[given.type]
