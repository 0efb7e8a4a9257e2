"""Every field of every POST endpoint with every hostile value: the specified answer, or an error that names the field.

Meanwhile a neighbour streams and must get its solo answer (bit for bit, which the reference backend does not promise);
afterwards the engine is empty.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.ops.registry import available_backends
from forebay.server.openai.fields import Kind
from tests.server.conftest import TINY_FLAGS
from tests.server.edge_table import CHAT, COMPLETION, CONTEXT, FITS, JSON_VALUES, LONG, PLACES, VALUES, VOCAB, Place
from tests.support.plain_http import PlainClient
from tests.support.server_process import ServeCommand, eventually, running_server

LONGEST_MESSAGE = 600
REMEDY = re.compile(r"must|is required|leave|use |send|give|remove|did you mean|ask for|shorten|flatten|needs|write")
# every field with every third value, another third for the next field; all of them with FOREBAY_TEST_EDGES=all
UNNAMED = ("deep array", "deep object")  # may be refused before anything is read
EVERY = 1 if os.environ.get("FOREBAY_TEST_EDGES") == "all" else 3
BACKEND = "native" if "native" in available_backends() else "reference"
CASES = [
    pytest.param(place, name, i, id=f"{place.name}-{name}") for place in PLACES for i, name in enumerate(place.table)
]


class Neighbour:
    """Streams one seeded request over and over while others misbehave."""

    BODY: dict[str, Any] = {  # noqa: RUF012 (never changed)
        "model": "tiny-chat",
        "prompt": "Lily and her neighbour",
        "max_tokens": 48,
        "seed": 11,
        "ignore_eos": True,
        "logprobs": 2,
    }

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = PlainClient(address, timeout_s=60)
        self.solo = self._answer()
        self.different: list[Any] = []
        self.rounds = 0
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _answer(self) -> list[Any]:
        choices = [event["choices"][0] for event in self._client.events("/v1/completions", self.BODY)]
        texts = "".join(choice["text"] for choice in choices)
        logprobs = [value for choice in choices for value in choice["logprobs"]["token_logprobs"]]
        return [texts, logprobs if BACKEND == "native" else len(logprobs), choices[-1]["finish_reason"]]

    def _run(self) -> None:
        while not self._leave.is_set():
            answer = self._answer()
            self.rounds += 1
            if answer != self.solo:
                self.different.append(answer)

    def close(self) -> None:
        self._leave.set()
        self._thread.join(timeout=60)
        self._client.close()


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    flags = [str(tiny_model), *TINY_FLAGS, "--backend", BACKEND, "--max-body-mib", "0.25"]
    with running_server(flags, tmp_path_factory.mktemp("edges") / "log") as process:
        yield process


@pytest.fixture(scope="module")
def neighbour(server: ServeCommand) -> Iterator[Neighbour]:
    made = Neighbour(server.address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hostile(server: ServeCommand) -> Iterator[PlainClient]:
    with contextlib.closing(PlainClient(server.address)) as made:
        yield made


def complaint(status: int, body: bytes, param: str | None) -> str | None:
    """What is wrong with a refusal, if anything. param: the field that it must name, or something inside it."""
    if status not in (400, 404):
        return f"status {status}: {body[:200]!r}"
    error = json.loads(body)["error"]
    if set(error) != {"message", "type", "param", "code"}:
        return f"not OpenAI's shape: {error}"
    named, message = error["param"], error["message"]
    if param is None:
        if named is not None:
            return f"param {named!r:.100}"
    elif error["code"] == "context_length_exceeded":  # of a message: all of them together
        if not param.startswith(named):
            return f"param {named!r:.100}"
    elif named is None or not (named == param or named.startswith((f"{param}.", f"{param}["))):
        return f"param {named!r:.100}, message {message[:200]}"
    if len(message) > LONGEST_MESSAGE or len(named or "") > 200 or LONG[:320] in message:
        return f"too long: {message[:300]}"
    if "\n" in message or (error["code"] != "unenforceable_grammar" and not REMEDY.search(message)):
        return f"no remedy: {message[:300]}"
    return None


def test_every_field_is_specified() -> None:
    taken = {
        (place.name, name) for place in PLACES for name, row in place.table.items() if row.kind is not Kind.REFUSED
    }
    missing = [f"{place}.{name}" for place, name in taken if f"{place}.{name}" not in FITS and name not in FITS]
    assert missing == []


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize(("place", "name", "shift"), CASES)
def test_a_field_takes_what_fits_and_refuses_the_rest_by_name(
    hostile: PlainClient, place: Place, name: str, shift: int
) -> None:
    wrong = {}
    for label, raw in list(VALUES.items())[shift % EVERY :: EVERY]:
        status, answer = hostile.post(place.path, place.raw(name, raw))
        fits = label in JSON_VALUES and place.fits(name, JSON_VALUES[label])
        if fits and status != 200:
            wrong[label] = f"refused: {answer[:300]!r}"
        elif not fits:
            blamed = None if label in UNNAMED and b'"param":null' in answer else place.blamed(name, label)
            found = "taken" if status == 200 else complaint(status, answer, blamed)
            if found:
                wrong[label] = found
    assert not wrong, "\n".join(f"{label}: {found}" for label, found in wrong.items())


def merged(base: dict[str, Any], fields: dict[str, Any]) -> bytes:
    return json.dumps(base | fields).encode()


LONG_TEXT = "Lily saw a big red ball in the park. " * 60
PAIRS = [  # body, fields, param
    (COMPLETION, {"prompt": LONG_TEXT}, "prompt"),
    (COMPLETION, {"prompt": ["Once", LONG_TEXT]}, "prompt[1]"),
    (COMPLETION, {"prompt": [5] * CONTEXT}, "prompt"),
    (COMPLETION, {"prompt": [[5], [5] * CONTEXT]}, "prompt[1]"),
    (COMPLETION, {"prompt": [[5], []]}, "prompt[1]"),
    (COMPLETION, {"prompt": [[5], [5, VOCAB]]}, "prompt[1][1]"),
    (COMPLETION, {"prompt": [5] * 500, "max_tokens": 13}, "max_tokens"),
    (COMPLETION, {"prompt": [5] * 500, "max_tokens": None, "min_tokens": 13}, "min_tokens"),
    (COMPLETION, {"prompt": ["a"] * 20, "n": 2}, "prompt"),
    (COMPLETION, {"prompt": ["a"] * 65, "n": 2}, "prompt"),
    (COMPLETION, {"min_tokens": 2}, "min_tokens"),
    (COMPLETION, {"min_tokens": 1, "max_tokens": 0}, "min_tokens"),
    (COMPLETION, {"min_tokens": 2, "max_tokens": 0}, "min_tokens"),
    (COMPLETION, {"n": 3, "best_of": 2}, "best_of"),
    (COMPLETION, {"n": 1, "best_of": 33}, "best_of"),
    (COMPLETION, {"best_of": 2, "stream": True}, "best_of"),
    (COMPLETION, {"stream": False, "stream_options": {"include_usage": True}}, "stream_options"),
    (COMPLETION, {"allowed_token_ids": [5], "bad_token_ids": [5]}, "allowed_token_ids"),
    (COMPLETION, {"allowed_token_ids": [2], "min_tokens": 1}, "allowed_token_ids"),
    (COMPLETION, {"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    (COMPLETION, {"guided_regex": "a", "stop": "b"}, "stop"),
    (CHAT, {"messages": [{"role": "user", "content": LONG_TEXT}]}, "messages"),
    (CHAT, {"max_tokens": None, "max_completion_tokens": 3, "min_tokens": 4}, "min_tokens"),
    (CHAT, {"max_tokens": 0}, "max_tokens"),
    (CHAT, {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    (CHAT, {"top_logprobs": 1}, "top_logprobs"),
    (CHAT, {"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
    (CHAT, {"n": 33}, "n"),
]


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize(("body", "fields", "param"), PAIRS)
@pytest.mark.parametrize("stream", [False, True])
def test_fields_that_do_not_go_together(
    hostile: PlainClient, body: dict[str, Any], fields: dict[str, Any], param: str, stream: bool
) -> None:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    status, answer = hostile.post(path, merged(body | ({"stream": True} if stream else {}), fields))
    assert status == 400, answer
    assert complaint(status, answer, param) is None
    if "max_completion_tokens" in fields:
        assert "max_completion_tokens" in json.loads(answer)["error"]["message"]


BODIES = [
    b"",
    b" ",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b"\0",
    b"{'model':1}",
    b'{"model":1,}',
    b'{"model" 1}',
    b"[" * 100_000,
    b'{"a":' * 40_000,
    b'{"' + b"\\" * 50_001,
    b'{"' + b"\\\\" * 50_000 + b'":1}',
    b'{"\\ud800":1}',
    b'{"\\udfff":NaN}',
    b'{"\xed\xa0\x80":1}',
    b'{"\xff":NaN}',
    '{"model":"tiny-chat"}'.encode("utf-16"),
    '{"model":"tiny-chat"}'.encode("utf-32"),
]


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("path", sorted({place.path for place in PLACES}))
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_bodies_that_are_no_object(hostile: PlainClient, path: str, body: bytes) -> None:
    status, answer = hostile.post(path, body)
    assert status == 400, answer
    error = json.loads(answer)["error"]
    assert complaint(status, answer, error["param"]) is None


NAMES = [
    "",
    " ",
    "Model",
    "model ",
    "__class__",
    "temprature",
    "a.b",
    "messages[0]",
    "\0",
    LONG,
    "\u202e",
    "\N{PILE OF POO}",
]


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_unknown_fields_are_named(hostile: PlainClient, place: Place) -> None:
    first = next(iter(place.table))
    for name in NAMES:
        body = json.loads(place.raw(first, json.dumps(None).encode()))
        target: Any = body
        for step in place.steps:
            target = target[step]
        target[name] = 1
        status, answer = hostile.post(place.path, json.dumps(body).encode())
        error = json.loads(answer)["error"]
        assert complaint(status, answer, place.param(name)[:100]) is None, name
        assert error["code"] == "unknown_field"


def test_of_a_repeated_field_the_last_counts(hostile: PlainClient) -> None:
    body = b'{"model":"x","prompt":"Once","seed":1,"max_tokens":NUMBER,"model":"tiny-chat","max_tokens":2}'
    answers = [hostile.post("/v1/completions", body.replace(b"NUMBER", number)) for number in (b"3", b'"x"', b"-1")]
    assert [status for status, _ in answers] == [200] * 3
    assert {json.loads(answer)["usage"]["completion_tokens"] for _, answer in answers} == {2}


def test_nobody_noticed_and_nothing_is_left(server: ServeCommand, neighbour: Neighbour) -> None:
    """Last in this file."""
    neighbour.close()
    assert neighbour.rounds > 0
    assert neighbour.different == []
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)
    left = [server.metric(name) for name in ("forebay_requests_running", "forebay_requests_waiting")]
    assert [*left, server.metric('forebay_blocks{state="promised"}')] == [0, 0, 0]
    assert "Traceback" not in server.log.read_text()
