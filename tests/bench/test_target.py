"""Servers that are none, and what must not be said of them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from forebay.bench.target import identify
from forebay.errors import BenchError

MODELS = b'{"data": [{"id": "m", "max_model_len": 64}]}'


@contextlib.contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A server that answers every connection with `reply`, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with contextlib.suppress(OSError):  # until the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def page(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 70000 + b"\r\n\r\n",
        page(b"[" * 100_000),
        page(b"<html>"),
        page(b"\xff\xfe"),
    ],
    ids=["nothing", "ssh", "tls alert", "bad chunk", "many headers", "long header", "deep", "html", "no UTF-8"],
)
def test_what_is_no_server_does_not_answer(reply: bytes) -> None:
    with answering(reply) as url, pytest.raises(BenchError, match="is the server up"):
        identify(url)


def test_a_redirection_is_not_followed() -> None:
    """The load client follows none, and the key is for this server only."""
    with answering(page(MODELS)) as other:
        moved = f"HTTP/1.1 307 x\r\nLocation: {other}/v1/models\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with answering(moved.encode()) as url, pytest.raises(BenchError, match="answers 307"):
            identify(url, api_key="sk-1")


def test_no_proxy_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(page(MODELS)) as url:
        assert identify(url).model == "m"


@pytest.mark.parametrize("url", ["http://h/a b", "http://h?x=1", "http://h/\x01"])
def test_a_url_that_cannot_be_measured_is_refused(url: str) -> None:
    with pytest.raises(BenchError, match="give "):
        identify(url)


@pytest.mark.parametrize(
    ("url", "key"), [("http://h", "s3cret\n"), ("http://h", "s3cret\u2026"), ("http://me:s3cret@h:1", None),
                     ("ftp://me:s3cret@h", None)],
)  # fmt: skip
def test_a_secret_is_not_said(url: str, key: str | None) -> None:
    with pytest.raises(BenchError) as raised:
        identify(url, api_key=key)
    assert "s3cret" not in raised.value.message


def test_what_a_server_says_of_itself_can_be_written_down() -> None:
    said = b'{"data": [{"id": "m"}], "build": 1000000000000000000000000000000}'
    with answering(page(said)) as url:
        assert identify(url).facts == {"url": url, "model": "m"}


def test_a_model_without_a_name_to_show_is_none() -> None:
    said = b'{"data": [{"id": {"a": 1}}, {"id": "a\\u001b[31m"}, {"id": "m"}]}'
    with answering(page(said)) as url:
        assert identify(url).model == "m"
