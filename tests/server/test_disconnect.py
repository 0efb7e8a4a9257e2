"""A client that goes away is noticed within a second, wherever its request stands, and its blocks come back."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.faces import FACES
from tests.support.server_process import ServeCommand, eventually, running_server

ABORTED = 'forebay_requests_finished_total{reason="abort"}'
USED = 'forebay_blocks{state="used"}'
PROMISED = 'forebay_blocks{state="promised"}'
LONG: dict[str, Any] = {"model": "tiny-chat", "prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": True}
HELLO = [{"role": "user", "content": "Hello"}]
ASKED: dict[str, dict[str, Any]] = {  # what is asked of each path that generates
    "/v1/completions": LONG,
    **{f.path: {"model": "tiny-chat", **f.body(HELLO, max_tokens=400, ignore_eos=True)} for f in FACES.values()},
}
NOTICED_S = 1.0


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    """One that runs two requests at a time, so that others wait."""
    log = tmp_path_factory.mktemp("disconnect") / "log"
    with running_server([str(tiny_model), "--backend", "reference", "--max-requests", "2"], log) as process:
        yield process


def connect(server: ServeCommand) -> socket.socket:
    return socket.create_connection(server.address, timeout=30)


def post(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def read_until(connection: socket.socket, what: bytes, times: int = 1) -> bytes:
    data = b""
    while data.count(what) < times:
        received = connection.recv(65536)
        assert received, data
        data += received
    return data


def hang_up(connection: socket.socket, *, reset: bool = False) -> None:
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def assert_all_given_back(server: ServeCommand, aborted: float) -> None:
    """Within a second: so many completions aborted, and no block used or promised."""
    assert eventually(lambda: server.metric(ABORTED) >= aborted, NOTICED_S), server.metric(ABORTED)
    assert eventually(lambda: server.metric(USED) == server.metric(PROMISED) == 0, NOTICED_S)
    assert server.metric(ABORTED) == aborted


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_in_the_middle_of_a_stream(server: ServeCommand, path: str, reset: bool) -> None:
    before = server.metric(ABORTED)
    connection = connect(server)
    connection.sendall(post(ASKED[path] | {"stream": True}, path))
    read_until(connection, b"data: ", times=6)
    assert server.metric(USED) > 0
    hang_up(connection, reset=reset)
    assert_all_given_back(server, before + 1)


@pytest.mark.parametrize("path", ASKED)
def test_while_a_whole_answer_is_made(server: ServeCommand, path: str) -> None:
    before = server.metric(ABORTED)
    connection = connect(server)
    connection.sendall(post(ASKED[path], path))
    assert eventually(lambda: server.metric(USED) > 0)
    hang_up(connection)
    assert_all_given_back(server, before + 1)


def test_with_several_prompts_and_choices(server: ServeCommand) -> None:
    before = server.metric(ABORTED)
    connection = connect(server)
    connection.sendall(post(LONG | {"prompt": ["Once", "The dog"], "n": 2, "stream": True}))
    read_until(connection, b"data: ", times=3)
    hang_up(connection)
    assert_all_given_back(server, before + 4)


def test_while_waiting_in_the_queue(server: ServeCommand) -> None:
    before = server.metric(ABORTED)
    running = connect(server)
    running.sendall(post(LONG | {"n": 2, "stream": True}))
    read_until(running, b"data: ", times=2)
    waiting = connect(server)
    waiting.sendall(post(LONG | {"stream": True}))
    assert eventually(lambda: server.metric("forebay_requests_waiting") == 1)
    hang_up(waiting)
    assert eventually(lambda: server.metric("forebay_requests_waiting") == 0, NOTICED_S)
    hang_up(running)
    assert_all_given_back(server, before + 3)


def test_before_the_body_is_complete(server: ServeCommand) -> None:
    connection = connect(server)
    connection.sendall(post(LONG)[:-10])
    hang_up(connection)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_others_are_not_disturbed(server: ServeCommand) -> None:
    request = LONG | {"max_tokens": 40, "seed": 3}
    alone = httpx.post(f"{server.url}/v1/completions", json=request, timeout=60).json()["choices"][0]["text"]
    leaver, stayer = connect(server), connect(server)
    leaver.sendall(post(LONG | {"stream": True}))
    read_until(leaver, b"data: ", times=2)
    stayer.sendall(post(request | {"stream": True}))
    data = read_until(stayer, b"data: ", times=2)
    hang_up(leaver)
    data += read_until(stayer, b"[DONE]")
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == alone
