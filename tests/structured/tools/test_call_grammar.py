"""The grammars of calls: what they allow, and that whatever they make is a call that follows its schema."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.structured.reasoning import ReasoningFormat
from forebay.structured.tools.markers import special_markers
from forebay.structured.tools.message import MessageFormat
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool, parse_tool_choice
from tests.structured.tools.calls import RENDERERS, Call, check_arguments, check_calls, dumps, parsed, pythonic
from tests.structured.tools.grammars import accepts, backend_named, tokenizer_named, walk

NAMES = list(FORMATS)
TOKENIZERS = ("marked", "qwen2")  # markers as special tokens; as plain text in a real vocabulary
THINK = ReasoningFormat("<think>", "</think>")
WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["c", "f's", None]},
            "detail": {"type": ["boolean", "null", "number"]},
            "at": {"$ref": "#/$defs/point"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
            "more": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {}}, "required": ["b"]},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}},
    },
    strict=True,
)
TIME = Tool("get_time")
TOOLS = (WEATHER, TIME)


def spec(
    name: str,
    choice: object = "required",
    *,
    parallel: bool = True,
    tools: Sequence[Tool] = TOOLS,
    tokenizer: str = "qwen2",
    reasoning: ReasoningFormat | None = None,
    prompt: str = "",
) -> GrammarSpec | None:
    speaks = MessageFormat(FORMATS[name], reasoning)
    ids = special_markers(tokenizer_named(tokenizer), speaks.markers)
    speaks = MessageFormat(FORMATS[name], reasoning, ids)
    return speaks.grammar(prompt, parse_tool_choice(choice, tools, parallel=parallel))


def allowed(tokenizer: str, text: str, name: str, choice: object = "required", **how: Any) -> tuple[bool, bool]:
    """(every token is allowed, the text may end there)"""
    found = spec(name, choice, tokenizer=tokenizer, **how)
    assert found is not None
    return accepts(tokenizer, found, text)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_when_there_is_nothing_to_enforce() -> None:
    free = (TIME, Tool("f"))
    assert spec("hermes", "none") is None
    assert spec("hermes", None, tools=()) is None
    assert spec("hermes", "auto", tools=free) is None
    assert spec("hermes", "auto", tools=free, parallel=False) is not None
    assert spec("hermes", "auto") is not None
    one = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("f")]}}
    assert spec("hermes", one, tools=free) is not None


def test_a_model_that_is_not_known_to_call_tools() -> None:
    speaks = MessageFormat(None, THINK)
    assert speaks.grammar("", parse_tool_choice("none", TOOLS)) is None
    with pytest.raises(UnsupportedFieldError, match="set tool_format to one of hermes"):
        speaks.grammar("", parse_tool_choice("auto", TOOLS))
    with pytest.raises(UnsupportedFieldError, match="tools"):
        speaks.parser("", parse_tool_choice("auto", TOOLS), "request-1")


def test_the_text_of_a_grammar() -> None:
    speaks = MessageFormat(FORMATS["hermes"], None, {"<tool_call>": 7, "</tool_call>": 8})
    found = speaks.grammar("", parse_tool_choice(named("get_time"), TOOLS))
    assert found is not None
    assert (found.kind, found.param) == (GrammarKind.TOOL_CALLS, "tools")
    arguments, first = found.source.splitlines()[2:4]
    assert arguments.startswith('arguments_0: %json {"x-guidance":')
    assert first == 'first_0: <[7]> "\\n{\\"name\\": \\"get_time\\", \\"arguments\\": " arguments_0 "}\\n" <[8]>'


@pytest.mark.parametrize("name", ["hermes", "pythonic"])
@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"not": {}}, "/not"),
        ({"properties": {"a": {"uniqueItems": True}}}, "/properties/a/uniqueItems"),
        ({"properties": {"a": {"type": "array", "enum": ["x"]}}}, "/properties/a/enum"),
        ({"properties": {"a/b~": {"type": "strin"}}}, "/properties/a~1b~0/type"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "/properties/a/$ref"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_pointer(name: str, change: dict[str, Any], pointer: str) -> None:
    tool = Tool("f", parameters={"type": "object", **change}, strict=True, param="tools[3].function.parameters")
    with pytest.raises(InvalidValueError) as caught:
        spec(name, tools=(tool,))
    assert caught.value.param == "tools[3].function.parameters"
    assert caught.value.message.startswith(f"tools[3].function.parameters: at {pointer}: ")
    assert spec(name, tools=(Tool("f", parameters=tool.parameters),)) is not None  # not strict


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"anyOf": [{"required": ["a"]}]}, "/anyOf"),
        ({"patternProperties": {"^a": {}}}, "/patternProperties"),
        ({"properties": {"a b": {}}}, "/properties/a b"),
        ({"properties": {"a": {}}, "required": ["no name"]}, "/required/0"),
    ],
)
def test_python_arguments_that_cannot_be_are_refused_by_pointer(change: dict[str, Any], pointer: str) -> None:
    tool = Tool("f", parameters={"type": "object", **change}, strict=True)
    with pytest.raises(InvalidValueError, match=f"at {pointer}: "):
        spec("pythonic", tools=(tool,))
    assert spec("hermes", tools=(tool,)) is not None  # no concern of a format that writes JSON


GOOD: list[Call] = [
    ("get_weather", {"city": "Rome"}),
    ("get_weather", {"city": "R'o\"me\n", "days": 3, "unit": "f's", "detail": True, "at": [1, 2.5], "tags": ["a"]}),
    ("get_weather", {"city": "", "unit": None, "detail": 1.5, "tags": ["a", "b"], "more": {"a": False, "b": [1, "x"]}}),
    ("get_weather", {"city": "漢🙂", "detail": None, "more": {"b": {"x": 1}}}),
    ("get_time", {"zone": "CET", "n": 1}),
    ("get_time", {}),
]
BAD: list[Call] = [
    ("other", {}),
    ("get_weather", {}),
    ("get_weather", {"city": 5}),
    ("get_weather", {"city": "x", "days": 0}),
    ("get_weather", {"city": "x", "days": 10}),
    ("get_weather", {"city": "x", "unit": "k"}),
    ("get_weather", {"city": "x", "detail": "yes"}),
    ("get_weather", {"city": "x", "at": [1]}),
    ("get_weather", {"city": "x", "tags": []}),
    ("get_weather", {"city": "x", "tags": ["a", "b", "c"]}),
    ("get_weather", {"city": "x", "more": {"a": True}}),
    ("get_weather", {"city": "x", "else": 1}),
]


def written(name: str, calls: Sequence[Call]) -> str:
    """As a grammar has it: JSON values, and neither ids of a model's making nor the token that ends a generation."""
    if FORMATS[name].shape.python:
        return RENDERERS[name](calls).replace(pythonic(calls), pythonic(calls, dumps))
    text = RENDERERS[name](calls)
    for i in range(len(calls)):
        text = text.replace(f', "id": "abcdefgh{i % 10}"', "") if name == "mistral" else text
    return text.removesuffix("<|call|>")


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", GOOD, ids=json.dumps)
def test_required_calls_are_allowed_and_parse(name: str, call: Call, tokenizer: str) -> None:
    text = written(name, [call])
    assert allowed(tokenizer, text, name) == (True, True)
    (found,) = parsed(name, text, TOOLS).calls
    assert (found.name, json.loads(found.arguments)) == call


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", BAD, ids=json.dumps)
def test_calls_that_break_the_schema_are_not_allowed(name: str, call: Call, tokenizer: str) -> None:
    """Nor are they as free text, unless it is text to the parser, too: a bare call of no tool."""
    text = written(name, [call])
    assert allowed(tokenizer, text, name) != (True, True)
    if parsed(name, text, TOOLS).calls:
        assert allowed(tokenizer, text, name, "auto") != (True, True)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "harmony"])
