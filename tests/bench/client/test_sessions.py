"""Turns of a session: history, thinking, hanging up, failing, and answers that are checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.bench.plan import Session
from forebay.bench.record import FailureKind
from tests.bench.client.playing import ask, run, turn_of
from tests.support.fake_openai import (
    FakeServer,
    done,
    event,
    fake_server,
    finish,
    generation,
    reasoning,
    role,
    script,
    text,
    tool_call,
    usage,
)
from tests.support.server_process import eventually

NS = 1_000_000_000

SCRIPTS = {
    "talk": [
        script(role(), reasoning("hm"), text(words="I am"), text(words=" well"), finish(), usage(3), done()),
        script(role(), text(words="Bye"), finish(), usage(1), done()),
    ],
    "lines": [generation(2, ttft_s=0, itl_s=0)],
    "fails": [script(text(), event('{"error": "no"}'))],
    "long": [generation(400, ttft_s=0, itl_s=0.01)],
    "long in fours": [generation(400, ttft_s=0, itl_s=0.01, per_chunk=4)],
    "counted": [script(*[text(4, after_s=0.01, total=4 * i) for i in range(1, 100)])],
    "short": [generation(3, ttft_s=0, itl_s=0)],
    "paris": [script(text(words="It is Pa"), text(words="ris."), finish(), usage(2), done())],
    "thinks paris": [script(reasoning("Paris?"), text(words="Rome"), finish(), usage(2), done())],
    "calls paris": [script(role(), tool_call("go", '{"to": "Paris"}'), finish("tool_calls"), usage(2), done())],
}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with fake_server(SCRIPTS) as running:
        yield running


def said(content: str, who: str = "user") -> dict[str, str]:
    return {"role": who, "content": content}


def test_a_conversation_has_its_history_and_pauses(server: FakeServer) -> None:
    turns = (
        turn_of("talk", prompt=[said("Be kind.", "system"), said("How are you?")], think_s=9.0),
        turn_of("talk", prompt=[said("Bye.")], think_s=0.2, body={"temperature": 0.5}, prompt_tokens=None),
    )
    first, second = run(server, Session(turns=turns))
    assert [(r.index, r.session, r.turn) for r in (first, second)] == [(0, 0, 0), (1, 0, 1)]
    got = [request["body"] for request in server.requests("talk")]
    assert got[0] == {
        "model": "m",
        "messages": [said("Be kind.", "system"), said("How are you?")],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "user": "talk",
    }
    answer = said("I am well", "assistant")  # without the reasoning
    assert got[1]["messages"] == [*got[0]["messages"], answer, said("Bye.")]
    assert got[1]["temperature"] == 0.5
    # from the end of the response, which comes right after its finish reason; whenever it was sent
    assert first.end_ns <= second.intended_ns - NS // 5 < first.end_ns + NS // 20
    assert second.sent_ns >= second.intended_ns
    assert server.requests("talk")[1]["head_ns"] >= second.sent_ns


def test_completions_have_no_history(server: FakeServer) -> None:
    run(server, Session(turns=(turn_of("lines", prompt=[1, 2]), turn_of("lines", prompt="next"))))
    assert [request["body"]["prompt"] for request in server.requests("lines")] == [[1, 2], "next"]


def test_a_failed_turn_ends_its_session_and_no_other(server: FakeServer) -> None:
    failing = Session(turns=(turn_of("short"), turn_of("fails"), turn_of("short")))
    records = run(server, failing, failing, turn_of("short"))
    assert [record.index for record in records] == [0, 1, 3, 4, 6]
    assert [record.completed for record in records] == [True, False, True, False, True]
    assert records[1].failure is not None
    assert records[1].failure.kind is FailureKind.STREAM_ERROR


@pytest.mark.parametrize(("key", "chunks", "counted_by"), [("long", 8, "assumed"), ("counted", 2, "chunks")])
def test_hanging_up(server: FakeServer, key: str, chunks: int, counted_by: str) -> None:
    record = ask(server, key, cancel_after_tokens=8)
    assert record.cancelled
    assert record.failure is None
    assert not record.completed
    assert (len(record.token_ns), record.counted_by) == (chunks, counted_by)
    assert record.output_tokens == 8
    assert record.end_ns == record.token_ns[-1]
    assert (record.finish_reason, record.output_digest) == (None, None)
    assert eventually(lambda: server.requests(key)[-1]["gone_ns"] is not None)
    seen = server.requests(key)[-1]
    assert (seen["gone_ns"] - record.end_ns) / NS < 0.5  # of the 1 to 4 s that the answer takes
    assert len(seen["sent"]) < 60


def test_an_answer_that_is_shorter_is_not_cancelled(server: FakeServer) -> None:
    assert ask(server, "short", cancel_after_tokens=4).completed


def test_a_session_goes_on_after_hanging_up(server: FakeServer) -> None:
    turns = (
        turn_of("long in fours", prompt=[said("Tell.")], cancel_after_tokens=1),
        turn_of("talk", prompt=[said("?")]),
    )
    first, second = run(server, Session(turns=turns))
    assert (first.cancelled, second.completed) == (True, True)
    messages = server.requests("talk")[-1]["body"]["messages"]
    assert messages == [said("Tell."), said(" tok1 tok2 tok3 tok4", "assistant"), said("?")]


@pytest.mark.parametrize(
    ("key", "right"), [("paris", True), ("thinks paris", False), ("calls paris", True), ("short", False)]
)
def test_answers_are_checked(server: FakeServer, key: str, right: bool) -> None:
    assert ask(server, key, prompt=[said("Where?")], expected="Paris").correct is right


def test_what_has_no_answer_is_not_checked(server: FakeServer) -> None:
    assert ask(server, "fails", expected="Paris").correct is None
    assert ask(server, "long", expected="Paris", cancel_after_tokens=1).correct is None
    assert ask(server, "paris").correct is None
