"""OpenAI's official client and its Responses against a real server: whole, streamed, sent back, refused."""

from __future__ import annotations

import math
import re
from typing import Any

import httpx
import openai
import pytest

from forebay.server.openai.responses.items import items_of
from tests.support.faces import MODEL, events_of

QUESTION = "Tell me of a little girl."
ENDS: dict[str, Any] = {"temperature": 100, "extra_body": {"seed": 7}}  # draws an end of turn among its first tokens


def create(client: openai.OpenAI, **given: Any) -> Any:
    return client.responses.create(
        **{"model": MODEL, "input": QUESTION, "max_output_tokens": 20, "temperature": 0, **given}
    )


def test_a_response(client: openai.OpenAI) -> None:
    response = create(client)
    assert response.output_text
    assert re.fullmatch("resp_[0-9a-f]{32}", response.id)
    assert (response.object, response.model, response.status) == ("response", MODEL, "incomplete")
    assert response.incomplete_details.reason == "max_output_tokens"
    assert (response.completed_at, response.error) == (None, None)
    (item,) = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "incomplete")
    (part,) = item.content
    assert (part.type, part.annotations, part.logprobs) == ("output_text", [], [])
    usage = response.usage
    assert (usage.output_tokens, usage.total_tokens) == (20, usage.input_tokens + 20)
    assert response.to_dict()["store"] is False


def test_the_model_ends_by_itself(client: openai.OpenAI) -> None:
    response = create(client, max_output_tokens=400, **ENDS)
    assert (response.status, response.incomplete_details) == ("completed", None)
    assert response.output[0].status == "completed"
    assert response.completed_at >= response.created_at
    assert response.usage.output_tokens < 400


def test_what_was_asked_is_repeated(client: openai.OpenAI) -> None:
    given = {
        "instructions": "Be brief.", "metadata": {"a": "b"}, "top_p": 0.5, "temperature": 0.7, "user": "u",
        "safety_identifier": "s", "prompt_cache_key": "k", "top_logprobs": 2, "max_output_tokens": 3,
    }  # fmt: skip
    response = create(client, **given).to_dict()
    assert {name: response[name] for name in given} == given
    assert (response["tools"], response["tool_choice"], response["truncation"]) == ([], "auto", "disabled")


def test_neutral_values_change_nothing(client: openai.OpenAI) -> None:
    neutral = {
        "store": False, "background": False, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
        "truncation": "disabled", "service_tier": "auto", "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "include": ["reasoning.encrypted_content"], "reasoning": {}, "prompt_cache_retention": "in_memory",
    }  # fmt: skip
    assert create(client, **neutral).output_text == create(client).output_text


def test_the_ways_to_write_a_conversation(client: openai.OpenAI) -> None:
    plain = create(client, instructions="Be brief.", input="Hello\nyou").output_text
    parts = [{"type": "input_text", "text": "Hello"}, {"type": "input_text", "text": "you"}]
    assert create(client, input=[
        {"role": "developer", "content": "Be brief."}, {"type": "message", "role": "user", "content": parts}
    ]).output_text == plain  # fmt: skip


def test_output_is_input_for_the_next_turn(client: openai.OpenAI, http: httpx.Client) -> None:
    first = create(client)
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    next_turn = {"role": "user", "content": "And of a dog?"}
    second = create(client, input=[*turns, *(item.to_dict() for item in first.output), next_turn])
    chat = client.chat.completions.create(
        model=MODEL,
        messages=[*turns, {"role": "assistant", "content": first.output_text}, next_turn],
        max_tokens=20,
        temperature=0,
    )
    assert second.output_text == chat.choices[0].message.content
    again = create(client, input=[*turns, *(item.to_dict() for item in first.output), next_turn])
    assert again.usage.input_tokens_details.cached_tokens >= 16


