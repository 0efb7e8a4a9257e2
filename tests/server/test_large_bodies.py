"""Bodies of 20 MB, fast and slow ones: the server answers others all the while."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from forebay.server.json_shape import MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES
from forebay.server.openai.tokenize import MAX_TEXT, MAX_TOKENS
from tests.server.conftest import TINY_FLAGS
from tests.server.test_http import JSON_TYPE, error_of
from tests.support.server_process import ServeCommand, running_server

SIZE = 20 * 10**6  # bytes
PROMPT_S = 0.1  # what an answer of /health may take
COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"
MODEL, MESSAGE = '"tiny-chat"', '{"role":"user","content":"a"}'


@pytest.fixture(scope="module")
def roomy(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    log = tmp_path_factory.mktemp("roomy") / "log"
    with running_server([str(tiny_model), *TINY_FLAGS, "--max-body-mib", "32"], log) as process:
        yield process


def text(unit: str, size: int = SIZE) -> str:
    return '"' + unit * (size // len(unit)) + '"'


def array(item: str, count: int) -> str:
    return "[" + ",".join([item] * count) + "]"


def body_of(**fields: str) -> bytes:
    """Fields as JSON already, and spaces up to SIZE."""
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode().ljust(SIZE)


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "text": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=text("word "))),
    "escapes": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=text("\\u00e9", 6 * MAX_VALUES))),
    "too many escapes": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=text("\\u00e9"))),
    "ids": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array("1", MAX_VALUES))),
    "too many ids": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array("1", SIZE // 2))),
    "texts": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array('"ab"', MAX_STRINGS - 9))),
    "arrays": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array("[]", MAX_CONTAINERS - 2))),
    "too many arrays": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array("[]", SIZE // 3))),
    "towers": (COMPLETIONS, lambda: body_of(model=MODEL, prompt=array("[" * 60 + "]" * 60, SIZE // 121))),
    "quotes": (COMPLETIONS, lambda: b'"' * SIZE),
    "unknown field": (COMPLETIONS, lambda: body_of(no_such_field=text("x"))),
    "chat": (CHAT, lambda: body_of(model=MODEL, messages=f'[{{"role":"user","content":{text("a ")}}}]')),
    "messages": (CHAT, lambda: body_of(model=MODEL, messages=array(MESSAGE, MAX_CONTAINERS - 2))),
    "too long to tokenize": (TOKENIZE, lambda: body_of(prompt=text("word "))),
    "tokenize": (TOKENIZE, lambda: body_of(prompt=text("word ", MAX_TEXT))),
    "one word": (TOKENIZE, lambda: body_of(prompt=text("a", MAX_TEXT))),
    "detokenize": (DETOKENIZE, lambda: body_of(tokens=array("1", MAX_TOKENS))),
    "too many to detokenize": (DETOKENIZE, lambda: body_of(tokens=array("1", MAX_VALUES))),
}


def seconds_of_health(client: httpx.Client) -> float:
    began = time.perf_counter()
    assert client.get("/health").status_code == 200
    return time.perf_counter() - began


def slowest_health(client: httpx.Client, path: str, body: bytes) -> float:
    """The longest that /health took, in seconds, while a thread sent `body` and waited for its answer."""
    answers: list[httpx.Response] = []
    url = client.base_url.join(path)
    posting = threading.Thread(
        target=lambda: answers.append(httpx.post(url, content=body, headers=JSON_TYPE, timeout=120))
    )
    seconds_of_health(client)
    posting.start()
    taken = [seconds_of_health(client)]
    while posting.is_alive():
        taken.append(seconds_of_health(client))
    posting.join()
    assert len(taken) > 1
    assert answers[0].status_code in (200, 400)
    assert answers[0].status_code == 200 or len(answers[0].content) < 1000  # the input is not repeated
    return max(taken)


@pytest.mark.parametrize(
    ("path", "field", "value", "message"),
    [
        (
            TOKENIZE,
            "prompt",
            text("a", MAX_TEXT + 1),
            f"{MAX_TEXT + 1} characters and may have {MAX_TEXT}",
        ),
        (TOKENIZE, "messages", f'[{{"role":"user","content":{text("a", MAX_TEXT)}}}]', f"and may have {MAX_TEXT} here"),
        (DETOKENIZE, "tokens", array("1", MAX_TOKENS + 1), f"has {MAX_TOKENS + 1} token ids and may have"),
    ],
    ids=["prompt", "messages", "tokens"],
)
def test_what_is_too_long_to_tokenize(roomy: ServeCommand, path: str, field: str, value: str, message: str) -> None:
    body = f'{{"{field}":{value}}}'
    error = error_of(httpx.post(roomy.url + path, content=body.encode(), headers=JSON_TYPE, timeout=60), 400)
    assert error["param"] == field
    assert message in error["message"]


@pytest.mark.parametrize("name", BODIES)
def test_health_answers_while_a_large_body_is_read(roomy: ServeCommand, name: str) -> None:
    path, body = BODIES[name][0], BODIES[name][1]()
    with httpx.Client(base_url=roomy.url) as client:
        # a stall of the server's own is there every time; one of the machine's is not
        assert min(slowest_health(client, path, body) for _ in range(3)) < PROMPT_S


def test_health_answers_while_a_small_body_is_checked(roomy: ServeCommand) -> None:
    rules = "root ::= r0\n" + "".join(f'r{n} ::= "a" r{n + 1}?\n' for n in range(490)) + 'r490 ::= "a"\n'
    body = {"model": "tiny-chat", "prompt": "a", "max_tokens": 1, "guided_grammar": rules}
    with httpx.Client(base_url=roomy.url) as client:
        assert min(slowest_health(client, COMPLETIONS, json.dumps(body).encode()) for _ in range(3)) < PROMPT_S


def test_health_answers_between_the_pieces_of_a_body(roomy: ServeCommand) -> None:
    """It comes in as it is sent: 200 pieces with a question between any two of them."""
    body = body_of(model=MODEL, prompt=text("word "))
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    piece = len(body) // 200 + 1
    with httpx.Client(base_url=roomy.url) as client, socket.create_connection(roomy.address, timeout=60) as connection:
        connection.sendall(head.encode())
        taken = []
        for start in range(0, len(body), piece):
            connection.sendall(body[start : start + piece])
            taken.append(seconds_of_health(client))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "context_length_exceeded"
    assert statistics.quantiles(taken, n=100)[-1] < PROMPT_S  # 198 of the 200
