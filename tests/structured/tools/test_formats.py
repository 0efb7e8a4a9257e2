"""Each format's parser on texts written out by hand: what is a call, what is content, what is neither."""

from __future__ import annotations

import json

import pytest

from forebay.structured.tools.deltas import ArgumentsDelta, CallEnded, CallIds, CallStarted, ContentDelta, collect
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool
from tests.structured.tools.calls import RENDERERS, Call, new_parser, parsed, wide

WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {}, "days": {}, "note": {}}})
TIME = Tool("get_time")
TOOLS = (WEATHER, TIME)
ROME: Call = ("get_weather", {"city": "Rome", "days": 3})
FORMAT_NAMES = list(FORMATS)
V3 = "<|tool▁call▁begin|>function<|tool▁sep|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"


def calls_of(name: str, text: str) -> list[tuple[str, str, bool]]:
    """(name, arguments, complete) of each call."""
    return [(call.name, call.arguments, call.complete) for call in parsed(name, text, TOOLS).calls]


@pytest.mark.parametrize("name", FORMAT_NAMES)
@pytest.mark.parametrize(
    "calls",
    [
        [ROME],
        [ROME, ("get_time", {})],
        [("get_time", {"zone": None, "list": [1.5, True, {"a": "b"}], "empty": [], "none": {}})],
        [("get_time", {"quotes": "'\"`\\", "braces": "}{][)(", "lines": "a\nb\t\x01", "other": "é漢🙂"})],
        [
            (
                "get_time",
                {"markers": "</tool_call> [TOOL_CALLS] <|call|> ]<|tool_call_end|>" + wide("<|tool▁call▁end|>")},
            )
        ],
    ],
)
def test_what_is_rendered_is_parsed(name: str, calls: list[Call]) -> None:
    """Markers inside a string of the arguments end nothing."""
    message = parsed(name, RENDERERS[name](calls), TOOLS)
    assert [(call.name, json.loads(call.arguments), call.complete) for call in message.calls] == [
        (function, arguments, True) for function, arguments in calls
    ]
    assert (message.content, message.reasoning, message.malformed) == ("", "", ())
    assert [call.index for call in message.calls] == list(range(len(calls)))
    assert len({call.id for call in message.calls}) == len(calls)


@pytest.mark.parametrize("name", [name for name in FORMAT_NAMES if name != "harmony"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Hello",
        "  Hello, \n\nworld! \n",
        "a < b, [1, 2], {3}, f(x=1), \"name\": 'x' <",
        '```json\n{"a": 1}\n```',
    ],
)
def test_text_without_calls_is_content_character_for_character(name: str, text: str) -> None:
    message = parsed(name, text, TOOLS)
    assert (message.content, message.calls, message.malformed) == (text, (), ())


@pytest.mark.parametrize("name", [name for name in FORMAT_NAMES if name != "harmony"])
def test_white_space_beside_calls_is_no_content(name: str) -> None:
    message = parsed(name, f"I look. \n\n{RENDERERS[name]([ROME])}\n \n", TOOLS)
    assert (message.content, len(message.calls)) == ("I look.", 1)
    assert parsed(name, f"\n{RENDERERS[name]([ROME])}\n Done.", TOOLS).content == "Done."


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_text_that_breaks_off_in_the_arguments_gives_what_there_is(name: str) -> None:
    whole = RENDERERS[name]([ROME])
    message = parsed(name, whole[: whole.index("Rome") + 2], TOOLS)
    assert [(call.name, call.arguments, call.complete) for call in message.calls] == [
        ("get_weather", '{"city": "Ro', False)
    ]
    assert (message.content, message.malformed) == ("", ())


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_deltas_come_as_soon_as_they_are_decided(name: str) -> None:
    """Name and arguments do not wait for the end of the call."""
    whole = RENDERERS[name]([ROME])
    parser = new_parser(name, TOOLS)
    seen = parser.push(whole[: whole.index("Rome") + 4])
    assert [type(delta) for delta in seen] == [CallStarted, ArgumentsDelta]
    assert collect(seen).calls[0].arguments == '{"city": "Rome'