def test_the_events_of_a_stream(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": QUESTION, "max_output_tokens": 12, "temperature": 0}
    whole = http.post("/v1/responses", json=body).json()
    events = events_of(http.post("/v1/responses", json=body | {"stream": True}).text)
    names = [name for name, _ in events]
    deltas = names.count("response.output_text.delta")
    assert deltas > 1
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    data = [event for _, event in events]
    assert [event["sequence_number"] for event in data] == list(range(len(data)))
    assert [event["type"] for event in data] == names
    created, _, added, part, *_, text_done, part_done, item_done, end = data
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item_id = added["item"]["id"]
    assert {event["item_id"] for event in data if "item_id" in event} == {item_id}
    text = "".join(event["delta"] for event in data if event["type"] == "response.output_text.delta")
    assert text == text_done["text"] == part_done["part"]["text"] == item_done["item"]["content"][0]["text"]
    final = end["response"]
    changing = {"id", "created_at", "output", "usage"}
    assert {k: v for k, v in final.items() if k not in changing} == {
        k: v for k, v in whole.items() if k not in changing
    }
    assert final["output"] == [item_done["item"]]
    assert final["output"][0] | {"id": None} == whole["output"][0] | {"id": None}
    assert (final["id"], final["created_at"]) == (created["response"]["id"], created["response"]["created_at"])
    assert final["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 12


def test_a_response_without_a_word_has_an_empty_message() -> None:
    (item,) = items_of("resp_1", [], "completed", [])
    assert (item["type"], item["status"], item["content"][0]["text"]) == ("message", "completed", "")


def test_the_clients_own_stream_helper(client: openai.OpenAI) -> None:
    whole = create(client, max_output_tokens=400, **ENDS)
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=400, **ENDS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("given", [{"include": ["message.output_text.logprobs"]}, {"top_logprobs": 3}])
def test_logprobs(client: openai.OpenAI, given: dict[str, Any]) -> None:
    response = create(client, **given)
    (part,) = response.output[0].content
    assert len(part.logprobs) == 20
    assert b"".join(bytes(entry.bytes) for entry in part.logprobs).decode() == response.output_text
    for entry in part.logprobs:
        assert len(entry.top_logprobs) == given.get("top_logprobs", 0)
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.0001
    chat = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=20,
        temperature=0,
        logprobs=True,
        top_logprobs=given.get("top_logprobs", 0),
    )
    assert chat.choices[0].logprobs is not None
    expected = [entry.to_dict() for entry in chat.choices[0].logprobs.content or ()]
    assert [entry.to_dict() for entry in part.logprobs] == expected
    streamed = [event.logprobs for event in create(client, stream=True, **given) if "text.delta" in event.type]
    assert [entry.to_dict() for piece in streamed for entry in piece] == expected


def test_input_tokens_are_counted_as_they_are_used(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"instructions": "Count.", "input": [{"role": "user", "content": QUESTION}]}
    counted = client.responses.input_tokens.count(model=MODEL, **given)
    assert (counted.object, counted.input_tokens) == (
        "response.input_tokens",
        create(client, **given).usage.input_tokens,
    )
    assert client.responses.input_tokens.count(**given) == counted
    for wrong, param in (({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"input": []}, "input")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.input_tokens.count(**(given | wrong))
        assert caught.value.param == param
    with pytest.raises(openai.NotFoundError, match="compaction is not implemented"):
        client.responses.compact(model=MODEL, input=QUESTION)


def test_errors_become_the_clients_exceptions(client: openai.OpenAI) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"store": True}, "unsupported_field", "store"),
        ({"previous_response_id": "resp_1"}, "unsupported_field", "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_field", "tools[0].type"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"max_output_tokens": 512}, "context_length_exceeded", "max_output_tokens"),
        ({"input": "word " * 1000}, "context_length_exceeded", "input"),
        ({"extra_body": {"inptu": "x"}}, "unknown_field", "inptu"),
        ({"temperature": -1, "stream": True}, "invalid_value", "temperature"),
    ]
    for given, code, param in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            create(client, **given)
        assert (caught.value.code, caught.value.param) == (code, param)
        if param == "max_output_tokens":
            assert "max_tokens" not in caught.value.message
    with pytest.raises(openai.NotFoundError):
        create(client, model="gpt-5")


def test_nothing_is_stored(client: openai.OpenAI) -> None:
    made = create(client).id
    for ask in (
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        client.responses.input_items.list,
    ):
        with pytest.raises(openai.NotFoundError, match="responses are not stored") as caught:
            ask(made)
        assert (caught.value.code, caught.value.param) == ("not_found", "response_id")
        assert made in caught.value.message
