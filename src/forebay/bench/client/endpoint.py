"""Whom a run asks, and the bytes of a request to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forebay.bench.plan import Message, Turn
from forebay.errors import BenchError

MAX_TIMEOUT_S = 30 * 86_400.0
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a header's name, RFC 9110 section 5.6.2
_VISIBLE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # a header's value


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server. base_url: such as http://host:8000 or https://host/prefix, with or without /v1
    at its end. timeout_s: the longest a request may take, connecting included."""

    base_url: str
    model: str
    api_key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Origin:
    """`base_url` in parts. `path` is what stands before /v1, without a slash at its end."""

    host: str
    port: int
    tls: bool
    path: str
    authority: str


def parse_base_url(base_url: str) -> Origin:
    """Raises BenchError if it is no http(s) URL of a server."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise _bad_url(base_url, str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad_url(base_url, "no http(s) address")
    if parts.query or parts.fragment or parts.username is not None:
        raise _bad_url(base_url, "it has a user, query or fragment")
    if not re.fullmatch(r"[\x21-\x7e]*", parts.path) or not re.fullmatch(r"[\x21-\x7e]+", parts.netloc):
        raise _bad_url(base_url, "it has blanks or letters outside ASCII")
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Origin(parts.hostname, port or (443 if tls else 80), tls, path, parts.netloc)


def _bad_url(base_url: str, why: str) -> BenchError:
    shown = re.sub(r"//[^/]*@", "//***@", base_url)
    return BenchError(f"base_url {shown!r}: {why}; give a URL such as http://127.0.0.1:8000", param="base_url")


def check_endpoint(endpoint: Endpoint) -> None:
    """Raises BenchError if no request to it could be written."""
    parse_base_url(endpoint.base_url)
    if not 0 < endpoint.timeout_s <= MAX_TIMEOUT_S:
        raise BenchError(
            f"timeout_s={endpoint.timeout_s} must be above 0 and at most {MAX_TIMEOUT_S:.0f}", param="timeout_s"
        )
    for name, value in endpoint.headers:
        if not _TOKEN.fullmatch(name) or not _VISIBLE.fullmatch(value):
            raise BenchError(f"header {name!r} is not of the form name: value on one line", param="headers")
        if name.lower() in ("content-length", "transfer-encoding", "connection", "host"):
            raise BenchError(f"header {name!r} is written by the client itself; leave it out", param="headers")
    if endpoint.api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", endpoint.api_key):
        raise BenchError("api_key (--api-key or OPENAI_API_KEY) must be visible ASCII characters", param="api_key")


def is_chat(turn: Turn) -> bool:
    return isinstance(turn.prompt, list) and bool(turn.prompt) and isinstance(turn.prompt[0], dict)


def messages_of(turn: Turn) -> list[Message]:
    """The messages of a chat turn."""
    return [message for message in turn.prompt if isinstance(message, dict)]


class RequestEncoder:
    """Turns a turn into the bytes of its HTTP request. Raises BenchError where a body cannot be JSON."""

    def __init__(self, endpoint: Endpoint) -> None:
        check_endpoint(endpoint)
        self._model = endpoint.model
        self._json = msgspec.json.Encoder()
        origin = parse_base_url(endpoint.base_url)
        self._completions = _head(endpoint, origin, "completions")
        self._chat = _head(endpoint, origin, "chat/completions")

    def encode(self, turn: Turn, history: list[Message]) -> bytes:
        """`history` stands before the messages of a chat turn."""
        chat = is_chat(turn)
        fields: dict[str, Any] = {
            "model": self._model,
            **({"messages": [*history, *messages_of(turn)]} if chat else {"prompt": turn.prompt}),
            "max_tokens": turn.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            **turn.body,
        }
        try:
            body = self._json.encode(fields)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise BenchError(f"a turn of bucket {turn.bucket!r} cannot be sent as JSON: {error}") from error
        return b"%b%d\r\n\r\n%b" % (self._chat if chat else self._completions, len(body), body)


def _head(endpoint: Endpoint, origin: Origin, route: str) -> bytes:
    """The request up to the value of its content-length."""
    own = {name.lower() for name, _ in endpoint.headers}
    headers = [
        ("Host", origin.authority),
        ("User-Agent", "forebay-bench"),
        ("Accept", "text/event-stream"),
        ("Content-Type", "application/json"),
    ]
    if endpoint.api_key is not None:
        headers.append(("Authorization", f"Bearer {endpoint.api_key}"))
    headers = [(name, value) for name, value in headers if name.lower() not in own]
    headers += [*endpoint.headers, ("Content-Length", "")]
    lines = [f"POST {origin.path}/v1/{route} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1")
