"""`tools` and `tool_choice` of a request, checked.

Source: OpenAI's OpenAPI document 2.3.0, CreateChatCompletionRequest.
"""

from __future__ import annotations

import difflib
import enum
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay.errors import InvalidValueError, UnknownFieldError, UnsupportedFieldError

MAX_TOOLS = 128
MAX_DEPTH = 64  # of objects and arrays in a schema
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME_RULE = "1 to 64 letters, digits, _ and -"
_TOOL_FIELDS = ("type", "function")
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_MODES = ("none", "auto", "required")
_CHOICES = (
    'give "none", "auto", "required", {"type": "function", "function": {"name": ...}} '
    'or {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}'
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call.

    parameters  JSON schema of an object
    strict      arguments must follow it
    param       the field of the request that holds the parameters
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False
    param: str = field(default="tools", compare=False)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """In the order of the schema."""
        return tuple(self.parameters.get("properties", ()))

    def as_dict(self) -> dict[str, Any]:
        """The form chat templates expect in `tools`."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function | {"parameters": dict(self.parameters)}}


class ChoiceMode(enum.StrEnum):
    NONE = "none"  # no call
    AUTO = "auto"  # a message, calls, or both
    REQUIRED = "required"  # at least one call


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """tools: those that may be called. restricted: fewer than the request has. parallel: a message may hold several
    calls; one, where the client named the function.
    """

    mode: ChoiceMode
    tools: tuple[Tool, ...] = ()
    restricted: bool = False
    parallel: bool = True

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        return () if self.mode is ChoiceMode.NONE else self.tools


NO_TOOLS = ToolChoice(ChoiceMode.NONE)


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a request says about tools."""

    tools: tuple[Tool, ...]
    choice: ToolChoice

    def for_template(self) -> list[dict[str, Any]] | None:
        """What the chat template gets as `tools`. With "none" the model is not told of any, so it calls none."""
        return [tool.as_dict() for tool in self.tools] if self.choice.callable_tools else None


def parse_tool_request(tools: object, tool_choice: object, parallel_tool_calls: object = None) -> ToolRequest:
    """The three fields of a request, checked; None where one is absent. RequestError: the path of what is wrong."""
    if not isinstance(parallel_tool_calls, bool | None):
        raise _invalid("parallel_tool_calls", "true or false", parallel_tool_calls)
    parsed = parse_tools(tools)
    return ToolRequest(parsed, parse_tool_choice(tool_choice, parsed, parallel=parallel_tool_calls is not False))


def parse_tools(value: object) -> tuple[Tool, ...]:
    """The tools of a request's `tools` field; none for null and [].

    Raises InvalidValueError, UnknownFieldError or UnsupportedFieldError with the path of what is wrong.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _invalid("tools", "an array of tools", value)
    if len(value) > MAX_TOOLS:
        raise InvalidValueError(f"tools has {len(value)} entries, more than {MAX_TOOLS}; send fewer", param="tools")
    tools: dict[str, Tool] = {}
    for i, item in enumerate(value):
        tool = _parse_tool(item, f"tools[{i}]")
        if tool.name in tools:
            path = f"tools[{i}].function.name"
            first = list(tools).index(tool.name)
            raise InvalidValueError(
                f"{path} {tool.name!r} is also tools[{first}].function.name; give each tool its own name", param=path
            )
        tools[tool.name] = tool
    return tuple(tools.values())


def parse_tool_choice(value: object, tools: Sequence[Tool], *, parallel: bool = True) -> ToolChoice:
    """What `tool_choice` says about these tools. Absent: "auto" if there are any, else "none"."""
    tools = tuple(tools)
    if value is None:
        return ToolChoice(ChoiceMode.AUTO if tools else ChoiceMode.NONE, tools, parallel=parallel)
    if isinstance(value, str):
        if value not in _MODES:
            raise InvalidValueError(f"tool_choice is {_shown(value)}; {_CHOICES}", param="tool_choice")
        mode = ChoiceMode(value)
        if not tools and mode is ChoiceMode.REQUIRED:
            raise InvalidValueError('tool_choice is "required" but there are no tools; add tools', param="tool_choice")
        return ToolChoice(mode if tools else ChoiceMode.NONE, tools, parallel=parallel)
    if not isinstance(value, dict):
        raise InvalidValueError(f"tool_choice is {_shown(value)}; {_CHOICES}", param="tool_choice")
    if value.get("type") == "allowed_tools":
        return _parse_allowed(value, tools, parallel)
    named = _parse_named(value, tools, "tool_choice")
    return ToolChoice(ChoiceMode.REQUIRED, (named,), restricted=True, parallel=False)


def _parse_tool(value: object, path: str) -> Tool:
    raw = _object(value, path)
    _check_type(raw, path)
    _check_names(raw, _TOOL_FIELDS, path)
    path += ".function"
    function = _object(raw.get("function"), path)
    _check_names(function, _FUNCTION_FIELDS, path)
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid(f"{path}.name", _NAME_RULE, name)
    description = function.get("description")
    if not isinstance(description, str | None):
        raise _invalid(f"{path}.description", "a string", description)
    strict = function.get("strict")
    if not isinstance(strict, bool | None):
        raise _invalid(f"{path}.strict", "true or false", strict)
    if (parameters := function.get("parameters")) is None:
        return Tool(name, description, strict=bool(strict))
    path += ".parameters"
    return Tool(name, description, _parse_parameters(parameters, path), bool(strict), path)


def _parse_parameters(value: object, path: str) -> Mapping[str, Any]:
    """A JSON schema of an object. What else stands in the schema is checked where it is compiled, if it is."""
    schema = _object(value, path)
    if _is_deeper(schema, MAX_DEPTH):
        raise InvalidValueError(f"{path} is nested more than {MAX_DEPTH} deep; flatten it", param=path)
    if not schema:
        return {"type": "object", "properties": {}}
    if schema.get("type") != "object":
        raise _invalid(f"{path}.type", '"object"', schema.get("type"))
    properties = _object(schema.get("properties", {}), f"{path}.properties")
    for name, item in properties.items():
        if not isinstance(item, dict | bool):
            raise _invalid(f"{path}.properties.{_short(name)}", "a JSON schema", item)
    required = schema.get("required", [])
    if not isinstance(required, list):
        raise _invalid(f"{path}.required", "an array of names", required)
    for i, name in enumerate(required):
        if not isinstance(name, str):
            raise _invalid(f"{path}.required[{i}]", "a string", name)
    return schema


def _is_deeper(value: object, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in items)


def _parse_allowed(value: Mapping[str, Any], tools: tuple[Tool, ...], parallel: bool) -> ToolChoice:
    path = "tool_choice.allowed_tools"
    _check_names(value, ("type", "allowed_tools"), "tool_choice")
    allowed = _object(value.get("allowed_tools"), path)
    _check_names(allowed, ("mode", "tools"), path)
    mode = allowed.get("mode")
    if mode not in ("auto", "required"):
        raise _invalid(f"{path}.mode", '"auto" or "required"', mode)
    listed = allowed.get("tools")
    if not isinstance(listed, list) or not listed:
        raise _invalid(f"{path}.tools", "an array of at least one tool", listed)
    named = {_parse_named(item, tools, f"{path}.tools[{i}]").name for i, item in enumerate(listed)}
    chosen = tuple(tool for tool in tools if tool.name in named)
    return ToolChoice(ChoiceMode(mode), chosen, restricted=len(chosen) < len(tools), parallel=parallel)


def _parse_named(value: object, tools: tuple[Tool, ...], path: str) -> Tool:
    """{"type": "function", "function": {"name": ...}}"""
    raw = _object(value, path)
    _check_type(raw, path)
    _check_names(raw, _TOOL_FIELDS, path)
    path += ".function"
    function = _object(raw.get("function"), path)
    _check_names(function, ("name",), path)
    name = function.get("name")
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools[:8]) or "none"
    raise InvalidValueError(
        f"{path}.name {_shown(name)} is not one of this request's tools; they are: {known}", param=f"{path}.name"
    )


def _check_type(raw: Mapping[str, Any], path: str) -> None:
    if raw.get("type") == "custom":
        raise UnsupportedFieldError(
            f'{path}.type "custom" is not supported: only functions can be called; use "function"', param=f"{path}.type"
        )
    if raw.get("type") != "function":
        raise _invalid(f"{path}.type", '"function"', raw.get("type"))


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(path, "an object", value)
    return value


def _check_names(raw: Mapping[str, Any], known: Collection[str], path: str) -> None:
    for name in raw:
        if name not in known:
            close = difflib.get_close_matches(name[:100], known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else "remove it"
            where = f"{path}.{_short(name)}"
            raise UnknownFieldError(f"unknown field {where!r}; {advice}", param=where)


def _invalid(path: str, wanted: str, value: object) -> InvalidValueError:
    if value is None:
        return InvalidValueError(f"{path} is required: {wanted}", param=path)
    return InvalidValueError(f"{path} must be {wanted}, got {_shown(value)}", param=path)


def _shown(value: object) -> str:
    """A value for an error message, at most some 60 characters."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value[:100] if isinstance(value, str) else value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:60] + "..."


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:60] + "..."
