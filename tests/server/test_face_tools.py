"""Tool calls, reasoning and schemas in Anthropic's Messages and OpenAI's Responses, with the official clients.

Whole and streamed they say the same, and what chat completions say for the same conversation and seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import anthropic
import httpx
import jsonschema
import openai
import pydantic
import pytest

from tests.server.test_tools import HELLO, MODEL, PARAMETERS, TOOLS, Heard, whole
from tests.support.faces import events_of

NAMES = ("get_weather", "get_time")
CLAUDE_TOOLS: Any = [{"name": name, "input_schema": PARAMETERS, "strict": True} for name in NAMES]
FUNCTIONS: Any = [{"type": "function", "name": name, "parameters": PARAMETERS, "strict": True} for name in NAMES]
QUIET = {"thinking_token_budget": 0}
THINK = {"chat_template_kwargs": {"enable_thinking": True}}


class Weather(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    days: int
    units: Literal["C", "F"]


@dataclass
class Face:
    """The three ways to ask of one server."""

    chat: openai.OpenAI
    claude: anthropic.Anthropic
    http: httpx.Client
    asked: dict[str, Any] = field(default_factory=lambda: {"model": MODEL})

    def chats(self, seed: int, **fields: Any) -> Heard:
        given: Any = {"messages": HELLO, "max_tokens": 150, "seed": seed, "temperature": 1.0} | self.asked | fields
        made = self.chat.chat.completions.create(**given)
        (heard,) = whole(made)
        return heard

    def message(self, seed: int, **fields: Any) -> Any:
        """Whole, after checking that the client's stream helper puts the same together."""
        extra = fields.pop("extra_body", {}) | {"seed": seed}
        given: Any = {"messages": HELLO, "max_tokens": 150, "extra_body": extra} | self.asked | fields
        made = self.claude.messages.create(**given)
        with self.claude.messages.stream(**given) as stream:
            streamed = stream.get_final_message()
        assert comparable(streamed.to_dict()) == comparable(made.to_dict())
        return made

    def response(self, seed: int, **fields: Any) -> Any:
        """The same of Responses; what the stream's last event has and what its events put together agree too."""
        extra = fields.pop("extra_body", {}) | {"seed": seed}
        given: Any = {"input": HELLO, "max_output_tokens": 150, "extra_body": extra} | self.asked | fields
        made = self.chat.responses.create(**given)
        events = list(self.chat.responses.create(**given, stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == f"response.{made.status}"
        assert comparable(events[-1].response.to_dict()) == comparable(made.to_dict())
        done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
        assert done == [item.to_dict() for item in events[-1].response.output]
        assert [grown(events, i) for i in range(len(done))] == [said_by(item) for item in done]
        return made


def comparable(value: Any) -> Any:
    """Without ids and times, which belong to one response, what the cache found, and what only helpers add."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = (
        "id",
        "call_id",
        "created_at",
        "completed_at",
        "input_tokens",
        "cache_read_input_tokens",
        "cached_tokens",
    )
    return {k: comparable(v) for k, v in value.items() if k not in dropped and v is not None}


def grown(events: list[Any], index: int) -> str:
    return "".join(e.delta for e in events if e.type.endswith(".delta") and e.output_index == index)


def said_by(item: dict[str, Any]) -> str:
    return str(item["arguments"] if "arguments" in item else "".join(part["text"] for part in item["content"]))


def heard_message(message: Any) -> Heard:
    blocks = message.content
    return Heard(
        "\n".join(block.text for block in blocks if block.type == "text"),
        "".join(block.thinking for block in blocks if block.type == "thinking"),
        [(block.id, block.name, json.dumps(block.input)) for block in blocks if block.type == "tool_use"],
        {"tool_use": "tool_calls", "end_turn": "stop", "max_tokens": "length"}[message.stop_reason],
    )


def heard_response(response: Any) -> Heard:
    calls = [(i.call_id, i.name, i.arguments) for i in response.output if i.type == "function_call"]
    reason = "length" if response.status == "incomplete" else "tool_calls" if calls else "stop"
    return Heard(
        "\n".join(i.content[0].text for i in response.output if i.type == "message"),
        "".join(i.content[0].text for i in response.output if i.type == "reasoning"),
        calls,
        reason,
    )


def check_equal(heard: Heard, chat: Heard) -> None:
    assert (heard.content, heard.reasoning, heard.finish_reason) == (chat.content, chat.reasoning, chat.finish_reason)
    assert [name for _, name, _ in heard.calls] == [name for _, name, _ in chat.calls]
    for (id_, _, text), (_, _, expected) in zip(heard.calls, chat.calls, strict=True):
        assert id_
        assert json.loads(text) == json.loads(expected)


@pytest.fixture(scope="module")
def face(agent: openai.OpenAI) -> Iterator[Face]:
    url = str(agent.base_url).removesuffix("/v1/")
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60) as claude,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield Face(agent, claude, http)


CHOICES: list[tuple[Any, Any, Any, dict[str, Any]]] = [  # chat's, Messages', Responses', further fields of chat
    ("required", {"type": "any"}, "required", {}),
    ("required", {"type": "any", "disable_parallel_tool_use": True}, "required", {"parallel_tool_calls": False}),
    ("auto", {"type": "auto"}, "auto", {}),
    ("none", {"type": "none"}, "none", {}),
    (
        {"type": "function", "function": {"name": "get_time"}},
        {"type": "tool", "name": "get_time"},
        {"type": "function", "name": "get_time"},
        {},
    ),
]


@pytest.mark.parametrize(("chats", "claudes", "responses", "more"), CHOICES)
def test_calls_are_those_of_chat(face: Face, chats: Any, claudes: Any, responses: Any, more: dict[str, Any]) -> None:
    for seed in (5, 6):
        chat = face.chats(seed, tools=TOOLS, tool_choice=chats, **more)
        message = face.message(seed, tools=CLAUDE_TOOLS, tool_choice=claudes)
        check_equal(heard_message(message), chat)
        response = face.response(seed, tools=FUNCTIONS, tool_choice=responses, **more)
        check_equal(heard_response(response), chat)
        assert [call[2] for call in heard_response(response).calls] == [call[2] for call in chat.calls]
        assert bool(chat.calls) == (chats not in ("auto", "none"))
        for block in message.content:
            if block.type == "tool_use" and message.stop_reason == "tool_use":
                jsonschema.validate(block.input, PARAMETERS)


def test_a_call_that_is_cut_is_incomplete(face: Face) -> None:
    for limit in (32, 40):
        chat = face.chats(5, tools=TOOLS, tool_choice="required", max_tokens=limit, extra_body=QUIET)
        ((_, name, text),) = chat.calls
        given: Any = {"tools": CLAUDE_TOOLS, "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}}
        message = face.message(5, max_tokens=limit, **given)
        response = face.response(5, tools=FUNCTIONS, tool_choice="required", max_output_tokens=limit, extra_body=QUIET)
        (block,), (item,) = message.content, response.output
        assert (block.name, message.stop_reason) == (name, "max_tokens")
        assert (item.name, item.arguments, item.status, response.status) == (name, text, "incomplete", "incomplete")
        assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("budget", [6, 12])
def test_reasoning_with_a_budget(face: Face, budget: int) -> None:
    chat = face.chats(5, max_tokens=40, extra_body=THINK | {"thinking_token_budget": budget})
    assert chat.reasoning
    assert chat.content
    message = face.message(5, max_tokens=40, thinking={"type": "enabled", "budget_tokens": budget})
    check_equal(heard_message(message), chat)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].signature == ""
    response = face.response(5, max_output_tokens=40, extra_body=THINK | {"thinking_token_budget": budget})
    check_equal(heard_response(response), chat)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    tokens = response.usage.output_tokens_details.reasoning_tokens
    assert budget < tokens <= budget + 4
    assert message.usage.output_tokens_details.thinking_tokens == tokens


def test_thinking_is_turned_on_and_off(face: Face) -> None:
    on = face.message(5, max_tokens=20, thinking={"type": "adaptive"})
    assert [block.type for block in on.content] == ["thinking"]
    assert on.usage.output_tokens_details.thinking_tokens == 20
    off = face.message(5, max_tokens=20, thinking={"type": "disabled"})
    assert [block.type for block in off.content] == ["text"]
    assert off.content[0].text == face.chats(5, max_tokens=20, extra_body=QUIET).content


def test_a_schema_holds_after_the_reasoning(face: Face) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "w", "schema": PARAMETERS}}
    chat = face.chats(5, response_format=form, extra_body=THINK | {"thinking_token_budget": 8})
    jsonschema.validate(json.loads(chat.content), PARAMETERS)
    message = face.message(
        5,
        output_config={"format": {"type": "json_schema", "schema": PARAMETERS}},
        thinking={"type": "enabled", "budget_tokens": 8},
    )
    check_equal(heard_message(message), chat)
    response = face.response(
        5,
        text={"format": {"type": "json_schema", "name": "w", "schema": PARAMETERS}},
        extra_body=THINK | {"thinking_token_budget": 8},
    )
    check_equal(heard_response(response), chat)
    assert response.to_dict()["text"]["format"]["schema"] == PARAMETERS
    anything = face.response(5, text={"format": {"type": "json_object"}}, max_output_tokens=60)
    assert anything.output_text == face.chats(5, response_format={"type": "json_object"}, max_tokens=60).content


def test_the_clients_parse_into_their_own_types(face: Face) -> None:
    given: Any = {"model": MODEL, "extra_body": {"seed": 5} | QUIET}
    parsed = face.chat.responses.parse(input=HELLO, text_format=Weather, max_output_tokens=100, **given)
    assert isinstance(parsed.output_parsed, Weather)
    with face.chat.responses.stream(input=HELLO, text_format=Weather, max_output_tokens=100, **given) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed
    given = {"model": MODEL, "extra_body": {"seed": 5}, "thinking": {"type": "disabled"}}
    message = face.claude.messages.parse(messages=HELLO, output_format=Weather, max_tokens=100, **given)
    assert message.parsed_output == parsed.output_parsed
    with face.claude.messages.stream(messages=HELLO, output_format=Weather, max_tokens=100, **given) as events:
        assert events.get_final_message().parsed_output == parsed.output_parsed


def test_the_clients_call_functions_of_their_own_types(face: Face) -> None:
    tools: Any = [openai.pydantic_function_tool(Weather, name="get_weather")["function"] | {"type": "function"}]
    given: Any = {"model": MODEL, "input": HELLO, "tools": tools, "tool_choice": "required", "max_output_tokens": 150}
    parsed = face.chat.responses.parse(**given, parallel_tool_calls=False, extra_body={"seed": 5})
    (call,) = parsed.output
    assert call.type == "function_call"
    assert Weather.model_validate(call.parsed_arguments) == Weather.model_validate_json(call.arguments)
    with face.chat.responses.stream(**given, parallel_tool_calls=False, extra_body={"seed": 5}) as stream:
        kinds = [event.type for event in stream]
        (again,) = stream.get_final_response().output
    assert again.type == "function_call"
    assert again.arguments == call.arguments
    assert kinds.count("response.function_call_arguments.delta") > 1
    assert kinds[-4:] == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_a_conversation_goes_on_with_the_results(face: Face) -> None:
    """Reasoning, calls and results sent back make the prompt that the same conversation makes of chat."""
    thinking: Any = {"type": "enabled", "budget_tokens": 5}
    message = face.message(5, tools=CLAUDE_TOOLS, tool_choice={"type": "any"}, thinking=thinking)
    calls = [block for block in message.content if block.type == "tool_use"]
    assert calls
    results: Any = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "12 degrees"}]}
        for block in calls
    ]
    results[-1]["is_error"] = True
    turns: Any = [*HELLO, {"role": "assistant", "content": message.content}]
    turns.append({"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]})
    said = heard_message(message)
    chat: Any = [*HELLO, {
        "role": "assistant", "content": said.content, "reasoning_content": said.reasoning,
        "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": text}}
            for id_, name, text in said.calls
        ],
    }]  # fmt: skip
    chat += [{"role": "tool", "tool_call_id": id_, "content": "12 degrees"} for id_, _, _ in said.calls]
    chat.append({"role": "user", "content": "And now?"})
    wanted: Any = face.http.post("/tokenize", json={"messages": chat, "tools": TOOLS}).json()
    counted = face.claude.messages.count_tokens(model=MODEL, messages=turns, tools=CLAUDE_TOOLS)
    assert counted.input_tokens == wanted["count"]

    items: Any = [*HELLO, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
        {"type": "reasoning_text", "text": said.reasoning}]}]  # fmt: skip
    items += [
        {"type": "function_call", "call_id": id_, "name": name, "arguments": text} for id_, name, text in said.calls
    ]
    items += [{"type": "function_call_output", "call_id": id_, "output": "12 degrees"} for id_, _, _ in said.calls]
    items.append({"role": "user", "content": "And now?"})
    assert face.chat.responses.input_tokens.count(input=items, tools=FUNCTIONS).input_tokens == wanted["count"]
    answers = {
        face.chats(9, messages=chat, tools=TOOLS, max_tokens=12).content,
        heard_message(face.message(9, messages=turns, tools=CLAUDE_TOOLS, max_tokens=12)).content,
        face.response(9, input=items, tools=FUNCTIONS, max_output_tokens=12).output_text,
    }
    assert len(answers) == 1


def test_output_items_are_input_items(face: Face) -> None:
    made = face.response(5, tools=FUNCTIONS, tool_choice="required", extra_body=THINK | {"thinking_token_budget": 5})
    assert {item.type for item in made.output} == {"reasoning", "function_call"}
    items: Any = [*HELLO, *(item.to_dict() for item in made.output)]
    items += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "12 degrees"}
        for item in made.output
        if item.type == "function_call"
    ]
    again = face.response(5, input=items, tools=FUNCTIONS, max_output_tokens=8)
    assert again.usage.input_tokens > made.usage.input_tokens


def test_the_events_of_a_call(face: Face) -> None:
    asked: Any = {"model": MODEL, "stream": True, "seed": 5}
    body = asked | {"messages": HELLO, "max_tokens": 150, "tools": CLAUDE_TOOLS,
            "thinking": {"type": "enabled", "budget_tokens": 5},
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}  # fmt: skip
    events = [data for _, data in events_of(face.http.post("/v1/messages", json=body).text)]
    shape = [
        event["type"] + (f" {event['delta'].get('type', '')}" if event["type"] == "content_block_delta" else "")
        for event in events
    ]
    assert [kind for i, kind in enumerate(shape) if kind != shape[i - 1]] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta thinking_delta",
        "content_block_delta signature_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert starts[0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert starts[1] == {"type": "tool_use", "id": starts[1]["id"], "name": starts[1]["name"], "input": {}}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_logprobs_of_a_message_after_reasoning(face: Face) -> None:
    extra = THINK | {"thinking_token_budget": 6}
    response = face.response(5, top_logprobs=2, max_output_tokens=40, extra_body=extra)
    reasoning, message = response.output
    logprobs = message.content[0].logprobs
    assert len(logprobs) == 40 - response.usage.output_tokens_details.reasoning_tokens
    assert b"".join(bytes(entry.bytes) for entry in logprobs).decode().strip().startswith(message.content[0].text[:5])
    chat: Any = face.chat.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=40, seed=5, logprobs=True, top_logprobs=2, extra_body=extra
    )
    expected = [entry.to_dict() for entry in chat.choices[0].logprobs.content][-len(logprobs) :]
    assert [entry.to_dict() for entry in logprobs] == expected
    assert "logprobs" not in reasoning.content[0].to_dict()
    with pytest.raises(openai.BadRequestError, match="top_logprobs is not supported beside tools") as caught:
        face.chat.responses.create(model=MODEL, input="x", tools=FUNCTIONS, top_logprobs=1)
    assert caught.value.param == "top_logprobs"


def test_sampling_fields_are_those_of_chat(face: Face) -> None:
    fields: dict[str, Any] = {
        "typical_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1,
        "logit_bias": {"300": 5}, "bad_token_ids": [290], "min_tokens": 4, "stop_token_ids": [3],
        "skip_special_tokens": False, "cache_salt": "s", "min_p": 0.01, "top_k": 90,
    }  # fmt: skip
    for extra in (fields, {"allowed_token_ids": [300, 301, 302]}, {"structured_outputs": {"regex": "[a-z]{3,9}"}}):
        chat = face.chats(5, max_tokens=30, extra_body=extra).content
        assert chat
        assert heard_message(face.message(5, max_tokens=30, extra_body=extra)).content == chat
        assert face.response(5, max_output_tokens=30, extra_body=extra).output_text == chat
    plain = face.chats(5, max_tokens=30).content
    stop = {"stop": plain[6:9], "include_stop_str_in_output": True}
    chat = face.chats(5, max_tokens=30, extra_body=stop).content
    assert chat != plain
    assert face.response(5, max_output_tokens=30, extra_body=stop).output_text == chat
    message = face.claude.messages.create(
        model=MODEL, messages=HELLO, max_tokens=30, stop_sequences=[plain[6:9]],
        extra_body={"seed": 5, "include_stop_str_in_output": True},
    )  # fmt: skip
    assert message.content[0].type == "text"
    assert message.content[0].text == chat


MESSAGES__FIELDS__SAYS: list[tuple[dict[str, Any], str]] = [
    ({"output_config": {"effort": "low"}}, "output_config.effort is not supported"),
    (
        {"tools": CLAUDE_TOOLS, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        "output_config.format.schema and tools exclude each other",
    ),
    (
        {"tools": CLAUDE_TOOLS, "tool_choice": {"type": "any"}, "stop_sequences": ["x"]},
        "stop_sequences",
    ),
    (
        {
            "tools": [
                {"name": "f", "strict": True, "input_schema": {"type": "object", "properties": {"a": {"not": {}}}}}
            ]
        },
        "tools[0].input_schema: at /properties/a/not",
    ),
    (
        {"thinking": {"type": "disabled"}, "extra_body": THINK},
        "chat_template_kwargs.enable_thinking and thinking contradict each other",
    ),
]


@pytest.mark.parametrize(("fields", "says"), MESSAGES__FIELDS__SAYS)
def test_messages_are_refused_by_name(face: Face, fields: dict[str, Any], says: str) -> None:
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as caught:
            face.claude.messages.create(model=MODEL, messages=HELLO, max_tokens=9, stream=stream, **fields)
        assert says in str(caught.value)


RESPONSES__FIELDS__PARAM__SAYS: list[tuple[dict[str, Any], str, str]] = [
    ({"reasoning": {"effort": "low"}}, "reasoning.effort", "reasoning.effort is not supported"),
    (
        {"tools": FUNCTIONS, "text": {"format": {"type": "json_object"}}},
        "text.format",
        "text.format and tools exclude each other",
    ),
    (
        {"tools": [{"type": "function", "name": "f", "strict": True,
                    "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}]},
        "tools[0].parameters",
        "tools[0].parameters: at /properties/a/not",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "says"), RESPONSES__FIELDS__PARAM__SAYS)
def test_responses_are_refused_by_name(face: Face, fields: dict[str, Any], param: str, says: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            face.chat.responses.create(model=MODEL, input="x", max_output_tokens=9, stream=stream, **fields)
        assert caught.value.param == param
        assert says in caught.value.message


def test_a_model_that_does_neither_says_so(server: Any) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as claude:
        with pytest.raises(anthropic.BadRequestError, match="hermes, llama3_json"):
            claude.messages.create(model="tiny-chat", messages=HELLO, max_tokens=4, tools=CLAUDE_TOOLS)
        with pytest.raises(anthropic.BadRequestError, match=r'"enabled" is not supported: .* no markers of reasoning'):
            claude.messages.create(
                model="tiny-chat", messages=HELLO, max_tokens=9, thinking={"type": "enabled", "budget_tokens": 4}
            )
        for quiet in ("adaptive", "disabled"):
            thinking: Any = {"type": quiet}
            assert claude.messages.create(model="tiny-chat", messages=HELLO, max_tokens=9, thinking=thinking).content
