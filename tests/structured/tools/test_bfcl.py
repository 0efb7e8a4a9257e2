"""Every case of the Berkeley Function-Calling Leaderboard: its calls, written in each format, are parsed back."""

from __future__ import annotations

import ast
import json
import os
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import InvalidValueError
from forebay.structured.tools.deltas import collect
from forebay.structured.tools.message import MessageFormat
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import ChoiceMode, Tool, ToolChoice, parse_tools
from tests.structured.tools.calls import RENDERERS, Call, check_calls, cut, deltas_of, new_parser
from tests.structured.tools.grammars import backend_named, walk
from tests.support.shared import shared_path

STRIDE = int(os.environ.get("FOREBAY_BFCL_STRIDE", "25"))  # of the cases whose grammars are compiled
Case = tuple[str, tuple[Tool, ...], list[Call]]

POINTED = re.compile(r"tools\[\d+\]\.function\.parameters: at /\S+: ")
_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": "string",
    "String": "string",
    "Boolean": "boolean",
}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text("utf-8").splitlines() if line)


def legal(name: str) -> str:
    """A name the API allows; the data set has dots in many."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


def schema_of(value: Any) -> Any:
    """The data set's types as JSON schema has them."""
    if isinstance(value, list):
        return [schema_of(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    return {k: schema_of(v) for k, v in value.items()} | (
        {"type": _TYPES.get(kind, kind)} if isinstance(kind, str) else {}
    )


def tools_of(functions: list[dict[str, Any]]) -> tuple[Tool, ...]:
    named = {legal(f["name"]): f for f in functions}
    return parse_tools([definition(name, f) for name, f in named.items()])


def definition(name: str, f: dict[str, Any]) -> dict[str, Any]:
    parameters = schema_of(f["parameters"])
    function = {"name": name, "description": f["description"], "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


def calls_of(answer: list[dict[str, Any]]) -> list[Call]:
    """The first of the answers allowed for each argument; "", or no answer, means that it may be missing."""
    return [
        (legal(name), {key: values[0] for key, values in arguments.items() if values[:1] not in ([], [""])})
        for call in answer
        for name, arguments in call.items()
    ]


@cache
def answered() -> tuple[Case, ...]:
    """Every case that has expected calls, one turn each."""
    folder = shared_path("tools/bfcl")
    found: list[Case] = []
    for path in sorted(folder.glob("*.answer.jsonl")):
        if path.name.startswith("multi_turn"):
            continue
        cases = {case["id"]: case for case in lines(path.with_name(path.name.replace(".answer", "")))}
        for answer in lines(path):
            functions = cases[answer["id"]]["function"]
            found.append((answer["id"], tools_of(functions), calls_of(answer["ground_truth"])))
    return tuple(found)


@pytest.mark.parametrize("name", list(FORMATS))
def test_expected_calls_are_parsed_back(name: str) -> None:
    """Whole, and in random pieces."""
    rng = random.Random(0)
    cases = answered()
    assert len(cases) > 1300
    for case_id, tools, calls in cases:
        text = RENDERERS[name](calls)
        whole = deltas_of(new_parser(name, tools), [text])
        message = collect(whole)
        assert [(call.name, json.loads(call.arguments)) for call in message.calls] == calls, case_id
        assert all(call.complete for call in message.calls), case_id
        assert (message.content, message.malformed) == ("", ()), case_id
        pieces = cut(text, [rng.randint(1, 12) for _ in range(len(text) // 6)])
        assert deltas_of(new_parser(name, tools), pieces) == whole, case_id


@pytest.mark.parametrize("name", list(FORMATS))
def test_schemas_are_enforced_or_refused_by_pointer(name: str) -> None:
    """A text that the grammar of a required call makes holds calls that parse and follow their schemas."""
    backend, ends = backend_named("qwen2"), 0
    refused: dict[str, str] = {}
    cases = answered()[::STRIDE]
    for case_id, tools, _ in cases:
        try:
            spec = MessageFormat(FORMATS[name], None).grammar("", ToolChoice(ChoiceMode.REQUIRED, tools))
            assert spec is not None
            grammar = backend.compile(spec)
        except InvalidValueError as error:
            refused[case_id] = error.message
            continue
        text = walk("qwen2", grammar, random.Random(case_id))
        if text is not None:
            ends += 1
            assert check_calls(name, text, tools), case_id
    print(f"{name}: {len(cases)} cases, {ends} walks came to an end, {len(refused)} refused:", refused)
    assert [m for m in refused.values() if not POINTED.match(m)] == []
    assert len(refused) < len(cases) / 10
    assert ends > len(cases) / 5


def test_turns_written_as_python_mean_what_python_says() -> None:
    """multi_turn_base writes its expected calls as Python; a few leave out the names of arguments."""
    folder = shared_path("tools/bfcl")
    functions = [f for path in sorted(folder.glob("func_doc/*.jsonl")) for f in lines(path)]
    tools = tools_of(functions)
    turns = 0
    for answer in lines(folder / "multi_turn_base.answer.jsonl"):
        for turn in filter(None, answer["ground_truth"]):
            turns += 1
            message = collect(deltas_of(new_parser("pythonic", tools), [f"[{', '.join(turn)}]"]))
            assert message.malformed == (), turn
            assert [(call.name, json.loads(call.arguments)) for call in message.calls] == [
                expected(source, tools) for source in turn
            ]
    assert turns > 700


def expected(source: str, tools: tuple[Tool, ...]) -> Call:
    """The call as Python's own parser reads it."""
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    name = call.func.id
    parameters = next(tool.parameter_names for tool in tools if tool.name == name)
    unnamed = [ast.literal_eval(argument) for argument in call.args]
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return name, json.loads(json.dumps(dict(zip(parameters, unnamed, strict=False)) | named))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "harmony"])
def test_questions_are_never_taken_for_calls(name: str) -> None:
    """Texts of people, about the very functions: what no call expects stays content."""
    folder = shared_path("tools/bfcl")
    texts = 0
    for path in sorted(folder.glob("*.jsonl")):
        if path.name.endswith(".answer.jsonl") or path.name.startswith("multi_turn"):
            continue
        for case in lines(path):
            tools = tools_of(case["function"])
            text = "\n".join(turn["content"] for turns in case["question"] for turn in turns)
            texts += 1
            message = collect(deltas_of(new_parser(name, tools), [text]))
            assert (message.content, message.calls, message.malformed) == (text, (), ()), case["id"]
    assert texts > 1500
