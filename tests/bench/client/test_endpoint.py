"""Whom to ask: URLs, headers, bodies, and what cannot be sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forebay.bench.client.endpoint import Endpoint, RequestEncoder, check_endpoint, parse_base_url
from forebay.bench.client.load import check_workload
from forebay.bench.plan import Session, Turn
from forebay.errors import BenchError
from tests.bench.client.playing import turn_of, workload_of


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "path"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, False, ""),
        ("http://h:1/v1", "h", 1, False, ""),
        ("http://h:1/v1/", "h", 1, False, ""),
        ("https://h/some/prefix/v1", "h", 443, True, "/some/prefix"),
        ("http://[::1]:80/a/", "::1", 80, False, "/a"),
    ],
)
def test_urls(url: str, host: str, port: int, tls: bool, path: str) -> None:
    origin = parse_base_url(url)
    assert (origin.host, origin.port, origin.tls, origin.path) == (host, port, tls, path)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://u:p@h", "http://h/?a=1",
     "http://h/a b", "http://h/\r\nX: y", "http://ü", "http://[::1", "http://h:1/ä"],
)  # fmt: skip
def test_bad_urls_are_named(url: str) -> None:
    with pytest.raises(BenchError, match="base_url"):
        parse_base_url(url)


def test_a_password_in_a_url_is_not_said() -> None:
    with pytest.raises(BenchError) as raised:
        parse_base_url("http://u:s3cret@h")
    assert "s3cret" not in raised.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": (("A b", "c"),)},
        {"headers": (("A", "b\r\nC: d"),)},
        {"headers": (("content-length", "3"),)},
        {"api_key": "a\nb"},
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
    ],
    ids=str,
)
def test_bad_endpoints_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(BenchError, match=next(iter(fields)).removesuffix("s")):
        check_endpoint(Endpoint(base_url="http://h", model="m", **fields))


def request_of(turn: Turn, **endpoint: Any) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Request line, headers and body."""
    head, _, body = (
        RequestEncoder(Endpoint(**{"base_url": "http://h:1/x/v1", "model": "m", **endpoint}))
        .encode(turn, [])
        .partition(b"\r\n\r\n")
    )
    line, *headers = head.decode().split("\r\n")
    named = dict(header.split(": ", 1) for header in headers)
    assert named["Content-Length"] == str(len(body))
    return line, named, json.loads(body)


def test_a_request() -> None:
    headers = (("X-Team", "a: b"), ("User-Agent", "me"))
    line, named, body = request_of(turn_of("k", prompt="ü"), api_key="secret", headers=headers)
    assert line == "POST /x/v1/completions HTTP/1.1"
    assert (named["Host"], named["Authorization"], named["X-Team"]) == ("h:1", "Bearer secret", "a: b")
    assert named["User-Agent"] == "me"
    assert body["prompt"] == "ü"


def test_chat_goes_to_chat() -> None:
    line, named, body = request_of(turn_of("k", prompt=[{"role": "user", "content": "a"}]))
    assert line == "POST /x/v1/chat/completions HTTP/1.1"
    assert "Authorization" not in named
    assert "prompt" not in body


def test_the_body_of_a_turn_comes_last() -> None:
    body = request_of(turn_of("k", body={"temperature": 1, "max_tokens": None, "ignore_eos": True}))[2]
    assert (body["temperature"], body["max_tokens"], body["ignore_eos"]) == (1, None, True)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BenchError, match="JSON"):
        request_of(turn_of("k", body={"stop": object()}))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"prompt": []}, "prompt"),
        ({"body": {"stream": False}}, "stream"),
        ({"body": {"n": 2}}, "n=1"),
        ({"cancel_after_tokens": 0}, "cancel_after_tokens"),
        ({"read_bytes_per_s": 0.0}, "read_bytes_per_s"),
        ({"think_s": -1.0}, "think_s"),
        ({"think_s": float("nan")}, "think_s"),
    ],
    ids=str,
)
def test_turns_that_cannot_be_sent(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(BenchError, match=name):
        check_workload(workload_of(turn_of("k", **fields)))


def test_sessions_that_cannot_be_played() -> None:
    with pytest.raises(BenchError, match="no turns"):
        check_workload(workload_of(Session(turns=())))
    with pytest.raises(BenchError, match="at_s"):
        check_workload(workload_of(Session(turns=(turn_of("k"),), at_s=-1.0)))
    with pytest.raises(BenchError, match="concurrency"):
        check_workload(workload_of(turn_of("k"), concurrency=0))
