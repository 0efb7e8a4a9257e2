from __future__ import annotations

from typing import Any

import pytest

from forebay.errors import InvalidValueError, RequestError, UnknownFieldError, UnsupportedFieldError
from forebay.structured.tools.request import (
    MAX_TOOLS,
    ChoiceMode,
    Tool,
    parse_tool_choice,
    parse_tool_request,
    parse_tools,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_tools() -> None:
    given = [
        tool(description="Does.", parameters=SCHEMA, strict=True),
        tool(name="g-2_X"),
        tool(name="h", parameters={}),
    ]
    first, second, third = parse_tools(given)
    assert first == Tool("f", "Does.", SCHEMA, strict=True)
    assert first.parameter_names == ("city",)
    assert second == third or (second.name, third.name) == ("g-2_X", "h")
    assert second.parameters == third.parameters == {"type": "object", "properties": {}}
    assert not second.strict
    assert parse_tools(None) == parse_tools([]) == ()
    assert first.as_dict() == {
        "type": "function",
        "function": {"name": "f", "description": "Does.", "parameters": SCHEMA},
    }


@pytest.mark.parametrize(
    ("tools", "error", "param"),
    [
        ({}, InvalidValueError, "tools"),
        ([1], InvalidValueError, "tools[0]"),
        ([tool()] * (MAX_TOOLS + 1), InvalidValueError, "tools"),
        ([{"function": {"name": "f"}}], InvalidValueError, "tools[0].type"),
        ([{"type": "web_search"}], InvalidValueError, "tools[0].type"),
        ([{"type": "custom", "custom": {"name": "f"}}], UnsupportedFieldError, "tools[0].type"),
        ([{"type": "function"}], InvalidValueError, "tools[0].function"),
        ([tool(), {"type": "function", "function": {"nam": "f"}}], UnknownFieldError, "tools[1].function.nam"),
        ([{"type": "function", "function": {"name": "f"}, "strict": True}], UnknownFieldError, "tools[0].strict"),
        ([{"type": "function", "function": {}}], InvalidValueError, "tools[0].function.name"),
        ([tool(name="")], InvalidValueError, "tools[0].function.name"),
        ([tool(name="a.b")], InvalidValueError, "tools[0].function.name"),
        ([tool(name="a" * 65)], InvalidValueError, "tools[0].function.name"),
        ([tool(name=7)], InvalidValueError, "tools[0].function.name"),
        ([tool(name="f\n")], InvalidValueError, "tools[0].function.name"),
        ([tool(), tool(name="g"), tool()], InvalidValueError, "tools[2].function.name"),
        ([tool(description=1)], InvalidValueError, "tools[0].function.description"),
        ([tool(strict="yes")], InvalidValueError, "tools[0].function.strict"),
        ([tool(parameters=[])], InvalidValueError, "tools[0].function.parameters"),
        ([tool(parameters=deep(70))], InvalidValueError, "tools[0].function.parameters"),
        ([tool(parameters={"type": "string"})], InvalidValueError, "tools[0].function.parameters.type"),
        ([tool(parameters={"properties": {}})], InvalidValueError, "tools[0].function.parameters.type"),
        ([tool(parameters={"type": "object", "properties": []})], InvalidValueError,
         "tools[0].function.parameters.properties"),
        ([tool(parameters={"type": "object", "properties": {"a": "string"}})], InvalidValueError,
         "tools[0].function.parameters.properties.a"),
        ([tool(parameters={"type": "object", "required": "a"})], InvalidValueError,
         "tools[0].function.parameters.required"),
        ([tool(parameters={"type": "object", "required": ["a", 1]})], InvalidValueError,
         "tools[0].function.parameters.required[1]"),
    ],
)  # fmt: skip
def test_wrong_tools_are_named(tools: object, error: type[RequestError], param: str) -> None:
    with pytest.raises(error) as caught:
        parse_tools(tools)
    assert caught.value.param == param
    assert param in caught.value.message


def test_messages_show_value_and_remedy() -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_tools([tool(name="get weather!")])
    assert caught.value.message == (
        'tools[0].function.name must be 1 to 64 letters, digits, _ and -, got "get weather!"'
    )
    with pytest.raises(InvalidValueError) as caught:
        parse_tools([tool(), tool()])
    assert caught.value.message == (
        "tools[1].function.name 'f' is also tools[0].function.name; give each tool its own name"
    )
    with pytest.raises(UnknownFieldError, match="did you mean 'parameters'"):
        parse_tools([tool(parameter={})])


TOOLS = (Tool("f"), Tool("g"), Tool("h"))


@pytest.mark.parametrize(
    ("choice", "mode", "names", "parallel", "restricted"),
    [
        (None, ChoiceMode.AUTO, "fgh", True, False),
        ("none", ChoiceMode.NONE, "fgh", True, False),
        ("auto", ChoiceMode.AUTO, "fgh", True, False),
        ("required", ChoiceMode.REQUIRED, "fgh", True, False),
        ({"type": "function", "function": {"name": "g"}}, ChoiceMode.REQUIRED, "g", False, True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(name="h"), tool()]}},
         ChoiceMode.AUTO, "fh", True, True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool(name="g")]}},
         ChoiceMode.REQUIRED, "g", True, True),
    ],
)  # fmt: skip
def test_tool_choice(choice: object, mode: ChoiceMode, names: str, parallel: bool, restricted: bool) -> None:
    found = parse_tool_choice(choice, TOOLS)
    assert (found.mode, "".join(t.name for t in found.tools), found.parallel, found.restricted) == (
        mode,
        names,
        parallel,
        restricted,
    )


def test_one_request() -> None:
    found = parse_tool_request([tool(), tool(name="g")], "required", False)
    assert (len(found.choice.tools), found.choice.parallel) == (2, False)
    assert found.for_template() == [tool.as_dict() for tool in found.tools]
    assert parse_tool_request([tool()], "none").for_template() is None  # a model that knows of none calls none
    assert parse_tool_request(None, None).choice.mode is ChoiceMode.NONE
    with pytest.raises(InvalidValueError) as caught:
        parse_tool_request([tool()], None, "no")
    assert caught.value.param == "parallel_tool_calls"


def test_tool_choice_without_tools() -> None:
    assert parse_tool_choice(None, ()).mode is ChoiceMode.NONE
    assert parse_tool_choice("auto", ()).mode is ChoiceMode.NONE
    with pytest.raises(InvalidValueError, match="there are no tools; add tools"):
        parse_tool_choice("required", ())


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        (1, "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "custom", "custom": {"name": "f"}}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "x"}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "f"}, "mode": "auto"}, "tool_choice.mode"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": []}}, "tool_choice.allowed_tools.mode"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tool_choice.allowed_tools.tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(), tool(name="x")]}},
         "tool_choice.allowed_tools.tools[1].function.name"),
    ],
)  # fmt: skip
def test_wrong_choices_are_named(choice: object, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_tool_choice(choice, TOOLS)
    assert caught.value.param == param
    assert param in caught.value.message


def test_the_message_lists_the_tools() -> None:
    with pytest.raises(InvalidValueError, match='"x" is not one of this request\'s tools; they are: f, g, h'):
        parse_tool_choice({"type": "function", "function": {"name": "x"}}, TOOLS)
