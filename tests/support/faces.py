"""One conversation in the words of each face of the server, and the answer read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx

MODEL = "tiny-chat"
Messages = list[dict[str, str]]
Event = tuple[str | None, dict[str, Any]]  # name and data


class Face(NamedTuple):
    """body: the request for messages, max_tokens, stop and further sampling fields. text: of a whole answer. delta: of
    one event's data."""

    path: str
    body: Callable[..., dict[str, Any]]
    text: Callable[[dict[str, Any]], str]
    delta: Callable[[dict[str, Any]], str]

    def ask(self, http: httpx.Client, messages: Messages, **sampling: Any) -> str:
        """The text of the whole answer."""
        answer = http.post(self.path, json={"model": MODEL, **self.body(messages, **sampling)})
        assert answer.status_code == 200, answer.text
        return self.text(answer.json())

    def stream(self, http: httpx.Client, messages: Messages, **sampling: Any) -> list[str]:
        """The pieces of text of the streamed answer."""
        answer = http.post(self.path, json={"model": MODEL, "stream": True, **self.body(messages, **sampling)})
        assert answer.status_code == 200, answer.text
        return [self.delta(data) for _, data in events_of(answer.text)]


def events_of(stream: str) -> list[Event]:
    """The events of a whole stream but OpenAI's [DONE], after checking that nothing else is in it."""
    *blocks, rest = stream.split("\n\n")
    assert rest == ""
    found = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert set(fields) <= {"event", "data"}
        if fields["data"] != "[DONE]":
            found.append((fields.get("event"), json.loads(fields["data"])))
    return found


def _chat(messages: Messages, **sampling: Any) -> dict[str, Any]:
    return {"messages": messages, **sampling}


def _messages(messages: Messages, *, stop: list[str] | None = None, **sampling: Any) -> dict[str, Any]:
    system = "".join(message["content"] for message in messages if message["role"] == "system")
    rest = [message for message in messages if message["role"] != "system"]
    return {"system": system, "messages": rest, "stop_sequences": stop, **sampling}


def _responses(messages: Messages, *, max_tokens: int, **sampling: Any) -> dict[str, Any]:
    return {"input": messages, "max_output_tokens": max_tokens, **sampling}


FACES = {
    "chat": Face(
        "/v1/chat/completions",
        _chat,
        lambda answer: answer["choices"][0]["message"]["content"],
        lambda data: data["choices"][0]["delta"].get("content", ""),
    ),
    "messages": Face(
        "/v1/messages",
        _messages,
        lambda answer: "".join(block["text"] for block in answer["content"]),
        lambda data: data["delta"]["text"] if data["type"] == "content_block_delta" else "",
    ),
    "responses": Face(
        "/v1/responses",
        _responses,
        lambda answer: answer["output"][0]["content"][0]["text"],
        lambda data: data["delta"] if data["type"] == "response.output_text.delta" else "",
    ),
}
