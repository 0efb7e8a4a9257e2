"""Structured output over HTTP with the official client: formats, streams, refusals."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

MODEL = "tiny-chat"
HELLO: Any = [{"role": "user", "content": "Tell me of a little girl."}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "count": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_holds_the_answer(client: openai.OpenAI, stream: bool) -> None:
    for seed in range(4):
        made: Any = client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=60, seed=seed, response_format=FORMAT, stream=stream
        )
        if stream:
            events = [event.choices[0] for event in made]
            text, reason = "".join(e.delta.content or "" for e in events), events[-1].finish_reason
        else:
            text, reason = made.choices[0].message.content, made.choices[0].finish_reason
        assert reason == "stop"
        value = json.loads(text)
        assert value["kind"] in ("cat", "dog")
        assert 1 <= value["count"] <= 3


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
        ({"structured_outputs": {"regex": "[ab]{4}"}}, "[ab]{4}"),
        ({"guided_regex": "[cd]{4}"}, "[cd]{4}"),
        ({"guided_choice": ["x", "yy"]}, "x|yy"),
        ({"guided_grammar": 'start: "q" /[0-9]/'}, "q[0-9]"),
        ({"guided_json": json.dumps(SCHEMA)}, r"\{.*\}"),
        ({"structured_outputs": {"json": SCHEMA}}, r"\{.*\}"),
    ],
)
def test_every_way_to_say_it(client: openai.OpenAI, fields: dict[str, Any], fits: str) -> None:
    made = client.completions.create(model=MODEL, prompt="Once", max_tokens=60, seed=1, n=2, extra_body=fields)
    for choice in made.choices:
        assert re.fullmatch(fits, choice.text), choice.text
        assert choice.finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type", "must be one of text"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is required"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            "response_format.json_schema.name",
            "1 to 64 letters",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}},
            "response_format.json_schema.schema",
            "/not",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "must have one of"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", "give one of them"),
        ({"guided_json": {}, "guided_regex": "a"}, "guided_regex", "give one of them"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs.regexp", "did you mean 'regex'"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern", "not supported"),
        ({"guided_choice": []}, "guided_choice", "at least one string"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "exclude each other"),
    ],
)
def test_wrong_formats_are_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str, says: str
) -> None:
    for create, asked in (
        (client.completions.create, {"prompt": "a"}),
        (client.chat.completions.create, {"messages": HELLO}),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            create(model=MODEL, max_tokens=4, extra_body=fields, **asked)  # type: ignore[operator]  # two methods with one shape
        assert caught.value.param == param
        assert says in caught.value.message