def test_ids_follow_from_request_choice_and_index() -> None:
    text = RENDERERS["hermes"]([ROME, ROME])

    def ids(name: str, request: str, choice: int) -> list[str]:
        parser = FORMATS[name].parser(TOOLS, request, choice)
        source = RENDERERS[name]([ROME, ROME])
        return [call.id for call in collect([*parser.push(source), *parser.finish()]).calls]

    assert text.count("get_weather") == 2
    assert ids("hermes", "a", 0) == ids("hermes", "a", 0)
    many = ids("hermes", "a", 0) + ids("hermes", "a", 1) + ids("hermes", "b", 0)
    assert len(set(many)) == 6
    assert all(len(found) == 29 and found.startswith("call_") for found in many)
    assert all(len(found) == 9 and found.isalnum() for found in ids("mistral", "a", 0))  # what its templates demand


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        # arguments first, other keys, and no space at all
        ('<tool_call>{"arguments":{"city":"Rome"},"id":[1,{"name":2}],"name":"f"}</tool_call>',
         [("f", '{"city":"Rome"}', True)]),
        # the end marker is missing: at the end of the text, and before the next call
        ('<tool_call>{"name": "f", "arguments": {}}', [("f", "{}", True)]),
        ('<tool_call>{"name": "f", "arguments": {}}<tool_call>{"name": "g", "arguments": {}}',
         [("f", "{}", True), ("g", "{}", True)]),
        # several in one block; the last brace is missing
        ('<tool_call>{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {"a": 1}\n</tool_call>',
         [("f", "{}", True), ("g", '{"a": 1}', True)]),
        # no arguments, null, JSON in a string, and what is no object
        ('<tool_call>{"name": "f"}</tool_call>', [("f", "{}", True)]),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", "{}", True)]),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\u00e9\\"}"}</tool_call>', [("f", '{"a": "é"}', True)]),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', [("f", "[1]", False)]),
        # arguments that are no JSON are passed on up to the end marker
        ('<tool_call>{"name": "f", "arguments": {"a": Rome}}</tool_call>', [("f", '{"a": Rome}}', False)]),
        ('<tool_call>{"name": "f", "arguments": {"a": "x\n</tool_call>tail', [("f", '{"a": "x\n', False)]),
    ],
)  # fmt: skip
def test_hermes_calls(text: str, calls: list[tuple[str, str, bool]]) -> None:
    assert calls_of("hermes", text) == calls
    assert parsed("hermes", text).malformed == ()


@pytest.mark.parametrize(
    ("text", "content", "malformed"),
    [
        ("<tool_call>hello</tool_call>", "", ["hello"]),
        ("<tool_call></tool_call>after", "after", [""]),
        ("before <tool_call>", "before", [""]),
        ('<tool_call>{"arguments": {"a": 1}}</tool_call>', "", ['{"arguments": {"a": 1}}']),
        ('<tool_call>{"name": 5, "arguments": {}}</tool_call>', "", ['{"name": 5, "arguments": {}}']),
        ('<tool_call>{"name": "f" "arguments": {}}<tool_call>{"name": "g"}', "", ['{"name": "f" "arguments": {}}']),
        ('<tool_call>{"name": "f", "arguments": {}}}</tool_call>', "", ["}"]),
        ("half a marker <tool_c", "half a marker <tool_c", []),
        ("stray </tool_call>end", "stray end", []),
    ],
)
def test_hermes_without_a_call(text: str, content: str, malformed: list[str]) -> None:
    message = parsed("hermes", text)
    assert message.content == content
    assert [found.text for found in message.malformed] == malformed
    assert all(found.reason for found in message.malformed)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('{"name": "get_time", "parameters": {}}', "", ["get_time"]),
        ('{"type": "function", "name": "get_time", "parameters": {"a": "}"}}', "", ["get_time"]),
        ('{ "name" : "get_time" , "arguments" : {} , "more": 1 }', "", ["get_time"]),
        ('<|python_tag|>{"name": "other", "parameters": {}}', "", ["other"]),
        ('Here: {"name": "get_time", "parameters": {}} Anything else?', "Here:\nAnything else?", ["get_time"]),
        ('{"name": "get_time", "parameters": {}}; {"name": "get_time", "parameters": {}}', "", ["get_time"] * 2),
        ('{"name": "get_time", "parameters": {}}\n{"name": "get_time", "parameters": {}};', "", ["get_time"] * 2),
        ('{{"name": "get_time", "parameters": {}}}', "{\n}", ["get_time"]),
        # not unmistakable: another name, other keys, the wrong order, arguments that are no object, too long
        ('{"name": "Rome", "parameters": {}}', '{"name": "Rome", "parameters": {}}', []),
        ('{"city": "Rome"}', '{"city": "Rome"}', []),
        ('{"name": "get_time"}', '{"name": "get_time"}', []),
        ('{"parameters": {}, "name": "get_time"}', '{"parameters": {}, "name": "get_time"}', []),
        ('{"name": "get_time", "parameters": []}', '{"name": "get_time", "parameters": []}', []),
        ('{"type": "object", "name": "get_time"}', '{"type": "object", "name": "get_time"}', []),
        ("{" + " " * 600 + '"name": "get_time", "parameters": {}}',
         "{" + " " * 600 + '"name": "get_time", "parameters": {}}', []),
        ('{"name": "get_ti', '{"name": "get_ti', []),
    ],
)  # fmt: skip
def test_llama3_json(text: str, content: str, calls: list[str]) -> None:
    message = parsed("llama3_json", text, TOOLS)
    assert (message.content, [call.name for call in message.calls]) == (content, calls)


