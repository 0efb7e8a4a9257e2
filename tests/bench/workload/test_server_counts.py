"""A real server counts the prompts as the workload says, and never refuses one for its length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.bench.plan import Message, Turn
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.tokenizer import Tokenizer
from tests.support.server_process import ServeCommand, running_server
from tests.support.tiny_chat import tiny_chat_model
from tests.tokenizer.vocabularies import file_tokenizer

MAX_MODEL_LEN = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return file_tokenizer(model)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    log = tmp_path_factory.mktemp("server") / "log"
    with running_server([str(model), "--set", f"max_model_len={MAX_MODEL_LEN}"], log) as running:
        yield running


def sent(server: ServeCommand, turn: Turn, history: list[Message]) -> tuple[int, int]:
    """Prompt and output tokens by the server's account. `history` gets the turn and its answer."""
    body: dict[str, Any] = {"model": "tiny-chat", "max_tokens": turn.max_tokens, **turn.body}
    messages = [message for message in turn.prompt if isinstance(message, dict)]
    path = "chat/completions" if messages else "completions"
    body |= {"messages": history + messages} if messages else {"prompt": turn.prompt}
    answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    usage, choice = answer.json()["usage"], answer.json()["choices"][0]
    text = choice["message"]["content"] if messages else choice["text"]
    history += [*messages, {"role": "assistant", "content": text}]
    return usage["prompt_tokens"], usage["completion_tokens"]


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": "chat", "input": "20..150"},
        {"token_ids": False, "input": "2..150"},
        {"token_ids": True, "input": "1..150", "shared_prefix": 0},
        {"token_ids": False, "input": "60..150", "shared_prefix": 40},
    ],
)
def test_prompts_are_counted_as_planned(server: ServeCommand, tokenizer: Tokenizer, changed: dict[str, Any]) -> None:
    spec = WorkloadSpec(requests=12, concurrency=1, output="3", max_model_len=MAX_MODEL_LEN, **changed)
    for turn in build_workload(spec, tokenizer).turns():
        prompt_tokens, output_tokens = sent(server, turn, [])
        assert prompt_tokens == turn.prompt_tokens
        assert output_tokens == 3


def test_no_turn_of_a_session_is_refused_for_its_length(server: ServeCommand, tokenizer: Tokenizer) -> None:
    spec = WorkloadSpec(
        endpoint="chat",
        requests=4,
        concurrency=1,
        turns="6",
        input="5..20",
        output="10..30",
        max_model_len=MAX_MODEL_LEN,
    )
    workload = build_workload(spec, tokenizer)
    assert workload.spec["made"]["dropped_turns"] > 0
    longest = 0
    for session in workload.sessions:
        history: list[Message] = []
        for turn in session.turns:
            prompt_tokens, output_tokens = sent(server, turn, history)
            longest = max(longest, prompt_tokens + turn.max_tokens)
            assert output_tokens == turn.max_tokens
    assert longest > MAX_MODEL_LEN * 0.7  # the room is used, too


def test_buckets_fit_a_short_context(server: ServeCommand, tokenizer: Tokenizer) -> None:
    spec = WorkloadSpec(
        mix="short_chat,streaming_heavy,exact_copy,needle", requests=8, concurrency=1, max_model_len=MAX_MODEL_LEN
    )
    for turn in build_workload(spec, tokenizer).turns():
        assert sent(server, turn, [])[0] == turn.prompt_tokens
