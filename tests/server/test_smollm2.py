"""The default model behind the server, on the native backend, as a user gets it."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from forebay.ops.registry import available_backends
from tests.support.server_process import ServeCommand, running_server

pytestmark = pytest.mark.skipif("native" not in available_backends(), reason="the native extension is not built")
READY_S = 3.0
QUESTION: Any = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]


@pytest.fixture(scope="module")
def server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    with running_server([str(smollm2_path)], tmp_path_factory.mktemp("smollm2") / "log") as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServeCommand) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    (card,) = client.models.list().data
    return card.id


def test_it_is_ready_within_three_seconds(smollm2_path: Path, tmp_path: Path) -> None:
    """Both processes together, from the command to the end of the drain; processor time, because other work on the
    machine is not ours."""

    def cpu_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = cpu_seconds()
    with running_server([str(smollm2_path)], tmp_path / "log") as server:
        assert server.stop() == 0
    assert cpu_seconds() - before < READY_S


def test_the_printed_curl_line_works(server: ServeCommand) -> None:
    done = subprocess.run(["bash", "-c", server.curl_line], capture_output=True, text=True, check=True, timeout=120)
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"]


def test_an_answer_ends_by_itself(client: openai.OpenAI, model: str) -> None:
    made = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, logprobs=True)
    (choice,) = made.choices
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert "<|im_end|>" not in (choice.message.content or "")
    assert made.usage is not None
    assert choice.logprobs is not None
    assert len(choice.logprobs.content or ()) == made.usage.completion_tokens


def test_a_second_turn_reuses_the_first(client: openai.OpenAI, model: str) -> None:
    first = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)
    turn: Any = [*QUESTION, {"role": "assistant", "content": first.choices[0].message.content}]
    turn.append({"role": "user", "content": "And of Italy?"})
    second = client.chat.completions.create(model=model, messages=turn, temperature=0, max_tokens=4)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= first.usage.prompt_tokens // 16 * 16 > 0


def test_characters_of_several_tokens_are_streamed_whole(client: openai.OpenAI, model: str) -> None:
    request: dict[str, Any] = {"model": model, "prompt": "😀😃😄😁😀😃😄😁😀😃😄😁", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**request, logprobs=0).choices[0]
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**request, stream=True)]
    assert "".join(pieces) == whole.text
    assert "😁" in whole.text
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces[:-1])
    assert whole.logprobs is not None
    assert any(token.startswith("bytes:\\x") for token in whole.logprobs.tokens or ())
    assert max(whole.logprobs.text_offset or ()) <= len(whole.text)
