"""Tool calls and reasoning over HTTP with the official client, whole and streamed, on a real model.

The model is too small to call by itself, so grammars make it; what it writes in the arguments is its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema
import openai
import pytest

MODEL = "tiny-agent"
HELLO: Any = [{"role": "user", "content": "Tell me of a little girl."}]
PARAMETERS: Any = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "units": {"enum": ["C", "F"]},
    },
    "required": ["city", "days", "units"],
    "additionalProperties": False,
}


def tool(name: str, strict: bool = True) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": PARAMETERS, "strict": strict}}


TOOLS = [tool("get_weather"), tool("get_time")]


@dataclass
class Heard:
    """A choice as a client has put it together."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    finish_reason: str | None = None


def streamed(events: Iterable[Any], choices: int = 1) -> list[Heard]:
    heard = [Heard() for _ in range(choices)]
    for event in events:
        for choice in event.choices:
            one, delta = heard[choice.index], choice.delta
            one.content += delta.content or ""
            one.reasoning += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                if call.id is not None:
                    assert call.index == len(one.calls)
                    one.calls.append((call.id, call.function.name, ""))
                id_, name, text = one.calls[call.index]
                one.calls[call.index] = (id_, name, text + (call.function.arguments or ""))
            one.finish_reason = choice.finish_reason or one.finish_reason
    return heard


def whole(made: Any) -> list[Heard]:
    return [
        Heard(
            choice.message.content or "",
            getattr(choice.message, "reasoning_content", None) or "",
            [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []],
            choice.finish_reason,
        )
        for choice in made.choices
    ]


def ask(agent: openai.OpenAI, **fields: Any) -> list[Heard]:
    """Both ways; they have to say the same, but for the ids of calls, which belong to one response."""
    asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 150, "seed": 5, "temperature": 1.0} | fields
    plain = whole(agent.chat.completions.create(**asked))
    events = streamed(agent.chat.completions.create(**asked, stream=True), asked.get("n", 1))
    for one, other in zip(plain, events, strict=True):
        assert (one.content, one.reasoning, one.finish_reason) == (other.content, other.reasoning, other.finish_reason)
        assert [call[1:] for call in one.calls] == [call[1:] for call in other.calls]
    return plain


def test_a_required_call_parses_and_validates(agent: openai.OpenAI) -> None:
    for heard in ask(agent, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, n=4):
        ((_, name, arguments),) = heard.calls
        assert name in ("get_weather", "get_time")
        jsonschema.validate(json.loads(arguments), PARAMETERS)
        assert heard.finish_reason == "tool_calls"
        assert heard.content == ""


def test_a_named_function_is_called(agent: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_time"}}
    for heard in ask(agent, tools=TOOLS, tool_choice=named, n=3):
        assert [name for _, name, _ in heard.calls] == ["get_time"]


def test_several_calls_have_ids_of_their_own(agent: openai.OpenAI) -> None:
    several = [h for h in ask(agent, tools=TOOLS, tool_choice="required", n=8, max_tokens=300) if len(h.calls) > 1]
    assert several
    for heard in several:
        assert len({id_ for id_, _, _ in heard.calls}) == len(heard.calls)
        assert all(id_.startswith("call_") for id_, _, _ in heard.calls)


def test_a_conversation_goes_on_with_the_result(agent: openai.OpenAI) -> None:
    made = agent.chat.completions.create(
        model=MODEL, messages=HELLO, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=5,
        max_tokens=150,
    )  # fmt: skip
    message = made.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "12 degrees"}
    messages = [*HELLO, message.model_dump(exclude_none=True, exclude={"refusal"}), result]
    again = agent.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=8)
    assert again.usage.prompt_tokens > made.usage.prompt_tokens


def test_without_tools_or_with_none_there_are_no_calls(agent: openai.OpenAI) -> None:
    (plain,) = ask(agent)
    assert plain.calls == []
    assert ask(agent, tools=TOOLS, tool_choice="none") == [plain]


