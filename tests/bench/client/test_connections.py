"""Connections: reused, retried when the server had dropped them, read slowly, over TLS, or not to be had."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.bench.client.load import Endpoint, run_load
from forebay.bench.plan import Session
from forebay.bench.record import FailureKind
from forebay.errors import BenchError
from tests.bench.client.playing import ask, run, turn_of, workload_of
from tests.support.fake_openai import FakeServer, cut, done, fail, fake_server, finish, hang, script, text, usage

NS = 1_000_000_000
OK = script(text(), text(), finish(), usage(2), done())
CHUNKS = 60
WORDS = "x" * 1000
SLOW = script(*[text(words=WORDS)] * CHUNKS, finish(), usage(CHUNKS), done())

SCRIPTS = {
    "reused": [OK],
    "dropped while in use": [OK, script(cut()), OK],
    "dropped twice": [OK, script(cut())],
    "cut in the answer": [OK, script(text(), cut()), OK],
    "closed while idle": [OK | {"framing": "close"}, OK],
    "error": [script(fail(400)), OK],
    "broken": [script(text(), cut()), OK],
    "slow": [SLOW],
    "hung after done": [script(text(), finish(), usage(1), done(), hang()), OK],
}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with fake_server(SCRIPTS, "--send-buffer", "4096") as running:
        yield running


def connections(server: FakeServer, key: str) -> list[int]:
    """The server's number of the connection of each request."""
    return [request["connection"] for request in server.requests(key)]


def test_connections_are_reused(server: FakeServer) -> None:
    records = run(server, *[turn_of("reused")] * 6, concurrency=2)
    assert all(record.completed for record in records)
    assert len(set(connections(server, "reused"))) == 2


def test_a_dropped_connection_is_tried_again_once(server: FakeServer) -> None:
    key = "dropped while in use"
    first, second = run(server, turn_of(key), turn_of(key), concurrency=1)
    assert (first.completed, second.completed) == (True, True)
    a, b, c = connections(server, key)
    assert a == b != c
    assert second.sent_ns <= server.requests(key)[2]["head_ns"]


def test_a_fresh_connection_that_drops_is_a_failure(server: FakeServer) -> None:
    first, second = run(server, turn_of("dropped twice"), turn_of("dropped twice"), concurrency=1)
    assert first.completed
    assert second.failure is not None
    assert second.failure.kind is FailureKind.CUT
    assert len(server.requests("dropped twice")) == 3


def test_an_answer_that_began_is_not_tried_again(server: FakeServer) -> None:
    key = "cut in the answer"
    _, second = run(server, turn_of(key), turn_of(key), concurrency=1)
    assert second.failure is not None
    assert (second.failure.kind, second.output_tokens) == (FailureKind.CUT, 1)
    assert len(server.requests(key)) == 2


@pytest.mark.parametrize("key", ["closed while idle", "broken", "hung after done"])
def test_a_used_up_connection_is_not_used_again(server: FakeServer, key: str) -> None:
    _, second = run(server, turn_of(key), turn_of(key), concurrency=1)
    assert second.completed
    assert len(set(connections(server, key))) == 2


def test_a_connection_survives_an_error_response(server: FakeServer) -> None:
    _, second = run(server, turn_of("error"), turn_of("error"), concurrency=1)
    assert second.completed
    assert len(set(connections(server, "error"))) == 1


def test_a_slow_reader_holds_the_server_up(server: FakeServer) -> None:
    rate = 60_000.0
    record = ask(server, "slow", read_bytes_per_s=rate)
    (seen,) = server.requests("slow")
    assert record.completed
    assert record.output_tokens == CHUNKS
    body_s = CHUNKS * len(WORDS) / rate
    assert (record.end_ns - record.sent_ns) / NS == pytest.approx(body_s * 1.2, rel=0.4)  # JSON around the words
    assert seen["blocked"]
    assert (seen["sent"][-1][2] - seen["sent"][0][1]) / NS > body_s / 4  # the server felt it too


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}", model="m")
    (record,) = run_load(workload_of(turn_of("any")), endpoint)
    assert record.failure is not None
    assert record.failure.kind is FailureKind.CONNECT
    assert record.headers_ns is None
    assert record.end_ns >= record.sent_ns >= record.intended_ns


def test_nobody_accepts() -> None:
    """A full backlog: the limit of the run ends it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", model="m", timeout_s=0.3)
        (record,) = run_load(workload_of(turn_of("any")), endpoint)
        for filler in fillers:
            filler.close()
    assert record.failure is not None
    assert record.failure.kind is FailureKind.TIMEOUT


def test_a_host_without_an_address_cannot_be_measured() -> None:
    with pytest.raises(BenchError, match=r"no-such-host\.invalid"):
        run_load(workload_of(turn_of("any")), Endpoint(base_url="http://no-such-host.invalid", model="m"))


def test_localhost_by_name(server: FakeServer) -> None:
    """It may have an IPv6 address first, where the server does not listen."""
    (record,) = run(server, turn_of("reused"), base_url=server.url.replace("127.0.0.1", "localhost"))
    assert record.completed


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_tls(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = certificate
    session = Session(turns=(turn_of("tls"), turn_of("tls")))
    with fake_server({"tls": OK}, "--cert", str(cert), "--key", str(key), "--host", "127.0.0.1") as server:
        url = server.url.replace("127.0.0.1", "localhost")
        endpoint = Endpoint(base_url=url, model="m", timeout_s=10)
        (refused,) = run_load(workload_of(session), endpoint)
        assert refused.failure is not None
        assert refused.failure.kind is FailureKind.CONNECT
        assert "certificate" in refused.failure.detail.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        first, second = run_load(workload_of(session), endpoint)
    assert (first.output_tokens, second.output_tokens) == (2, 2)
