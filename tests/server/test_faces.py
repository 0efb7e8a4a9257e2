"""One engine behind several faces: the same conversation has the same answer in all, whole or as events."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.server.conftest import TINY_FLAGS
from tests.support.faces import FACES, MODEL, Messages, events_of
from tests.support.server_process import ServeCommand, running_server

GIRL: Messages = [{"role": "user", "content": "Tell me of a little girl."}]
TALK: Messages = [
    {"role": "system", "content": "You tell short stories."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello, who are you?"},
    {"role": "user", "content": "Tell me of a dog."},
]
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 7},
    {"seed": -3, "temperature": 1.3, "top_p": 0.8, "top_k": 50, "min_p": 0.01},
]
OTHERS = [name for name in FACES if name != "chat"]


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("messages", [GIRL, TALK])
@pytest.mark.parametrize("name", OTHERS)
def test_the_text_is_that_of_chat(http: httpx.Client, name: str, messages: Messages, sampling: dict[str, Any]) -> None:
    expected = FACES["chat"].ask(http, messages, max_tokens=40, **sampling)
    assert len(expected) > 40
    assert FACES[name].ask(http, messages, max_tokens=40, **sampling) == expected


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", FACES)
def test_the_pieces_of_a_stream_are_the_whole(http: httpx.Client, name: str, sampling: dict[str, Any]) -> None:
    pieces = FACES[name].stream(http, TALK, max_tokens=40, **sampling)
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == FACES[name].ask(http, TALK, max_tokens=40, **sampling)


@pytest.mark.parametrize("name", FACES)
def test_characters_of_several_tokens_are_never_cut(http: httpx.Client, name: str) -> None:
    """At this temperature half of the tokens are single bytes, so that characters of many lengths arise."""
    wild = {"max_tokens": 300, "temperature": 100, "seed": 1, "ignore_eos": True}
    whole = FACES[name].ask(http, GIRL, **wild)
    assert any(len(character.encode()) > 1 and character != "\N{REPLACEMENT CHARACTER}" for character in whole)
    assert "".join(FACES[name].stream(http, GIRL, **wild)) == whole


@pytest.mark.parametrize("name", ["chat", "messages"])
def test_stop_strings_cut_the_text_anywhere(http: httpx.Client, name: str) -> None:
    face, greedy = FACES[name], {"max_tokens": 24, "temperature": 0}
    text = face.ask(http, GIRL, **greedy)
    for start in range(1, len(text) - 12, 17):
        for length in (1, 2, 7, 12):
            stop = text[start : start + length]
            expected = text[: text.index(stop)]
            assert face.ask(http, GIRL, stop=["\x00", stop], **greedy) == expected
            assert "".join(face.stream(http, GIRL, stop=["\x00", stop], **greedy)) == expected


@pytest.mark.parametrize("name", FACES)
def test_what_was_decided_stands_in_the_headers(http: httpx.Client, name: str) -> None:
    face = FACES[name]
    answer = http.post(face.path, json={"model": MODEL, **face.body(GIRL, max_tokens=9)})
    assert answer.headers["x-forebay-max-tokens"] == "9"
    again = face.ask(http, GIRL, max_tokens=9, seed=int(answer.headers["x-forebay-seed"]))
    assert again == face.text(answer.json())


@pytest.fixture
def dying(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    with running_server([str(tiny_model), *TINY_FLAGS], tmp_path_factory.mktemp("dying") / "log") as process:
        yield process


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the engine process through /proc")
def test_an_error_in_the_middle_of_a_stream_is_worded_by_the_face(dying: ServeCommand) -> None:
    ends: dict[str, list[Any]] = {}
    with httpx.Client(base_url=dying.url, timeout=60) as http:
        streams = {}
        for name, face in FACES.items():
            body = {"model": MODEL, "stream": True, **face.body(GIRL, max_tokens=400, ignore_eos=True)}
            response = http.send(http.build_request("POST", face.path, json=body), stream=True)
            assert response.status_code == 200, response.read()
            streams[name] = response.iter_text()
            ends[name] = [next(streams[name])]
        os.kill(dying.engine_pid(), signal.SIGKILL)
        events = {name: events_of("".join([*ends[name], *stream])) for name, stream in streams.items()}
    assert events["chat"][-1][1]["error"]["code"] == "engine_dead"
    name, error = events["messages"][-1]
    assert (name, error["type"], error["error"]["type"]) == ("error", "error", "overloaded_error")
    assert "message_stop" not in [name for name, _ in events["messages"]]
    name, failed = events["responses"][-1]
    assert (name, failed["sequence_number"]) == ("response.failed", len(events["responses"]) - 1)
    assert (failed["response"]["status"], failed["response"]["error"]["code"]) == ("failed", "server_error")
    assert failed["response"]["id"] == events["responses"][0][1]["response"]["id"]
    assert failed["response"]["error"]["message"] == error["error"]["message"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the engine process through /proc")
def test_the_official_clients_see_an_error_in_the_middle_of_a_stream(dying: ServeCommand) -> None:
    long: dict[str, Any] = {"model": MODEL, "stream": True, "extra_body": {"ignore_eos": True}}
    hello: Any = GIRL
    with (
        anthropic.Anthropic(base_url=dying.url, api_key="none", max_retries=0) as theirs,
        openai.OpenAI(base_url=f"{dying.url}/v1", api_key="none", max_retries=0) as ours,
    ):
        message: Any = theirs.messages.create(messages=hello, max_tokens=400, **long)
        response: Any = ours.responses.create(input=hello, max_output_tokens=400, **long)
        chat: Any = ours.chat.completions.create(messages=hello, max_tokens=400, **long)
        for stream in (message, response, chat):
            next(iter(stream))
        os.kill(dying.engine_pid(), signal.SIGKILL)
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            list(message)
        with pytest.raises(openai.APIError) as dead:
            list(chat)
        *_, failed = response
    assert overloaded.value.type == "overloaded_error"
    assert dead.value.code == "engine_dead"
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert failed.response.error.message == overloaded.value.api_message == dead.value.message
