"""64 streams at once for a while, a third of them hanging up half way: right answers, no block lost, no memory lost.

FOREBAY_TEST_SOAK_SECONDS sets how long (default 20; 300 is the long run).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.ops.registry import available_backends
from tests.support.server_process import ServerProcess, eventually, running_server

SECONDS = float(os.environ.get("FOREBAY_TEST_SOAK_SECONDS", "20"))
NUM_STREAMS = 64
MAX_TOKENS = 32
PROMPTS = ("Once upon a time", "The dog", "Lily and Tom went to the park. They saw a big", "One day, a bird", "A cat")
QUESTIONS = [(prompt, seed) for prompt in PROMPTS for seed in range(6)]
GROWTH_BYTES_PER_MINUTE = 10**6
WARM_UP = 0.3  # of the time: arenas, caches and the KV pages that are touched for the first time
PAGE_NOISE_BYTES = 10**6  # what a process may gain or lose between two samples without any leak

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ["--backend", available_backends()[0], "--max-requests", "48", "--set", "kv.num_blocks=256"]
    with running_server([str(tiny_model), *flags], tmp_path_factory.mktemp("soak") / "log") as process:
        yield process


@dataclass
class Soak:
    """The load, and what came of it."""

    url: str
    solo: dict[tuple[str, int], str] = field(default_factory=dict)
    completed: int = 0
    left: int = 0
    wrong: list[tuple[str, int]] = field(default_factory=list)
    most_at_once: int = 0
    open: int = 0

    async def ask(self, client: httpx.AsyncClient, question: tuple[str, int], *, leave_after: int | None = None) -> str:
        """The streamed answer; hang up after so many events if asked to."""
        text, events = "", 0
        self.open += 1
        self.most_at_once = max(self.most_at_once, self.open)
        try:
            async with client.stream("POST", f"{self.url}/v1/completions", json=_body(question)) as response:
                assert response.status_code == 200, await response.aread()
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        assert "error" not in event, event
                        text += event["choices"][0]["text"]
                        events += 1
                    if events == leave_after:
                        break
        finally:
            self.open -= 1
        return text

    async def worker(self, client: httpx.AsyncClient, number: int, until: float) -> None:
        rng = random.Random(number)
        while time.monotonic() < until:
            question = rng.choice(QUESTIONS)
            leave_after = rng.randint(1, MAX_TOKENS // 2) if rng.randrange(3) == 0 else None
            text = await self.ask(client, question, leave_after=leave_after)
            whole = self.solo[question]
            if leave_after is None:
                self.completed += 1
            else:
                self.left += 1
            if text != (whole if leave_after is None else whole[: len(text)]):
                self.wrong.append(question)


def _body(question: tuple[str, int]) -> dict[str, Any]:
    prompt, seed = question
    fixed = {"model": "tiny-chat", "max_tokens": MAX_TOKENS, "ignore_eos": True, "stream": True}
    return fixed | {"prompt": prompt, "seed": seed}


def resident_bytes(server: ServerProcess) -> int:
    """Memory of the server and of its engine that is their own (shared file pages do not count)."""
    total = 0
    for pid in (server.process.pid, server.engine_pid()):
        status = Path(f"/proc/{pid}/status").read_text()
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))
    return total


def test_many_streams_that_come_and_go(server: ServerProcess) -> None:
    soak = Soak(server.url)
    memory: list[tuple[float, int]] = []

    async def run() -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=NUM_STREAMS)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            for question in QUESTIONS:
                soak.solo[question] = await soak.ask(client, question)
            began = time.monotonic()
            until = began + SECONDS
            workers = [asyncio.create_task(soak.worker(client, i, until)) for i in range(NUM_STREAMS)]
            running: set[asyncio.Task[None]] = set(workers)
            while running:
                _, running = await asyncio.wait(running, timeout=SECONDS / 50)
                memory.append((time.monotonic() - began, resident_bytes(server)))
            await asyncio.gather(*workers)

    asyncio.run(run())
    assert soak.wrong == []
    assert len(set(soak.solo.values())) == len(QUESTIONS)
    assert soak.most_at_once == NUM_STREAMS
    assert soak.left > 20
    assert soak.completed > soak.left
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)
    assert server.metric('forebay_blocks{state="promised"}') == 0
    assert httpx.get(f"{server.url}/health").status_code == 200
    _assert_steady(memory)


def _assert_steady(memory: list[tuple[float, int]]) -> None:
    """After the warm-up, memory grows by less than the limit: medians of the first and last fifth are compared."""
    steady = [(t, size) for t, size in memory if t > SECONDS * WARM_UP]
    fifth = max(1, len(steady) // 5)
    start, end = steady[:fifth], steady[-fifth:]
    minutes = (end[fifth // 2][0] - start[fifth // 2][0]) / 60
    growth = sorted(size for _, size in end)[fifth // 2] - sorted(size for _, size in start)[fifth // 2]
    print(f"resident memory grew {growth / 1e6:.2f} MB in {minutes:.2f} minutes")
    assert growth < GROWTH_BYTES_PER_MINUTE * minutes + PAGE_NOISE_BYTES, memory