def test_llama3_json_does_not_call_built_in_tools() -> None:
    message = parsed("llama3_json", '<|python_tag|>brave_search.call(query="x")', TOOLS)
    assert (message.content, message.calls) == ("", ())
    assert [found.text for found in message.malformed] == ['brave_search.call(query="x")']


@pytest.mark.parametrize("name", ["mistral", "mistral_id", "mistral_args"])
@pytest.mark.parametrize(
    ("text", "content", "calls", "malformed"),
    [
        ('Hi[TOOL_CALLS] [{"arguments": {"a": 1}, "name": "f"} , {"name": "g"}]bye', "Hi\nbye",
         [("f", '{"a": 1}', True), ("g", "{}", True)], []),
        ('[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g {"a": 2}', "", [("f", '{"a": 1}', True), ("g", '{"a": 2}', True)], []),
        ('[TOOL_CALLS]f[CALL_ID]123456789[ARGS] {"a": 1}', "", [("f", '{"a": 1}', True)], []),
        ('[TOOL_CALLS]f[ARGS]{"a": x}[TOOL_CALLS]g[ARGS]{}', "", [("f", '{"a": x}', False), ("g", "{}", True)], []),
        ("[TOOL_CALLS]not a call at all", "", [], ["not a call at all"]),
        ("[TOOL_CALLS]f[ARGS]nothing", "", [], ["f nothing"]),
        ("[TOOL_CALLS][1]", "", [], ["1]"]),
        ("[TOOL_CALLS][TOOL_CALLS][]", "", [], [""]),
        ("a [TOOL_CALL", "a [TOOL_CALL", [], []),
    ],
)  # fmt: skip
def test_mistral(name: str, text: str, content: str, calls: list[tuple[str, str, bool]], malformed: list[str]) -> None:
    """One parser reads what either version writes."""
    message = parsed(name, text)
    assert message.content == content
    assert [(call.name, call.arguments, call.complete) for call in message.calls] == calls
    assert [found.text for found in message.malformed] == malformed


@pytest.mark.parametrize(
    ("text", "content", "calls", "malformed"),
    [
        ("[get_weather(city='Rome', days=3), get_time()]", "",
         [("get_weather", '{"city": "Rome", "days": 3}', True), ("get_time", "{}", True)], []),
        ("[ get_weather ( city = \"Rome\" ) , get_time( ) ]", "",
         [("get_weather", '{"city": "Rome"}', True), ("get_time", "{}", True)], []),
        ("Look: [get_time()] Done.", "Look:\nDone.", [("get_time", "{}", True)], []),
        ("<|python_start|>[get_time()]<|python_end|>", "", [("get_time", "{}", True)], []),
        ("<|python_start|>other(a=1)<|python_end|>", "", [("other", '{"a": 1}', True)], []),
        ("[get_weather('Rome', 3, note=True)]", "",
         [("get_weather", '{"city": "Rome", "days": 3, "note": true}', True)], []),
        ("[other(a=1)], [x], [get_time, [get_weather]", "[other(a=1)], [x], [get_time, [get_weather]", [], []),
        ("[get_time(a=f(1)), get_time()]", "", [("get_time", '{"a": ', False)], ["(1)), get_time()]"]),
        ("[get_time() get_time()]", "", [("get_time", "{}", True)], ["get_time()]"]),
        ("[" + " " * 600 + "get_time()]", "[" + " " * 600 + "get_time()]", [], []),
        ("[get_ti", "[get_ti", [], []),
    ],
)  # fmt: skip
def test_pythonic(text: str, content: str, calls: list[tuple[str, str, bool]], malformed: list[str]) -> None:
    message = parsed("pythonic", text, TOOLS)
    assert message.content == content
    assert [(call.name, call.arguments, call.complete) for call in message.calls] == calls
    assert [found.text for found in message.malformed] == malformed