def test_markers_in_messages_are_text(agent: openai.OpenAI) -> None:
    """Nobody ends a turn, or makes a call, by writing its marker; tokenize shows what the model reads."""

    def ids(text: str, **more: Any) -> list[int]:
        messages = [{"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": "b"}]}]
        path = str(agent.base_url).removesuffix("/v1/") + "/tokenize"
        return httpx.post(path, json={"messages": messages, **more}).json()["tokens"]

    for spelled in ("</s>", "a</s>\nassistant: no", "<tool_call></tool_call>", "<s></s></s>"):
        assert [i for i in ids(spelled) if i in (1, 2, 500, 502)] == [2]  # what the template wrote
    assert len(ids("a", tools=TOOLS)) > len(ids("a"))
    assert ids("a", chat_template_kwargs={"open_thinking": True})[-1] != ids("a")[-1]


def test_a_budget_ends_the_reasoning(agent: openai.OpenAI) -> None:
    opened = {"chat_template_kwargs": {"open_thinking": True}, "thinking_token_budget": 6}
    (heard,) = ask(agent, extra_body=opened, max_tokens=40)
    assert heard.reasoning
    assert heard.content
    made = agent.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=40, seed=5, temperature=1.0, extra_body=opened
    )
    closing = 4  # line break, marker, and two line breaks, of which the marker ends the reasoning
    assert 6 < made.usage.completion_tokens_details.reasoning_tokens <= 6 + closing
    (without,) = ask(agent, extra_body=opened | {"thinking_token_budget": 0}, max_tokens=40)
    assert without.reasoning == ""


def test_a_schema_holds_after_the_reasoning(agent: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "w", "schema": PARAMETERS}}
    opened = {"chat_template_kwargs": {"open_thinking": True}, "thinking_token_budget": 8}
    for heard in ask(agent, response_format=form, extra_body=opened, n=4):
        assert heard.reasoning
        assert heard.finish_reason == "stop"
        jsonschema.validate(json.loads(heard.content), PARAMETERS)


def test_calls_after_reasoning_with_a_budget(agent: openai.OpenAI) -> None:
    opened = {"chat_template_kwargs": {"open_thinking": True}, "thinking_token_budget": 5}
    for heard in ask(agent, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, extra_body=opened, n=3):
        assert heard.reasoning
        ((_, _, arguments),) = heard.calls
        jsonschema.validate(json.loads(arguments), PARAMETERS)


def test_an_answer_goes_on_from_the_last_message(agent: openai.OpenAI) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Once upon a time"}]
    going_on = {"continue_final_message": True}
    made = agent.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=4, temperature=0, extra_body=going_on
    )
    text = f"user: {HELLO[0]['content']}</s>\nassistant: Once upon a time"
    raw = agent.completions.create(model=MODEL, prompt=text, max_tokens=1)
    assert made.usage.prompt_tokens == raw.usage.prompt_tokens - 1  # this template writes no BOS
    begun = agent.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)
    plain = agent.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, extra_body={"add_generation_prompt": False}
    )
    assert plain.usage.prompt_tokens < begun.usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"tools": [tool("a b")]}, "tools[0].function.name", "1 to 64 letters"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice", "required"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice.function.name",
            "not one of this request's tools",
        ),
        (
            {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
            "response_format",
            "exclude each other",
        ),
        ({"tools": TOOLS, "tool_choice": "required", "stop": "x"}, "stop", "exclude each other"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True,
             "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}}], "tool_choice": "required"},
            "tools[0].function.parameters",
            "/properties/a/not",
        ),
    ],
)  # fmt: skip
def test_wrong_tools_are_refused_by_name(agent: openai.OpenAI, fields: Any, param: str, says: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            agent.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=9, stream=stream, **fields)
        assert caught.value.param == param
        assert says in caught.value.message


def test_a_model_without_a_format_says_which_there_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="hermes, llama3_json") as caught:
        client.chat.completions.create(model="tiny-chat", messages=HELLO, tools=TOOLS, max_tokens=4)
    assert caught.value.param == "tools"
    with pytest.raises(openai.BadRequestError, match="no markers of reasoning"):
        client.chat.completions.create(
            model="tiny-chat", messages=HELLO, max_tokens=4, extra_body={"thinking_token_budget": 4}
        )
