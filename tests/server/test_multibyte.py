"""Text of several bytes a character, over HTTP: streams, stop strings and log-probabilities agree on every character.

The tiny model writes it with byte tokens, whole characters and broken ones; the default model as its tokenizer does.
Some of the prompts on each; FOREBAY_TEST_MULTIBYTE=all: all of them.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forebay.ops.registry import available_backends
from tests.server.conftest import TINY_FLAGS
from tests.support.plain_http import PlainClient
from tests.support.server_process import ServeCommand, running_server

SCRIPTS = {
    "CJK": "日本語漢字中文한국어かなカナ𠮷野家",
    "emoji": ["👩🏽‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏿", "❤️‍🔥", "🧑🏻‍🤝‍🧑🏾", "1️⃣", "😀"],
    "flags": ["🇯🇵", "🇩🇪", "🇧🇷", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"],
    "marks": ["e\u0301", "n\u0303", "a\u0308\u0301", "\u1100\u1161\u11a8", "o\u0328\u0304", "ﬁ", "Å"],
    "right to left": ["שלום", "مرحبا", "\u202eabc\u202c", "پارسی", "אֱלֹהִים"],
    "Indic": ["क्षत्रिय", "स्त्री", "ক্ষ্ম", "ஸ்ரீ", "మీరు", "ക്ഷ", "ཀྵ"],
    "Zalgo": ["Z" + "\u0340\u0351\u0323" * 4, "a" + "\u0317\u034a" * 6],
    "odd": ["\u200b", "\ufeff", "\u2028", "\N{REPLACEMENT CHARACTER}", "\U0010ffff", "\u00a0", "\x7f", "\u0085"],
}
NUM_PROMPTS = 200
MAX_TOKENS = 24
EVERY = {"tiny": 1, "smollm2": 1} if os.environ.get("FOREBAY_TEST_MULTIBYTE") == "all" else {"tiny": 4, "smollm2": 40}
BACKEND = "native" if "native" in available_backends() else "reference"
# ids of stories260K: <0xHH> is 3 + HH; bytes that often make characters (é, ぁ, ど, 😁) or beginnings of them; letters
BYTES = [3 + byte for byte in (0xC3, 0xA9, 0xE3, 0x81, 0xA9, 0x81, 0xF0, 0x9F, 0x98, 0x81)] + [266, 411, 430]


def prompts() -> list[str]:
    draw = random.Random(20)
    parts: list[Sequence[str]] = list(SCRIPTS.values())
    return ["".join(draw.choice(draw.choice(parts)) for _ in range(draw.randint(1, 6))) for _ in range(NUM_PROMPTS)]


@dataclass(frozen=True)
class Model:
    """A served model, how many prompts it gets, and fields that keep it at text: no special tokens."""

    server: ServeCommand
    name: str
    prompts: list[str]
    fields: dict[str, Any]


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    log = tmp_path_factory.mktemp("multibyte") / "log"
    if request.param == "tiny":
        source: Path = request.getfixturevalue("tiny_model")
        flags = [str(source), *TINY_FLAGS, "--backend", BACKEND]
        fields = {"allowed_token_ids": BYTES, "temperature": 100, "max_tokens": MAX_TOKENS}
    elif BACKEND == "reference":
        pytest.skip("the native extension is not built")
    else:
        flags = [str(request.getfixturevalue("smollm2_path"))]
        fields = {"bad_token_ids": list(range(17)), "temperature": 1.5, "max_tokens": MAX_TOKENS}
    with running_server(flags, log) as server, contextlib.closing(PlainClient(server.address)) as client:
        name = client.models()[0]
        yield Model(server, name, prompts()[:: EVERY[request.param]], fields)


def each_prompt(model: Model, work: Callable[[PlainClient, dict[str, Any], random.Random], None]) -> None:
    """`work` for every prompt, several at a time: client, fields of its requests, randomness of its own."""

    def run(numbers: Sequence[int]) -> None:
        with contextlib.closing(PlainClient(model.server.address, timeout_s=60)) as client:
            for i in numbers:
                fields = {"model": model.name, "seed": i, "n": 2, **model.fields}
                work(client, fields | {"prompt": model.prompts[i]}, random.Random(i))

    numbers = range(len(model.prompts))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, numbers[k::4]) for k in range(4)]:
            done.result()


def as_chat(fields: dict[str, Any]) -> dict[str, Any]:
    chat = {name: value for name, value in fields.items() if name != "prompt"}
    return chat | {"messages": [{"role": "user", "content": fields["prompt"]}]}


def joined(events: list[dict[str, Any]], text_of: Callable[[dict[str, Any]], str]) -> list[str]:
    """The text of each choice of a stream."""
    texts: dict[int, str] = {}
    for event in events:
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + text_of(choice)
    return [texts[i] for i in sorted(texts)]


def cut(text: str, stops: Sequence[str], *, shown: bool) -> str:
    """The definition: read character by character; the first position where some stop string ends wins."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[:end] if shown else text[: end - len(max(ending, key=len))]
    return text


