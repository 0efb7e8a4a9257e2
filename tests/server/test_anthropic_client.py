"""Anthropic's official client against a real server: whole, streamed, counted, listed, refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from starlette.types import Message as AsgiMessage

from forebay.engine.async_engine import AsyncEngine
from forebay.errors import ForebayError
from forebay.profile import load_profile
from forebay.server.app import build_app
from forebay.server.errors import error_response
from forebay.server.gateway import Gateway
from tests.support.faces import MODEL, events_of
from tests.support.server_process import ServeCommand, eventually

HELLO: Any = [{"role": "user", "content": "Tell me of a little girl."}]
VERSION = {"anthropic-version": "2023-06-01"}
ENDS = {"temperature": 100, "seed": 7}  # draws an end of turn among its first tokens
GREEDY: Any = {"extra_body": {"temperature": 0}}  # the client has no argument for it any more


@pytest.fixture(scope="module")
def client(server: ServeCommand) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def create(client: anthropic.Anthropic, **given: Any) -> anthropic.types.Message:
    request: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 20, **GREEDY, **given}
    return client.messages.create(**request)


def text_of(message: anthropic.types.Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


def test_a_message(client: anthropic.Anthropic) -> None:
    message = create(client)
    assert text_of(message)
    assert re.fullmatch("msg_[0-9a-f]{32}", message.id)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    assert message.usage.output_tokens == 20
    assert message._request_id


def test_the_ways_to_write_a_conversation(client: anthropic.Anthropic) -> None:
    def block(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": text, **more}

    marked = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    plain = create(client, system="Be brief.\nBe kind.", messages=[{"role": "user", "content": "Hello\nyou"}])
    blocks = create(
        client,
        system=[block("Be brief."), block("Be kind.", **marked)],
        messages=[{"role": "user", "content": [block("Hello", **marked), block("you")]}],
    )
    turns = create(
        client,
        system="Be brief.",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hello"},
            {"role": "user", "content": [block("you")]},
        ],
    )
    assert text_of(plain) == text_of(blocks) == text_of(turns)
    assert plain.usage.input_tokens + (plain.usage.cache_read_input_tokens or 0) == turns.usage.input_tokens + (
        turns.usage.cache_read_input_tokens or 0
    )


def test_a_last_message_of_the_assistants_is_continued(client: anthropic.Anthropic, http: httpx.Client) -> None:
    prompt = "<s>user: Tell me of a little girl.\nassistant: Once upon a time"
    ids = http.post("/tokenize", json={"prompt": prompt, "add_special_tokens": False}).json()["tokens"]
    body = {"model": MODEL, "prompt": ids, "max_tokens": 20, "temperature": 0}
    expected = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    start = {"role": "assistant", "content": "Once upon a time"}
    assert text_of(create(client, messages=[*HELLO, start])) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_the_stop_sequence_that_was_found_is_named(client: anthropic.Anthropic, stream: bool) -> None:
    whole = text_of(create(client, max_tokens=40))
    stop = whole[17:23]
    request: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 40, **GREEDY}
    request["stop_sequences"] = ["\x00", stop, whole[30:]]
    if stream:
        with client.messages.stream(**request) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**request)
    assert text_of(message) == whole[: whole.index(stop)]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


def test_a_stop_sequence_at_the_start_leaves_no_content(client: anthropic.Anthropic) -> None:
    whole = text_of(create(client))
    request: dict[str, Any] = {"stop_sequences": [whole[:3]]}
    assert create(client, **request).content == []
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=20, **GREEDY, **request) as events:
        message = events.get_final_message()
    assert (message.content, message.stop_reason, message.stop_sequence) == ([], "stop_sequence", whole[:3])


def test_the_model_ends_its_turn(client: anthropic.Anthropic) -> None:
    message = create(client, max_tokens=400, extra_body=ENDS)
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens < 400


def test_the_events_of_a_stream(http: httpx.Client) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0, "stream": True}
    answer = http.post("/v1/messages", json=body, headers=VERSION)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    events = events_of(answer.text)
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    names = [name for name, _ in events]
    deltas = names.count("content_block_delta")
    assert names == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert deltas > 1
    start, block, ping, *_, stop, delta, end = [data for _, data in events]
    assert start["message"] | {"usage": None} == {
        "id": start["message"]["id"],
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": None,
    }
    assert block == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert (ping, stop) == ({"type": "ping"}, {"type": "content_block_stop", "index": 0})
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 12
    assert {key: start["message"]["usage"][key] for key in delta["usage"] if key != "output_tokens"} == {
        key: count for key, count in delta["usage"].items() if key != "output_tokens"
    }
    assert end == {"type": "message_stop"}


def test_a_streamed_message_is_the_whole_one(client: anthropic.Anthropic) -> None:
    whole = create(client, max_tokens=30)
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=30, **GREEDY) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == text_of(message) == text_of(whole)
    assert len(pieces) > 1
    assert (message.stop_reason, message.model, message.role) == (whole.stop_reason, whole.model, whole.role)
    assert message.usage.output_tokens == whole.usage.output_tokens
    raw: Any = client.messages.create(model=MODEL, messages=HELLO, max_tokens=30, stream=True, **GREEDY)
    kinds = [event.type for event in raw]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_the_clients_beta_messages_are_the_same(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(model=MODEL, messages=HELLO, max_tokens=20, betas=["files-api"], **GREEDY)
    assert [block.to_dict() for block in message.content] == [block.to_dict() for block in create(client).content]
    with pytest.raises(anthropic.BadRequestError, match="unknown field 'mcp_servers'; remove it"):
        client.beta.messages.create(model=MODEL, messages=HELLO, max_tokens=1, mcp_servers=[])


def test_tokens_are_counted_as_they_are_used(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "A conversation of some length that nobody has had before."}]
    system = "Begin a prompt as nobody does."
    counted = client.messages.count_tokens(model=MODEL, messages=messages, system=system).input_tokens
    first = create(client, messages=messages, system=system).usage
    second = create(client, messages=messages, system=system).usage
    assert (first.input_tokens, first.cache_read_input_tokens) == (counted, 0)
    assert second.cache_read_input_tokens
    assert second.cache_read_input_tokens >= 16
    assert second.input_tokens + second.cache_read_input_tokens == counted


def test_models(client: anthropic.Anthropic, http: httpx.Client) -> None:
    page = client.models.list()
    (model,) = page.data
    assert (model.id, model.type, page.first_id, page.last_id, page.has_more) == (MODEL, "model", MODEL, MODEL, False)
    assert [found.id for found in page] == [MODEL]
    assert client.models.retrieve(MODEL) == model
    assert model.max_input_tokens == 512
    assert client.models.list(after_id=MODEL).data == []
    assert client.models.list(lifecycle=["active", "retired"]).data == [model]
    assert client.models.list(lifecycle=["deprecated"]).data == []
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude")
    with pytest.raises(
        anthropic.BadRequestError, match='lifecycle must be one of active, deprecated, retired, got "old"'
    ):
        client.models.list(extra_query={"lifecycle": "old"})
    with pytest.raises(anthropic.BadRequestError, match="limit must be an integer from 1 to 1000"):
        client.models.list(limit=0)
    assert http.get("/v1/models").json()["object"] == "list"  # without the header: OpenAI's


def error_of(caught: anthropic.APIStatusError) -> dict[str, Any]:
    """The error object, after checking the shape of the whole body."""
    body: Any = caught.body
    assert set(body) == {"type", "error"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert caught.request_id
    found: dict[str, Any] = body["error"]
    return found


def test_errors_become_the_clients_exceptions(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as wrong:
        create(client, extra_body={"temperature": -1})
    error = error_of(wrong.value)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("temperature must be a number from 0 to 100, got -1")
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        create(client, tools=[{"name": "f", "input_schema": {"type": "object"}}])
    with pytest.raises(anthropic.BadRequestError, match="stop_sequences must be at most 16 strings"):
        create(client, stop_sequences=[""])
    with pytest.raises(anthropic.BadRequestError, match="ask for at most"):
        create(client, max_tokens=512)
    with pytest.raises(anthropic.BadRequestError, match="the prompt has"):
        create(client, messages=[{"role": "user", "content": "word " * 1000}])
    with pytest.raises(anthropic.NotFoundError) as missing:
        create(client, model="claude")
    assert error_of(missing.value)["type"] == "not_found_error"
    with pytest.raises(anthropic.ContentTooLargeError) as large:
        create(client, messages=[{"role": "user", "content": "x" * 2**19}])
    assert error_of(large.value)["type"] == "request_too_large"
    with pytest.raises(anthropic.BadRequestError, match="temperature must be"):
        create(client, stream=True, extra_body={"temperature": -1})


def test_errors_before_a_handler_have_the_same_shape(http: httpx.Client) -> None:
    cases = [
        (http.get("/v1/messages"), 405, "invalid_request_error"),
        (http.get("/v1/nothing", headers=VERSION), 404, "not_found_error"),
        (http.post("/v1/messages", content=b"{}"), 415, "invalid_request_error"),
        (http.post("/v1/messages", content=b"{", headers={"content-type": "application/json"}), 400, None),
        (http.post("/v1/messages/count_tokens", json={}), 400, None),
        (http.post("/v1/messages", json={}, headers={"anthropic-version": "2024-01-01"}), 400, None),
    ]
    for answer, status, kind in cases:
        assert answer.status_code == status, answer.text
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == (kind or "invalid_request_error")
        assert int(answer.headers["content-length"]) == len(answer.content)
    assert (
        'anthropic-version must be 2023-06-01 or 2026-10-21, got "2024-01-01"'
        in cases[-1][0].json()["error"]["message"]
    )
    assert set(http.get("/v1/nothing").json()) == {"error"}  # OpenAI's, for everybody else


def test_a_full_queue_is_a_429(server: ServeCommand, client: anthropic.Anthropic) -> None:
    body = {"model": MODEL, "prompt": "a", "max_tokens": 400, "ignore_eos": True}
    with contextlib.ExitStack() as stack:
        for n, gauge in ((16, "forebay_requests_running"), (32, "forebay_requests_waiting")):
            filler = stack.enter_context(socket.create_connection(server.address))
            data = json.dumps(body | {"n": n}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
            filler.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
            assert eventually(lambda gauge=gauge, n=n: server.metric(gauge) == n)  # type: ignore[misc]  # bound now
        with pytest.raises(anthropic.RateLimitError) as full:
            create(client)
    assert error_of(full.value)["type"] == "rate_limit_error"
    assert int(full.value.response.headers["retry-after"]) >= 1
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)


def test_refusals_are_counted(client: anthropic.Anthropic, server: ServeCommand) -> None:
    name = 'forebay_requests_refused_total{label="invalid_value"}'
    before = server.metric(name)
    for wrong in ({"extra_body": {"temperature": -1}}, {"extra_headers": {"anthropic-version": "1"}}):
        with pytest.raises(anthropic.BadRequestError):
            create(client, **wrong)
    assert server.metric(name) == before + 2


def test_a_draining_server_is_overloaded_and_a_broken_one_an_api_error(tiny_model: Path) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("secret detail")

    async def post(app: Gateway) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            return await client.post("/v1/messages", json={})

    async def run() -> None:
        profile = load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"})
        engine = await AsyncEngine.start(profile)
        try:
            app = build_app(engine)
            failed = await post(Gateway(broken, app.state))
            app.state.draining = True
            drained = await post(app)
        finally:
            await engine.close()
        assert (failed.status_code, failed.json()["error"]["type"]) == (500, "api_error")
        assert "secret" not in failed.text
        assert (drained.status_code, drained.json()["error"]["type"]) == (529, "overloaded_error")

    asyncio.run(run())


class _NoKeyError(ForebayError):
    http_status = 401


def test_a_missing_key_is_an_authentication_error() -> None:
    sent: list[AsgiMessage] = []

    async def receive() -> AsgiMessage:
        return {"type": "http.disconnect"}

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    scope: Any = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": []}
    asyncio.run(error_response(_NoKeyError("send a key"))(scope, receive, send))
    assert sent[0]["status"] == 401
    assert json.loads(sent[1]["body"]) == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "send a key"},
    }