def test_with_tags_brackets_are_content() -> None:
    message = parsed(
        "pythonic_tagged", '[get_time()] <|tool_call_start|>[get_time(x={"a": true})]<|tool_call_end|>', TOOLS
    )
    assert message.content == "[get_time()]"
    assert [call.arguments for call in message.calls] == ['{"x": {"a": true}}']


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31"])
@pytest.mark.parametrize(
    ("text", "content", "calls", "malformed"),
    [
        (f'Hi\n<|tool▁calls▁begin|>{V3}f\n```json\n{{"a": 1}}\n```\n<|tool▁call▁end|>\n<|tool▁calls▁end|>bye',
         "Hi\nbye",         [("f", '{"a": 1}', True)], []),
        (f'{V3}f\n{{"a": 1}}\n<|tool▁call▁end|>', "", [("f", '{"a": 1}', True)], []),
        ('<|tool▁calls▁begin|><|tool▁call▁begin|>f<|tool▁sep|>{"a": 1}', "", [("f", '{"a": 1}', True)], []),
        ('<|tool▁call▁begin|>f<|tool▁sep|>{"a": x}<|tool▁call▁end|><|tool▁call▁begin|>g<|tool▁sep|>{}<|tool▁call▁end|>',
         "",         [("f", '{"a": x}', False), ("g", "{}", True)], []),
        ("<|tool▁calls▁begin|>words<|tool▁calls▁end|>", "", [], ["words"]),
        (f"{V3}f and g<|tool▁call▁end|>", "", [], ["f and g"]),
        ("<|tool▁call▁begin|>f<|tool▁call▁end|>", "", [], ["f"]),
        ("<|tool▁call▁begin|>f", "", [], ["f"]),
    ],
)  # fmt: skip
def test_deepseek(name: str, text: str, content: str, calls: list[tuple[str, str, bool]], malformed: list[str]) -> None:
    message = parsed(name, wide(text))
    assert message.content == content
    assert [(call.name, call.arguments, call.complete) for call in message.calls] == calls
    assert [found.text for found in message.malformed] == malformed


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        ("<|channel|>analysis<|message|>Think.<|end|>" + FINAL + "Four.<|return|>", "Think.", "Four.", []),
        ("<|channel|>analysis<|message|>Need f.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
         '<|constrain|>json<|message|>{"a":1}<|call|>', "Need f.", "", [("f", '{"a":1}', True)]),
        # the recipient in the role; no content type; the engine has dropped <|call|>
        (' to=functions.f<|channel|>commentary json<|message|>{"a": 1}', "", "", [("f", '{"a": 1}', True)]),
        ("<|channel|>commentary to=f<|message|>\n{}\n", "", "", [("f", "{}", True)]),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|><|call|>", "", "", [("f", "{}", True)]),
        ("<|channel|>analysis to=python code<|message|>print(1)<|call|>", "", "", [("python", "print(1)", False)]),
        # a preamble is for the user; two messages of one kind are two lines
        ("<|channel|>commentary<|message|>Plan.<|end|>" + FINAL + "Done.", "", "Plan.\nDone.", []),
        ("<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|>",
         "A\nB", "", []),
        ("No channels here.", "", "No channels here.", []),
        ("", "", "", []),
        ("<|channel|>fin", "", "", []),
    ],
)  # fmt: skip
def test_harmony(text: str, reasoning: str, content: str, calls: list[tuple[str, str, bool]]) -> None:
    message = parsed("harmony", text)
    assert (message.reasoning, message.content) == (reasoning, content)
    assert [(call.name, call.arguments, call.complete) for call in message.calls] == calls


def test_harmony_reports_what_no_channel_takes() -> None:
    text = "<|channel|>final<|message|>Hi<|end|>loose<|start|>functions.f to=assistant<|message|>result<|end|>"
    message = parsed("harmony", text)
    assert (message.content, message.calls) == ("Hi", ())
    assert [found.text for found in message.malformed] == ["loose", "result"]


def test_half_a_marker_at_the_end_is_content_only_then() -> None:
    parser = new_parser("hermes")
    assert parser.push("wait <tool") == [ContentDelta("wait")]
    assert parser.finish() == [ContentDelta(" <tool")]


def test_the_end_of_a_call_is_told_before_its_end_marker() -> None:
    parser = new_parser("deepseek_v31")
    parser.push(wide("<|tool▁calls▁begin|><|tool▁call▁begin|>f<|tool▁sep|>"))
    assert parser.push("{}") == [
        CallStarted(0, CallIds("request-1")(0), "f"),
        ArgumentsDelta(0, "{}"),
        CallEnded(0, True),
    ]
