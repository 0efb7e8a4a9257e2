"""The fake server is what other clients take for one, at the pace it was told."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import openai
import pytest

from tests.bench.client.playing import ask
from tests.support.fake_openai import FakeServer, fake_server

NS = 1_000_000_000
TTFT_S, ITL_S = 0.06, 0.02


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with fake_server({}, "--ttft", str(TTFT_S), "--itl", str(ITL_S), "--tokens-per-chunk", "2") as running:
        yield running


def test_another_client_is_served(server: FakeServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["fake"]
        plain = client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "one two three four"}], max_tokens=3
        )
        assert plain.choices[0].message.content == " tok1 tok2 tok3"
        assert plain.usage is not None
        assert (plain.usage.prompt_tokens, plain.usage.completion_tokens) == (4, 3)
        streamed = list(client.completions.create(model="fake", prompt="a b", max_tokens=3, stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == " tok1 tok2 tok3"
    assert all(chunk.usage is None for chunk in streamed)


def test_its_pace(server: FakeServer) -> None:
    record = ask(server, "paced", max_tokens=20)
    assert (record.output_tokens, record.prompt_tokens, len(record.token_ns)) == (20, 3, 10)
    (seen,) = server.requests("paced")
    assert TTFT_S - 0.002 < (record.token_ns[0] - seen["body_ns"]) / NS < TTFT_S + 0.2
    gaps_s = [(b - a) / NS for a, b in zip(record.token_ns, record.token_ns[1:], strict=False)]
    assert statistics.fmean(gaps_s) == pytest.approx(ITL_S, abs=0.004)
