"""What holds when something goes wrong that no handler expects, and the limits on slow bodies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.core.clock import ManualClock
from forebay.engine.async_engine import AsyncEngine
from forebay.profile import load_profile
from forebay.server.app import build_app
from forebay.server.gateway import Gateway
from forebay.server.state import ServerSettings


async def _engine(tiny_model: Path) -> AsyncEngine:
    return await AsyncEngine.start(load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"}))


def _client(app: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


def test_received_is_told_by_the_clock_of_the_engine(tiny_model: Path) -> None:
    async def run() -> None:
        profile = load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"})
        engine = await AsyncEngine.start(profile, clock=ManualClock(0))  # the engine process has its own
        try:
            async with _client(build_app(engine)) as client:
                before_s = time.monotonic()
                body = {"model": "tiny-chat", "prompt": "a", "max_tokens": 1}
                assert (await client.post("/v1/completions", json=body)).status_code == 200
            assert engine.metrics.histograms["forebay_e2e_seconds"].total > before_s
        finally:
            await engine.close()

    asyncio.run(run())


def test_an_unexpected_error_is_a_500_that_tells_nothing(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("secret detail")

    async def run() -> None:
        engine = await _engine(tiny_model)
        try:
            async with _client(Gateway(broken, build_app(engine).state)) as client:
                response = await client.post("/v1/%0afake", headers={"x-request-id": "find-me"})
        finally:
            await engine.close()
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "internal_error"
        assert "secret" not in response.text
        assert response.headers["x-request-id"] == "find-me"

    logging.getLogger("forebay").propagate = True
    asyncio.run(run())
    assert r"request find-me: POST '/v1/\nfake' failed" in caplog.text  # a path is one line of the log
    assert "secret detail" in caplog.text


def test_a_body_that_does_not_arrive_is_a_408(tiny_model: Path) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def run() -> None:
        engine = await _engine(tiny_model)
        try:
            gateway = build_app(engine, ServerSettings(body_timeout_s=0.05))
            async with _client(gateway) as client:
                response = await client.post(
                    "/v1/completions", content=slow(), headers={"content-type": "application/json"}
                )
            assert gateway.state.idle.is_set()
        finally:
            await engine.close()
        assert (response.status_code, response.json()["error"]["code"]) == (408, "body_timeout")

    asyncio.run(run())