def test_completions_stream_what_they_say_whole(model: Model) -> None:
    seen: list[tuple[str, str]] = []  # a text, and what is left of it before a stop string

    def work(client: PlainClient, fields: dict[str, Any], draw: random.Random) -> None:
        whole = [choice["text"] for choice in client.answer("/v1/completions", fields)["choices"]]
        assert joined(client.events("/v1/completions", fields), lambda choice: str(choice["text"])) == whole
        stops = [piece for _ in range(3) if (piece := _piece(draw, draw.choice(whole)))]
        near = [f"{stop}\N{SNOWMAN}" for stop in stops]
        for given, shown in ((stops, False), (stops[:1], True), ([*near, *stops[2:]], False), (near, False)):
            asked = fields | {"stop": given, "include_stop_str_in_output": shown}
            expected = [cut(text, given, shown=shown) for text in whole]
            assert joined(client.events("/v1/completions", asked), lambda choice: str(choice["text"])) == expected
            seen.extend(zip(whole, expected, strict=True))
            if given is stops:
                found = client.answer("/v1/completions", asked)["choices"]
                assert [choice["text"] for choice in found] == expected
                assert [choice["finish_reason"] for choice in found] == [
                    "length" if text == kept and not text.endswith(tuple(given)) else "stop"
                    for text, kept in zip(whole, expected, strict=True)
                ]

    each_prompt(model, work)
    assert any(len(text.encode()) > len(text) for text, _ in seen)
    assert any(0 < len(kept) < len(text) for text, kept in seen)


def _piece(draw: random.Random, text: str) -> str:
    """A few characters from anywhere in a text."""
    at = draw.randrange(max(1, len(text)))
    return text[at : at + draw.choice((1, 1, 2, 3, 5, 8))]


def test_chat_logprobs_spell_the_text(model: Model) -> None:
    def work(client: PlainClient, fields: dict[str, Any], draw: random.Random) -> None:
        chat = as_chat(fields) | {"logprobs": True, "top_logprobs": 2}
        choices = client.answer("/v1/chat/completions", chat)["choices"]
        events = client.events("/v1/chat/completions", chat)
        whole = [choice["message"]["content"] for choice in choices]
        assert joined(events, lambda choice: str(choice["delta"].get("content") or "")) == whole
        for choice in choices:
            entries = choice["logprobs"]["content"]
            assert _spelled(entries) == choice["message"]["content"]
            streamed = [
                entry
                for event in events
                for part in event["choices"]
                if part["index"] == choice["index"] and part["logprobs"]
                for entry in part["logprobs"]["content"]
            ]
            assert [entry["bytes"] for entry in streamed] == [entry["bytes"] for entry in entries]
            for entry in entries:
                for shown in (entry, *entry["top_logprobs"]):
                    assert _named(shown["token"]) == bytes(shown["bytes"])

    each_prompt(model, work)


def _spelled(entries: list[dict[str, Any]]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")


def _named(token: str) -> bytes:
    """The bytes of a token as its name says them."""
    if token.startswith("bytes:\\x"):
        return bytes.fromhex(token.removeprefix("bytes:").replace("\\x", ""))
    return token.encode()


def test_completion_logprobs_stand_where_the_text_has_them(model: Model) -> None:
    def work(client: PlainClient, fields: dict[str, Any], draw: random.Random) -> None:
        asked = fields | {"logprobs": 1, "echo": draw.random() < 0.5}
        for choice in client.answer("/v1/completions", asked)["choices"]:
            start = len(fields["prompt"]) if asked["echo"] else 0
            pieces = [_named(token) for token in choice["logprobs"]["tokens"][-MAX_TOKENS:]]
            assert b"".join(pieces).decode("utf-8", "replace") == choice["text"][start:]
            offsets = [start + _begins(pieces, i) for i in range(MAX_TOKENS)]
            assert choice["logprobs"]["text_offset"][-MAX_TOKENS:] == offsets

    each_prompt(model, work)


def _begins(pieces: list[bytes], i: int) -> int:
    """Characters of the text before the one that the first byte of piece `i` is part of."""
    before = b"".join(pieces[:i])
    return len((before + pieces[i][:1]).decode("utf-8", "replace")) - 1
