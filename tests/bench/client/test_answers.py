"""Every shape of answer, over real sockets: times against the server's own stamps, and exact counts.

All answers are asked for at about the same time, whole and broken ones, so each also shows that no other disturbed it.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from forebay.bench.plan import Session
from forebay.bench.record import FailureKind, RequestRecord
from tests.bench.client.playing import run, turn_of
from tests.support.fake_openai import (
    Act,
    FakeServer,
    Record,
    Script,
    cut,
    done,
    dribble,
    event,
    fail,
    fake_server,
    finish,
    hang,
    raw,
    reasoning,
    reply,
    role,
    script,
    socket_bytes,
    text,
    together,
    tool_call,
    usage,
)

NS = 1_000_000_000
CHAT = [{"role": "user", "content": "one two three"}]
GAP = 0.02  # between chunks, so that a time taken at a wrong one is seen


def texts(count: int, tokens: int = 1, **extra: Any) -> list[Act]:
    return [text(tokens, after_s=GAP, **extra) for _ in range(count)]


@dataclass(frozen=True)
class Answer:
    """A script, and what its record must say. `bearing`: positions among the acts sent of those that bear tokens."""

    script: Script
    bearing: list[int]
    counts: list[int]
    counted_by: str = "usage"
    finish: str = "stop"
    text: str | None = None
    chat: bool = True


def whole(*acts: Act, tokens: int, reason: str = "stop") -> Script:
    """With a finish reason, a usage and [DONE] at the end."""
    return script(*acts, finish(reason, after_s=GAP), usage(tokens, cached=3), done())


CHAT_OF_TWO = whole(role(), *texts(2), tokens=2)

ANSWERS = {
    "chat": Answer(whole(role(), *texts(3), tokens=3), [1, 2, 3], [1, 1, 1], text=" tok1 tok2 tok3"),
    "completion": Answer(whole(*texts(3), tokens=3), [0, 1, 2], [1, 1, 1], chat=False),
    "role long before": Answer(whole(role(), text(after_s=0.2), tokens=1), [1], [1]),
    "empty first chunk": Answer(whole(role(), text(words=""), *texts(2), tokens=2), [2, 3], [1, 1]),
    "end of sequence": Answer(whole(role(), *texts(2), tokens=3), [1, 2, 3], [1, 1, 1]),
    "only an end of sequence": Answer(whole(role(), tokens=1), [1], [1], text=""),
    "several tokens a chunk": Answer(
        whole(role(), *texts(2, tokens=4), tokens=8, reason="length"), [1, 2], [4, 4], "spread", "length"
    ),
    "one chunk with everything": Answer(
        script(text(5, after_s=GAP, finish="length", usage={"prompt_tokens": 7, "completion_tokens": 5}), done()),
        [0], [5], "chunks", "length",
    ),
    "running usage": Answer(
        whole(role(), text(2, after_s=GAP, total=2), text(3, after_s=GAP, total=5), tokens=5), [1, 2], [2, 3], "chunks"
    ),
    "token ids": Answer(
        whole(*[text(n, after_s=GAP, token_ids=[1] * n) for n in (1, 4)], tokens=5),
        [0, 1], [1, 4], "chunks", chat=False,
    ),
    "logprobs": Answer(
        whole(*[text(n, after_s=GAP, logprobs=n) for n in (1, 4)], tokens=5), [0, 1], [1, 4], "chunks", chat=False
    ),
    "chat logprobs": Answer(whole(role(), *texts(2, logprobs=1), tokens=2), [1, 2], [1, 1], "chunks"),
    "held back text": Answer(
        whole(text(words="", after_s=GAP, logprobs=1), text(words="😀", after_s=GAP, logprobs=1), tokens=2),
        [0, 1], [1, 1], "chunks", text="😀",
    ),
    "reasoning": Answer(
        whole(role(), reasoning("hm"), reasoning("so", field="reasoning", after_s=GAP), *texts(1), tokens=3),
        [1, 2, 3], [1, 1, 1], text="hmso tok1",
    ),
    "tool call": Answer(
        whole(role(), tool_call("f", after_s=GAP), tool_call(arguments='{"a"', after_s=GAP), tool_call(),
              tool_call(arguments=":1}", after_s=GAP), tokens=3, reason="tool_calls"),
        [1, 2, 4], [1, 1, 1], finish="tool_calls", text='f{"a":1}',
    ),
    "no usage": Answer(script(role(), *texts(2), finish(), done()), [1, 2], [1, 1], "assumed"),
    "no done": Answer(script(role(), *texts(2), finish(), usage(2)), [1, 2], [1, 1]),
    "cut after the finish": Answer(script(role(), *texts(2), finish(), usage(2), cut()), [1, 2], [1, 1]),
    "never ends after done": Answer(script(role(), *texts(2), finish(), usage(2), done(), hang()), [1, 2], [1, 1]),
    "comments": Answer(whole(raw(": keep-alive\n\n"), role(), raw(": x\n"), *texts(2), tokens=2), [3, 4], [1, 1]),
    "all in one write": Answer(
        script(together(role(), text(), text(), finish(), usage(2), done(), after_s=GAP)), [0, 0], [1, 1]
    ),
    "dribbled": Answer(
        whole(role(), *[dribble(text(words="ä😀"), pieces=40, gap_s=0.001, after_s=GAP) for _ in range(2)], tokens=2),
        [1, 2], [1, 1], text="ä😀ä😀",
    ),
    "with a length": Answer(
        CHAT_OF_TWO | {"framing": "length"}, [1, 2], [1, 1]
    ),
    "until closed": Answer(CHAT_OF_TWO | {"framing": "close"}, [1, 2], [1, 1]),
    "after an interim response": Answer(
        script(socket_bytes("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), *CHAT_OF_TWO["acts"]),
        [1, 2], [1, 1],
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Broken:
    script: Script
    kind: FailureKind
    detail: str
    tokens: int = 0


ERROR = json.dumps({"error": {"message": "the engine died", "code": 500}})
CHUNKED = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello"

BROKEN = {
    "overloaded": Broken(
        script(fail(429, "queue is full", retry_after="3")), FailureKind.OVERLOADED, "queue is full (Retry-After: 3)"
    ),
    "bad request": Broken(script(fail(400, "unknown field")), FailureKind.CLIENT_ERROR, "unknown field"),
    "server error": Broken(script(fail(500, "oops")), FailureKind.SERVER_ERROR, "oops"),
    "plain error": Broken(
        script(reply(503, "gone\n fishing", content_type="text/plain")), FailureKind.SERVER_ERROR, "gone fishing"
    ),
    "endless error": Broken(
        script(reply(500, "x" * 10**6, content_type="text/plain")), FailureKind.SERVER_ERROR, "xxx"
    ),
    "redirect": Broken(
        script(reply(307, "", content_type="text/plain", location="/there")), FailureKind.PROTOCOL, "/there"
    ),
    "no stream": Broken(
        script(reply(200, "{}", content_type="application/json")), FailureKind.PROTOCOL, "application/json"
    ),
    "error event": Broken(
        script(role(), *texts(2), event(ERROR), hang()), FailureKind.STREAM_ERROR, "the engine died", 2
    ),
    "named error event": Broken(
        script(*texts(1), event("boom", name="error"), done()), FailureKind.STREAM_ERROR, "boom", 1
    ),
    "error before": Broken(
        script(event('{"object":"error","message":"too long"}')), FailureKind.STREAM_ERROR, "too long"
    ),
    "cut": Broken(script(role(), *texts(2), cut(after_s=GAP)), FailureKind.CUT, "in the middle", 2),
    "cut at once": Broken(script(cut()), FailureKind.CUT, "before the response"),
    "ended without a reason": Broken(script(role(), *texts(2), done()), FailureKind.CUT, "without a finish reason", 2),
    "empty stream": Broken(script(), FailureKind.CUT, "without a finish reason"),
    "hangs": Broken(script(role(), *texts(2), hang()), FailureKind.TIMEOUT, "within the limit", 2),
    "never answers": Broken(script(hang()), FailureKind.TIMEOUT, "within the limit"),
    "not http": Broken(script(socket_bytes("SSH-2.0-OpenSSH_9.2\r\n"), hang()), FailureKind.PROTOCOL, "not HTTP"),
    "bad chunk": Broken(script(socket_bytes(f"{CHUNKED}zz\r\n")), FailureKind.PROTOCOL, "not HTTP"),
    "endless headers": Broken(
        script(socket_bytes("HTTP/1.1 200 OK\r\nA: " + "x" * 10**6), hang()), FailureKind.PROTOCOL, "headers"
    ),
    "endless extension": Broken(
        script(socket_bytes(f"{CHUNKED}4;" + "x" * 10**6), hang()), FailureKind.PROTOCOL, "headers"
    ),
    "other protocol": Broken(script(socket_bytes(UPGRADE), hang()), FailureKind.PROTOCOL, "another protocol"),
    "not json": Broken(script(*texts(1), event("{nope")), FailureKind.PROTOCOL, "{nope", 1),
    "wrong json": Broken(script(event('{"choices": 7}')), FailureKind.PROTOCOL, "choices"),
    "deep json": Broken(script(event('{"error": ' + "[" * 5000)), FailureKind.PROTOCOL, "[[["),
    "no utf-8": Broken(script(event('{"choices": [{"text": "\xff"}]}')), FailureKind.PROTOCOL, ""),
    "absurd usage": Broken(script(*texts(2), finish(), usage(2**40)), FailureKind.PROTOCOL, "1099511627776 tokens", 2),
    "endless line": Broken(script(raw("data: " + "x" * (2**20 + 1)), hang()), FailureKind.PROTOCOL, "1 MiB"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    scripts = {name: case.script for name, case in ANSWERS.items()} | {
        name: case.script for name, case in BROKEN.items()
    }
    with fake_server(scripts) as running:
        yield running


@pytest.fixture(scope="module")
def records(server: FakeServer) -> dict[str, RequestRecord]:
    turns = [turn_of(name, prompt=CHAT if case.chat else "one two three") for name, case in ANSWERS.items()]
    turns += [turn_of(name) for name in BROKEN]
    # not all in step, so that one pause of this machine does not make every token late
    made = run(server, *[Session(turns=(turn,), at_s=i * 0.017) for i, turn in enumerate(turns)], timeout_s=2.0)
    assert [record.bucket for record in made] == [*ANSWERS, *BROKEN]
    return {record.bucket: record for record in made}


@pytest.fixture(scope="module")
def stamps(server: FakeServer, records: dict[str, RequestRecord]) -> dict[str, Record]:
    return {record["key"]: record for record in server.stamps()["requests"]}


@pytest.mark.parametrize("name", ANSWERS)
def test_counts_are_exact(name: str, records: dict[str, RequestRecord]) -> None:
    record, answer = records[name], ANSWERS[name]
    assert record.failure is None
    assert record.completed
    assert list(record.token_counts) == answer.counts
    assert record.output_tokens == sum(answer.counts)
    assert record.counted_by == answer.counted_by
    assert record.finish_reason == answer.finish
    assert (record.response_id or "").startswith("chatcmpl-" if answer.chat else "cmpl-")
    if answer.text is not None:
        assert record.output_digest == hashlib.sha256(answer.text.encode()).hexdigest()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_token_comes_after_it_was_sent_and_before_the_next(
    name: str, records: dict[str, RequestRecord], stamps: dict[str, Record]
) -> None:
    """Cause and effect, on one clock and however busy the machine: after the server began to send this chunk."""
    record, sent = records[name], stamps[name]["sent"]
    bearing = [sent[i] for i in ANSWERS[name].bearing]
    assert len(record.token_ns) == len(bearing)
    for at_ns, (_, before_ns, _) in zip(record.token_ns, bearing, strict=True):
        assert at_ns >= before_ns
    finished = [before_ns for kind, before_ns, _ in sent if kind == "finish"]
    assert record.end_ns >= max([*finished, *record.token_ns])
    assert record.intended_ns <= record.sent_ns <= stamps[name]["body_ns"]
    assert record.sent_ns < (record.headers_ns or 0) <= record.token_ns[0]


def test_a_token_comes_soon_after_it_was_sent(records: dict[str, RequestRecord], stamps: dict[str, Record]) -> None:
    """The middle of all delays: a busy machine makes some of them long, but not half of them."""
    late_s = []
    for name, answer in ANSWERS.items():
        for at_ns, i in zip(records[name].token_ns, answer.bearing, strict=True):
            late_s.append((at_ns - stamps[name]["sent"][i][2]) / NS)
    assert statistics.median(late_s) < GAP / 4


def test_the_first_token_is_not_the_role(records: dict[str, RequestRecord], stamps: dict[str, Record]) -> None:
    record = records["role long before"]
    (role_sent, token_sent) = stamps["role long before"]["sent"][:2]
    assert token_sent[1] - role_sent[2] > 0.15 * NS
    assert record.token_ns[0] >= token_sent[1]
    assert record.headers_ns is not None
    assert record.headers_ns < token_sent[1]


def test_the_end_of_sequence_counts_when_the_answer_finishes(records: dict[str, RequestRecord]) -> None:
    assert records["end of sequence"].token_ns[-1] == records["end of sequence"].end_ns


def test_usage_is_kept(records: dict[str, RequestRecord]) -> None:
    assert (records["chat"].prompt_tokens, records["chat"].cached_tokens) == (7, 3)
    assert (records["no usage"].prompt_tokens, records["no usage"].cached_tokens) == (None, None)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_says_how(name: str, records: dict[str, RequestRecord]) -> None:
    record, broken = records[name], BROKEN[name]
    assert record.failure is not None
    assert record.failure.kind is broken.kind
    assert broken.detail in record.failure.detail
    assert len(record.failure.detail) <= 300
    assert record.failure.detail.isprintable()
    assert not record.completed
    assert (record.output_tokens, sum(record.token_counts)) == (broken.tokens, broken.tokens)
    assert record.output_digest is None
    assert record.end_ns >= max([record.sent_ns, *record.token_ns])


def test_the_status_stands_in_the_failure(records: dict[str, RequestRecord]) -> None:
    statuses = {name: failure.http_status for name in BROKEN if (failure := records[name].failure)}
    assert (statuses["overloaded"], statuses["cut"], statuses["cut at once"]) == (429, 200, None)


def test_a_time_out_ends_at_the_limit(records: dict[str, RequestRecord]) -> None:
    for name in ("hangs", "never answers"):
        assert 1.9 * NS < records[name].end_ns - records[name].sent_ns < 3 * NS
