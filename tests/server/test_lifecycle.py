"""How a server ends: drained, cut off, or with its engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.engine.async_engine import AsyncEngine
from forebay.observe.recorder import read_record
from forebay.profile import load_profile
from forebay.server.app import build_app
from forebay.server.state import ServerSettings
from tests.support.server_process import ServeCommand, eventually, running_server

LONG: dict[str, Any] = {"model": "tiny-chat", "prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": True}
AT_ONCE_S = 2.0


@pytest.fixture
def flags(tiny_model: Path) -> list[str]:
    return [str(tiny_model), "--backend", "reference"]


class Stream:
    """An open SSE response, read event by event."""

    def __init__(self, client: httpx.Client, url: str, body: dict[str, Any]) -> None:
        request = client.build_request("POST", f"{url}/v1/completions", json=body | {"stream": True})
        self._response = client.send(request, stream=True)
        self._lines = self._response.iter_lines()
        self.events: list[str] = []

    def read(self) -> Iterator[str]:
        for line in self._lines:
            if line.startswith("data: "):
                self.events.append(line[6:])
                yield self.events[-1]

    def first(self) -> None:
        next(self.read())

    def last(self) -> str:
        for _ in self.read():
            pass
        self._response.close()
        return self.events[-1]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as made:
        yield made


def test_sigterm_lets_running_requests_finish(flags: list[str], tmp_path: Path, client: httpx.Client) -> None:
    with running_server(flags, tmp_path / "log") as server:
        stream = Stream(client, server.url, LONG)
        stream.first()
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: client.get(f"{server.url}/ready").status_code == 503)
        refused = client.post(f"{server.url}/v1/completions", json=LONG)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert client.get(f"{server.url}/health").status_code == 200
        assert stream.last() == "[DONE]"
        text = [json.loads(event)["choices"][0] for event in stream.events[:-1]]
        assert text[-1]["finish_reason"] == "length"
        assert server.process.wait(timeout=20) == 0


@pytest.mark.parametrize("second_signal", [False, True])
def test_a_drain_is_bounded(flags: list[str], tmp_path: Path, client: httpx.Client, second_signal: bool) -> None:
    limit = "100" if second_signal else "0.1"
    with running_server([*flags, "--drain-timeout", limit], tmp_path / "log") as server:
        stream = Stream(client, server.url, LONG | {"max_tokens": 500})
        stream.first()
        server.process.send_signal(signal.SIGTERM)
        if second_signal:
            assert eventually(lambda: client.get(f"{server.url}/ready").status_code == 503)
            server.process.send_signal(signal.SIGINT)
        error = json.loads(stream.last())["error"]
        assert error["code"] == "unavailable"
        assert server.process.wait(timeout=20) == 0
        assert "1 requests did not finish in time" in server.log.read_text()


def test_an_idle_server_ends_at_once(flags: list[str], tmp_path: Path) -> None:
    with running_server(flags, tmp_path / "log") as server:
        with httpx.Client() as idle:  # its connection stays open
            idle.get(f"{server.url}/health")
            began = time.monotonic()
            assert server.stop() == 0
        assert time.monotonic() - began < 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the engine process through /proc")
def test_a_killed_engine_ends_everything(flags: list[str], tmp_path: Path, client: httpx.Client) -> None:
    with running_server(flags, tmp_path / "log") as server:
        streams = [Stream(client, server.url, LONG | {"max_tokens": 500}) for _ in range(2)]
        for stream in streams:
            stream.first()
        began = time.monotonic()
        os.kill(server.engine_pid(), signal.SIGKILL)
        errors = [json.loads(stream.last())["error"] for stream in streams]
        assert time.monotonic() - began < AT_ONCE_S
        assert [error["code"] for error in errors] == ["engine_dead"] * 2
        assert server.process.wait(timeout=20) == 1
        log = server.log.read_text()
        assert "the engine died" in log
        assert "killed by SIGKILL" in log  # an operator learns the cause even if no request was open


@contextlib.asynccontextmanager
async def in_process(
    tiny_model: Path, settings: ServerSettings
) -> AsyncIterator[tuple[AsyncEngine, httpx.AsyncClient]]:
    """The application without a server around it, so that it outlives its engine."""
    engine = await AsyncEngine.start(load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"}))
    try:
        transport = httpx.ASGITransport(app=build_app(engine, settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield engine, client
    finally:
        await engine.close()


def engine_pid(engine: AsyncEngine) -> int:
    process = engine._client._process  # the engine has no public way to be murdered
    assert process is not None
    return process.pid


def test_with_a_dead_engine_health_and_requests_are_503(tiny_model: Path) -> None:
    async def run() -> None:
        async with in_process(tiny_model, ServerSettings()) as (engine, client):
            assert (await client.get("/health")).status_code == 200
            os.kill(engine_pid(engine), signal.SIGKILL)
            await asyncio.wait_for(engine.dead.wait(), 10)
            for response in (
                await client.get("/health"),
                await client.get("/ready"),
                await client.post("/v1/completions", json=LONG),
                await client.post("/v1/completions", json=LONG | {"stream": True}),
            ):
                assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_dead")

    asyncio.run(run())


def test_health_asks_the_engine_loop_and_not_only_the_process(tiny_model: Path) -> None:
    async def run() -> None:
        async with in_process(tiny_model, ServerSettings(health_timeout_s=0.1)) as (engine, client):
            os.kill(engine_pid(engine), signal.SIGSTOP)
            hung = await client.get("/health")
            os.kill(engine_pid(engine), signal.SIGCONT)
            assert (hung.status_code, hung.json()["error"]["code"]) == (503, "engine_dead")
            assert "did not answer within 0.1 s" in hung.json()["error"]["message"]

    asyncio.run(run())


def run_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay.cli", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_taken_port_is_one_clear_line(flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_serve(*flags, "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


def test_a_bad_host_is_one_clear_line(flags: list[str]) -> None:
    done = run_serve(*flags, "--host", "no.such.host.invalid")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--host no.such.host.invalid" in done.stderr


@pytest.mark.parametrize("content", [None, b"GGUF", b"not a model at all"])
def test_a_bad_model_is_one_clear_line(tmp_path: Path, content: bytes | None) -> None:
    model = tmp_path / "broken.gguf"
    if content is not None:
        model.write_bytes(content)
    done = run_serve(str(model), "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "broken.gguf" in done.stderr


def test_every_step_and_request_goes_to_the_record(flags: list[str], tmp_path: Path, client: httpx.Client) -> None:
    path = tmp_path / "record.jsonl"
    with running_server([*flags, "--record", str(path)], tmp_path / "log") as server:
        answer = client.post(f"{server.url}/v1/completions", json=LONG).json()
        digest = client.get(f"{server.url}/version").json()["profile"]
        assert server.stop() == 0
    record = read_record(path)
    records = record.steps
    (request,) = record.requests
    assert (request.request_id, request.reason) == (answer["id"], "length")
    assert sum(event.kind == "token" for event in request.events) == answer["usage"]["completion_tokens"]
    assert [record.step for record in records] == list(range(150))
    assert {record.profile_digest for record in records} == {digest}
    num_tokens = sum(record.num_prefill_tokens + record.num_decode_tokens for record in records)
    assert num_tokens == answer["usage"]["total_tokens"] - 1  # the last token is not computed


def test_a_record_that_cannot_be_written_is_one_clear_line(flags: list[str], tmp_path: Path) -> None:
    done = run_serve(*flags, "--port", "0", "--record", str(tmp_path / "missing" / "record.jsonl"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "name a writable file" in done.stderr


def test_the_wrong_profile_is_one_clear_line(flags: list[str]) -> None:
    done = run_serve(*flags, "--port", "0", "--set", "scheduler.token_budget=4")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "scheduler.token_budget = 4 is less than scheduler.max_requests" in done.stderr


def test_the_ready_line_says_where_and_what(server: ServeCommand) -> None:
    digest = httpx.get(f"{server.url}/version").json()["profile"]
    assert "tiny-chat" in server.ready_line
    assert digest[:12] in server.ready_line


def test_the_log_names_the_profile_and_why_each_setting_has_its_value(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_LOG_LEVEL", "debug")
    with running_server([*flags, "--set", "kv.block_size=8"], tmp_path / "log") as server:
        digest = httpx.get(f"{server.url}/version").json()["profile"]
        log = server.log.read_text()
    assert f"profile {digest}, answer class reference/" in log
    assert "kv.block_size = 8 (given by the profile)" in log