def test_how_many_calls(name: str, tokenizer: str) -> None:
    two = written(name, [GOOD[0], GOOD[5]])
    assert allowed(tokenizer, two, name) == (True, True)
    assert allowed(tokenizer, f"I see.\n{two}", name, "auto") == (True, True)
    for choice in ("required", "auto", named("get_weather")):
        assert allowed(tokenizer, two, name, choice, parallel=False) != (True, True)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "harmony"])
def test_free_text_is_for_auto_only(name: str, tokenizer: str) -> None:
    assert allowed(tokenizer, "Just words, [1], {2}.", name, "auto") == (True, True)
    assert not allowed(tokenizer, "Just words.", name)[0]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_channels(tokenizer: str) -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>Four."
    call = written("harmony", [GOOD[0]])
    assert allowed(tokenizer, thought + final, "harmony", "auto") == (True, True)
    assert allowed(tokenizer, thought + call, "harmony", "auto") == (True, True)
    assert allowed(tokenizer, thought + thought + call, "harmony") == (True, True)
    assert not allowed(tokenizer, thought + final, "harmony")[0]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", ["hermes", "mistral_args", "pythonic"])
def test_reasoning_comes_before_required_calls(name: str, tokenizer: str) -> None:
    call = written(name, [GOOD[0]])
    for prompt, text in (("<think>\n", "Hm.\n</think>\n\n"), ("", "<think>Hm.</think>"), ("", "")):
        assert allowed(tokenizer, text + call, name, reasoning=THINK, prompt=prompt) == (True, True)
    inside = allowed(tokenizer, call, name, reasoning=THINK, prompt="<think>")
    assert inside != (True, True)  # the reasoning has to end first


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_grammar_makes_is_a_call_that_follows_the_schema(name: str, tokenizer: str) -> None:
    """Random walks through the grammars of required calls, by masks alone."""
    for choice in ("required", named("get_weather")):
        found = spec(name, choice, tokenizer=tokenizer)
        assert found is not None
        grammar, rng = backend_named(tokenizer).compile(found), random.Random(0)
        texts = [text for _ in range(40) if (text := walk(tokenizer, grammar, rng)) is not None]
        assert len(texts) >= 10
        for text in texts:
            calls = check_calls(name, text, TOOLS)
            assert len(calls) == 1 or (choice == "required" and calls), text


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_begins_in_free_text_follows_the_schema(name: str, tokenizer: str) -> None:
    """Random walks again, from the middle of a call that "auto" allowed to begin."""
    whole = written(name, [("get_weather", {"city": "Rome"})])
    for parallel in (True, False):
        found = spec(name, "auto", tokenizer=tokenizer, parallel=parallel)
        assert found is not None
        grammar, rng = backend_named(tokenizer).compile(found), random.Random(0)
        begin = whole[: whole.index("Rome")] if name == "harmony" else "I see. " + whole[: whole.index("Rome")]
        texts = [text for _ in range(30) if (text := walk(tokenizer, grammar, rng, begin)) is not None]
        assert len(texts) >= 10
        for text in texts:
            calls = check_arguments(parsed(name, text, TOOLS), TOOLS)
            assert calls[0].name == "get_weather", text
            assert parallel or len(calls) == 1, text
