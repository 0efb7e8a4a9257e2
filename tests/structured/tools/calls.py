"""Calls written out in every format, by hand and by the models' own rules: the other side of the parsers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from forebay.structured.tools.deltas import Delta, ParsedMessage, ToolCall, collect, merged
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool

Call = tuple[str, dict[str, Any]]


def new_parser(name: str, tools: Sequence[Tool] = ()) -> ToolParser:
    return FORMATS[name].parser(tools, "request-1")


def deltas_of(parser: ToolParser, pieces: Iterable[str]) -> list[Delta]:
    """All that comes of a text in these pieces, neighbours of one text joined."""
    found = [delta for piece in pieces for delta in parser.push(piece)]
    return merged([*found, *parser.finish()])


def parsed(name: str, text: str, tools: Sequence[Tool] = ()) -> ParsedMessage:
    return collect(deltas_of(new_parser(name, tools), [text]))


def check_arguments(message: ParsedMessage, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The calls of a message: whole ones, whose arguments follow their schemas."""
    for call in message.calls:
        assert call.complete, call
        tool = next(tool for tool in tools if tool.name == call.name)
        Draft202012Validator(dict(tool.parameters)).validate(json.loads(call.arguments))
    return message.calls


def check_calls(name: str, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """The same, of a text in which there is nothing else."""
    message = parsed(name, text, tools)
    assert (message.content, message.malformed) == ("", ()), text
    return check_arguments(message, tools)


def cut(text: str, sizes: Iterable[int]) -> list[str]:
    """The text in pieces of these sizes, and the rest."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(f'<tool_call>\n{{"name": "{n}", "arguments": {dumps(a)}}}\n</tool_call>' for n, a in calls)


def llama3_json(calls: Sequence[Call]) -> str:
    return "; ".join(f'{{"name": "{n}", "parameters": {dumps(a)}}}' for n, a in calls)


def mistral(calls: Sequence[Call]) -> str:
    objects = [
        f'{{"name": "{n}", "arguments": {dumps(a)}, "id": "abcdefgh{i % 10}"}}' for i, (n, a) in enumerate(calls)
    ]
    return "[TOOL_CALLS][" + ", ".join(objects) + "]"


def mistral_id(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[CALL_ID]abcdefgh{i % 10}[ARGS]{dumps(a)}" for i, (n, a) in enumerate(calls))


def mistral_args(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{dumps(a)}" for n, a in calls)


def pythonic(calls: Sequence[Call], value: Callable[[object], str] = repr) -> str:
    return "[" + ", ".join(f"{n}({', '.join(f'{k}={value(v)}' for k, v in a.items())})" for n, a in calls) + "]"


def pythonic_tagged(calls: Sequence[Call]) -> str:
    return f"<|tool_call_start|>{pythonic(calls)}<|tool_call_end|>"


def wide(text: str) -> str:
    """Text with the full-width bars of DeepSeek's markers."""
    return text.replace("|", "\uff5c")


def deepseek_v3(calls: Sequence[Call]) -> str:
    head, end = wide("<|tool▁call▁begin|>function<|tool▁sep|>"), wide("<|tool▁call▁end|>")
    each = "\n".join(f"{head}{n}\n```json\n{dumps(a)}\n```{end}" for n, a in calls)
    return wide("<|tool▁calls▁begin|>") + each + wide("<|tool▁calls▁end|>")


def deepseek_v31(calls: Sequence[Call]) -> str:
    begin, separator, end = wide("<|tool▁call▁begin|>"), wide("<|tool▁sep|>"), wide("<|tool▁call▁end|>")
    each = "".join(f"{begin}{n}{separator}{dumps(a)}{end}" for n, a in calls)
    return wide("<|tool▁calls▁begin|>") + each + wide("<|tool▁calls▁end|>")


def harmony(calls: Sequence[Call]) -> str:
    """One message for a call; gpt-oss stops after the first, a text may hold several."""
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumps(a)}<|call|>" for n, a in calls
    )


RENDERERS: dict[str, Callable[[Sequence[Call]], str]] = {
    function.__name__: function
    for function in (
        hermes,
        llama3_json,
        mistral,
        mistral_id,
        mistral_args,
        pythonic,
        pythonic_tagged,
        deepseek_v3,
        deepseek_v31,
        harmony,
    )
}
