"""What is true of every route: error shape, headers, limits, health."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServeCommand, eventually

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize")
JSON_TYPE = {"content-type": "application/json"}


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, after checking its shape and the headers every response has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{64}", response.headers["x-forebay-profile"])
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


def test_the_printed_curl_line_works(server: ServeCommand) -> None:
    done = subprocess.run(["bash", "-c", server.curl_line], capture_output=True, text=True, check=True, timeout=60)
    assert '"chat.completion"' in done.stdout


def test_no_such_path(http: httpx.Client) -> None:
    error = error_of(http.get("/v2/nothing"), 404)
    assert (error["code"], error["type"], error["param"]) == ("not_found", "not_found_error", None)
    assert "/v2/nothing" in error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_wrong_method(http: httpx.Client, path: str) -> None:
    error = error_of(http.get(path), 405)
    assert error["code"] == "method_not_allowed"
    assert "POST" in error["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b"[" * 99999, "too deeply"),
    ],
)
def test_wrong_json(http: httpx.Client, path: str, body: bytes, message: str) -> None:
    error = error_of(http.post(path, content=body, headers=JSON_TYPE), 400)
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", PATHS)
def test_wrong_content_type(http: httpx.Client, path: str) -> None:
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/jsonl"}):
        error = error_of(http.post(path, content=b"{}", headers=headers), 415)
        assert error["code"] == "unsupported_media_type"
    typed = {"content-type": "Application/JSON; charset=utf-8"}
    assert "is required" in error_of(http.post(path, content=b'{"model":"tiny-chat"}', headers=typed), 400)[
        "message"
    ] or (path == "/tokenize")


def test_more_completions_than_the_queue_holds(http: httpx.Client) -> None:
    body = {"model": "tiny-chat", "prompt": "a", "n": 33, "max_tokens": 1}
    error = error_of(http.post("/v1/completions", json=body), 400)
    assert (error["code"], error["param"]) == ("invalid_value", "n")
    assert "use n <= 32" in error["message"]


@pytest.mark.parametrize("size", [2**18 + 1, 2**18 * 4, 2**18 * 20])
def test_too_large_body(http: httpx.Client, size: int) -> None:
    error = error_of(http.post("/v1/completions", content=b" " * size, headers=JSON_TYPE), 413)
    assert error["code"] == "body_too_large"
    assert str(2**18) in error["message"]
    assert http.get("/health").status_code == 200


def test_chunked_body_has_the_same_limit(http: httpx.Client) -> None:
    pieces = (b" " * 1000 for _ in range(300))
    error_of(http.post("/v1/completions", content=pieces, headers=JSON_TYPE), 413)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_another_model(http: httpx.Client, path: str) -> None:
    body = {"model": "gpt-5", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    body.pop("messages" if path == "/v1/completions" else "prompt")
    error = error_of(http.post(path, json=body), 404)
    assert (error["code"], error["param"]) == ("not_found", "model")
    assert "'tiny-chat'" in error["message"]


def test_prompts_that_cannot_fit(http: httpx.Client) -> None:
    body = {"model": "tiny-chat", "prompt": "a", "max_tokens": 512}
    error = error_of(http.post("/v1/completions", json=body), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
    long = {"model": "tiny-chat", "prompt": ["a", "word " * 1000]}
    error = error_of(http.post("/v1/completions", json=long), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt[1]")
    ids = {"model": "tiny-chat", "prompt": [1] * 512}
    error = error_of(http.post("/v1/completions", json=ids), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    chat = {"model": "tiny-chat", "messages": [{"role": "user", "content": "word " * 1000}], "stream": True}
    error = error_of(http.post("/v1/chat/completions", json=chat), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")


def test_token_ids_outside_the_vocabulary(http: httpx.Client) -> None:
    error = error_of(http.post("/v1/completions", json={"model": "tiny-chat", "prompt": [[1], [2, 512]]}), 400)
    assert (error["code"], error["param"]) == ("invalid_value", "prompt[1][1]")
    error = error_of(http.post("/detokenize", json={"tokens": [1, -1]}), 400)
    assert error["param"] == "tokens[1]"


def test_refusals_are_counted(http: httpx.Client, server: ServeCommand) -> None:
    name = 'forebay_requests_refused_total{label="unsupported_field"}'
    before = server.metric(name)
    error_of(http.post("/v1/completions", json={"model": "tiny-chat", "prompt": "a", "suffix": "b"}), 400)
    assert server.metric(name) == before + 1


@pytest.mark.parametrize(("prompts", "n"), [(33, 1), (17, 2)])
def test_more_prompts_than_the_queue_holds(prompts: int, n: int, http: httpx.Client) -> None:
    """Trying again could never help, so this is no 429."""
    response = http.post("/v1/completions", json={"model": "tiny-chat", "prompt": ["a"] * prompts, "n": n})
    error = error_of(response, 400)
    assert (error["code"], error["param"]) == ("invalid_value", "prompt")
    assert f"send at most {32 // n} prompts" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_says_when_to_come_back(server: ServeCommand, stream: bool) -> None:
    body = {"model": "tiny-chat", "prompt": "a", "max_tokens": 400, "ignore_eos": True}
    with contextlib.ExitStack() as stack:
        for n, gauge in ((16, "forebay_requests_running"), (32, "forebay_requests_waiting")):
            filler = stack.enter_context(socket.create_connection(server.address))
            data = json.dumps(body | {"n": n}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
            filler.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
            assert eventually(lambda gauge=gauge, n=n: server.metric(gauge) == n)  # type: ignore[misc]  # bound now
        response = httpx.post(f"{server.url}/v1/completions", json=body | {"stream": stream})
        error = error_of(response, 429)
        assert (error["code"], error["type"]) == ("overloaded", "rate_limit_error")
        assert int(response.headers["retry-after"]) >= 1
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)


def test_request_ids_are_echoed_if_sane(http: httpx.Client) -> None:
    assert http.get("/health", headers={"x-request-id": "abc-1.2:3"}).headers["x-request-id"] == "abc-1.2:3"
    for wild in ("x" * 129, "a b", 'a"b', "-a", ""):
        made = http.get("/health", headers={"x-request-id": wild}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
    first, second = (http.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_health_ready_version(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ok"}
    version = http.get("/version")
    assert version.json()["profile"] == version.headers["x-forebay-profile"]
    assert version.json()["model"] == "tiny-chat"
    assert version.json()["settings"]["kv.prefix_cache"].startswith("true (")


def test_models(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()
    assert listed["object"] == "list"
    (card,) = listed["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("tiny-chat", "model", 512)
    assert http.get("/v1/models/tiny-chat").json() == card
    assert error_of(http.get("/v1/models/org/other"), 404)["param"] == "model"


def test_metrics_are_prometheus_text(http: httpx.Client) -> None:
    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "forebay_requests_running" in response.text


def test_tokenize_and_back(http: httpx.Client) -> None:
    answer = http.post("/tokenize", json={"prompt": "Once upon a time"}).json()
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 512
    text = http.post("/detokenize", json={"tokens": answer["tokens"], "skip_special_tokens": True}).json()
    assert text == {"prompt": "Once upon a time"}
    assert http.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}
    plain = http.post("/tokenize", json={"prompt": "Once upon a time", "add_special_tokens": False}).json()
    assert answer["tokens"][1:] == plain["tokens"]
    error_of(http.post("/tokenize", json={}), 400)


def test_tokenize_messages_as_chat_does(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    count = http.post("/tokenize", json={"messages": messages}).json()["count"]
    answer = http.post(
        "/v1/chat/completions", json={"model": "tiny-chat", "messages": messages, "max_tokens": 1}
    ).json()
    assert answer["usage"]["prompt_tokens"] == count


def test_openapi_describes_the_bodies(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert {"model", "messages", "temperature", "stream"} <= set(schema["properties"])
    assert schema["required"] == ["model", "messages"]
