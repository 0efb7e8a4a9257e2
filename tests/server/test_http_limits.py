"""The limits on heads (request line and headers), on their time, and on the nesting of a body."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from forebay.engine.async_engine import AsyncEngine
from forebay.profile import load_profile
from forebay.server.app import build_app
from forebay.server.json_shape import MAX_NESTING
from forebay.server.serve import _HttpServer, _uvicorn_config, bind
from forebay.server.state import ServerSettings
from tests.server.test_http import JSON_TYPE, error_of
from tests.support.server_process import ServeCommand

LIMITS = ServerSettings()
LINE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def connection(server: ServeCommand) -> Iterator[socket.socket]:
    with socket.create_connection(server.address, timeout=30) as made:
        yield made


def answers(connection: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_too_many_headers(http: httpx.Client) -> None:
    own = len(http.build_request("GET", "/health").headers)
    fits = {f"x-{i}": "v" for i in range(LIMITS.max_headers - own)}
    assert http.get("/health", headers=fits).status_code == 200
    error = error_of(http.get("/health", headers=fits | {"x-more": "v"}), 431)
    assert (error["code"], error["type"]) == ("headers_too_large", "invalid_request_error")
    assert f"has {LIMITS.max_headers + 1} headers and may have {LIMITS.max_headers}" in error["message"]


@pytest.mark.parametrize("where", ["header", "name", "path", "query"])
def test_too_large_a_head(http: httpx.Client, where: str) -> None:
    def ask(size: int) -> httpx.Response:
        long = "a" * size
        if where in ("path", "query"):
            return http.get(f"/v1/models/{long}" if where == "path" else f"/health?{long}")
        return http.get("/health", headers={"x": long} if where == "header" else {long: "x"})

    assert ask(LIMITS.max_head_bytes - 1000).status_code in (200, 404)
    error = error_of(ask(LIMITS.max_head_bytes), 431)
    assert f"more than {LIMITS.max_head_bytes} bytes" in error["message"]
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("piece", [1000, 2**16])
@pytest.mark.parametrize("start", [LINE + b"X: ", b"GET /", LINE], ids=["header", "path", "lines"])
def test_a_head_without_end_is_cut_off(connection: socket.socket, start: bytes, piece: int) -> None:
    """To the byte, so that none is left unread and the answer arrives."""
    filler = b"a: b\r\n" if start is LINE else b"a"
    data = (start + filler * LIMITS.max_head_bytes)[: LIMITS.max_head_bytes + 1]
    for i in range(0, len(data), piece):
        connection.sendall(data[i : i + piece])
    answer = answers(connection)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


def test_trailers_without_end_are_cut_off(connection: socket.socket) -> None:
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ")
    with contextlib.suppress(ConnectionError):  # cut off in the middle; an answer was under way
        connection.sendall(b"a" * (LIMITS.max_head_bytes + 2**18))
        assert answers(connection) == b""


def test_trailers_are_no_headers(connection: socket.socket) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(head + b"0\r\nX-Request-Id: from-a-trailer\r\n\r\n")
    answer = answers(connection)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"from-a-trailer" not in answer


def test_many_requests_on_one_connection_have_a_head_each(connection: socket.socket) -> None:
    """What is read ends within a head every time, and all heads together are over the limit."""
    head = LINE + b"X: " + b"a" * 2000
    connection.sendall(head)
    for _ in range(2 * LIMITS.max_head_bytes // len(head)):
        connection.sendall(b"\r\n\r\n" + head)
        answer = b""
        while b'{"status":"ok"}' not in answer:
            received = connection.recv(65536)
            assert received, answer
            answer += received


def test_a_body_larger_than_a_head_is_no_head(http: httpx.Client) -> None:
    body = json.dumps({"model": "tiny-chat", "prompt": "a", "max_tokens": 1}).encode()
    pieces = iter([body[:1], b" " * (3 * LIMITS.max_head_bytes), *(bytes([byte]) for byte in body[1:])])
    assert http.post("/v1/completions", content=pieces, headers=JSON_TYPE).status_code == 200


def test_what_is_not_http_is_told_so(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    answer = answers(connection)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert "not a valid HTTP/1.1 request" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "tls/1.2"])
def test_an_upgrade_is_answered_without_one(server: ServeCommand, upgrade: str) -> None:
    logged = len(server.log.read_text())
    with socket.create_connection(server.address, timeout=30) as connection:
        connection.sendall(LINE + f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n".encode())
        answer = answers(connection)  # which ends: what follows would not be HTTP/1.1
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b'{"status":"ok"}')
    assert server.log.read_text()[logged:] == ""


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_nesting(http: httpx.Client, path: str) -> None:
    def nested(depth: int) -> bytes:
        return b'{"model":"tiny-chat","logit_bias":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    refused = error_of(http.post(path, content=nested(MAX_NESTING + 1), headers=JSON_TYPE), 400)
    assert refused["message"] == f"the body nests JSON too deeply: at most {MAX_NESTING} levels; flatten it"
    assert refused["code"] == "invalid_request"
    taken = error_of(http.post(path, content=nested(MAX_NESTING), headers=JSON_TYPE), 400)
    assert "nests" not in taken["message"]


@contextlib.asynccontextmanager
async def impatient(tiny_model: Path, head_timeout_s: float) -> AsyncIterator[tuple[str, int]]:
    """The address of a server made of the command's own parts."""
    settings = ServerSettings(head_timeout_s=head_timeout_s)
    profile = load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"})
    engine, listener = await AsyncEngine.start(profile), bind("127.0.0.1", 0)
    server = _HttpServer(_uvicorn_config(settings, build_app(engine, settings)), None)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.listening.wait()
        yield listener.getsockname()
    finally:
        server.should_exit = True
        await serving
        await engine.close()


def test_a_body_nobody_reads_ends_too(tiny_model: Path) -> None:
    """Refused by its path alone; a client that goes on sending is not listened to for long."""

    async def run() -> float:
        async with impatient(tiny_model, 0.3) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
            assert await reader.readuntil(b'"code":"not_found"}}')
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof() and time.monotonic() - began < 20:
                    writer.write(b" " * 1000)
                    await writer.drain()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(), 0.02)
            writer.close()
            return time.monotonic() - began

    assert 0.25 < asyncio.run(run()) < 4


async def ends(address: tuple[str, int], data: bytes) -> tuple[float, bytes]:
    """Seconds until the server ends a connection on which `data` was sent, and its answer."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return time.monotonic() - began, answer


def test_slow_heads_are_closed_and_nothing_else(tiny_model: Path) -> None:
    body = json.dumps({"model": "tiny-chat", "prompt": "a", "max_tokens": 500, "ignore_eos": True}).encode()
    slow = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    slow += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    async def run() -> list[tuple[float, bytes]]:
        async with impatient(tiny_model, 0.3) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(LINE + b"\r\n")
            assert await reader.readuntil(b'{"status":"ok"}')
            ended = await asyncio.gather(*(ends(address, data) for data in (b"", LINE, slow)))
            writer.write(LINE + b"\r\n")  # an idle connection is kept all the while
            assert await reader.readuntil(b'{"status":"ok"}')
            writer.close()
            return ended

    (idle_s, idle), (head_s, head), (answer_s, answer) = asyncio.run(run())
    assert (idle, head) == (b"", b"")
    assert min(idle_s, head_s, answer_s) > 0.29
    assert b'"completion_tokens":500' in answer
