"""Servers that do something else than they were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from forebay.bench.doubts import doubts, record_doubts
from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import Reconciled
from forebay.core.messages import Event
from forebay.observe.recorder import RequestLine

FAILED = Failure(kind=FailureKind.PROTOCOL, http_status=200, detail="no event stream")


def workload(count: int = 4, *, fixed: bool = True, sharing: float | None = 0.0) -> Workload:
    turn = Turn(prompt=[1] * 100, prompt_tokens=100, max_tokens=50, body={"ignore_eos": True} if fixed else {})
    spec = {} if sharing is None else {"made": {"prefix_sharing": sharing}}
    return Workload(sessions=(Session(turns=(turn,)),) * count, concurrency=1, spec=spec)


def record(index: int, **fields: Any) -> RequestRecord:
    plain = RequestRecord(
        index=index, intended_ns=index * 100, sent_ns=index * 100, end_ns=index * 100 + 50, planned_prompt_tokens=100,
        planned_output_tokens=50, prompt_tokens=100, output_tokens=50, response_id=f"r{index}",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **fields)


def of(fields: dict[str, Any], *, count: int = 4, **load: Any) -> list[str]:
    """What stands against a run whose requests all look like this."""
    return doubts([workload(count, **load)], [[record(index, **fields) for index in range(count)]])


def test_nothing_stands_against_a_server_that_obeys() -> None:
    assert of({}) == of({"prompt_tokens": None, "cached_tokens": 1}) == of({"prompt_tokens": 101}) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt_tokens": 110}, "counted 440 tokens where 400 were planned (4 of 4 requests differ) as prompts"),
        ({"prompt_tokens": 0}, "counted 0 tokens where 400 were planned"),
        ({"output_tokens": 10}, "counted 40 tokens where 200 were planned (4 of 4 requests differ) as answers"),
        ({"output_tokens": 0}, "counted 0 tokens where 200 were planned"),
        ({"output_tokens": 90}, "counted 360 tokens where 200 were planned"),
        ({"cached_tokens": 80}, "320 of 400 prompt tokens in its prefix cache"),
        ({"prompt_tokens": 0, "cached_tokens": 80}, "320 of 400 prompt tokens in its prefix cache"),
        ({"failure": FAILED}, "no request completed; the first failed with protocol: no event stream"),
    ],
)
def test_a_server_that_does_something_else_is_told_on(fields: dict[str, Any], words: str) -> None:
    assert any(words in reason for reason in of(fields)), of(fields)


def test_an_answer_that_may_end_may_be_short_but_not_long() -> None:
    assert of({"output_tokens": 10}, fixed=False) == []
    assert any("as answers" in reason for reason in of({"output_tokens": 90}, fixed=False))


def test_what_was_given_up_on_purpose_is_nobodys_fault() -> None:
    assert of({"cancelled": True, "output_tokens": 3}) == []


def test_one_that_completed_is_enough() -> None:
    assert doubts([workload(2)], [[record(0), record(1, failure=FAILED)]]) == []


def line(request_id: str, *times: int) -> RequestLine:
    return RequestLine(
        request_id=request_id, child_index=0, reason="length", num_prompt_tokens=1, num_cached_tokens=0,
        events=tuple(Event(kind="token", t_ns=time) for time in times),
    )  # fmt: skip


def view(records: Sequence[RequestRecord], *lines: RequestLine, matched: int = 2) -> list[str]:
    reconciled = Reconciled(matched=matched, unmatched=len(records) - matched, stretches={})
    return list(record_doubts(records, lines, reconciled))


def test_a_record_of_another_server_is_told() -> None:
    assert "none of these requests" in view([record(0), record(1)], matched=0)[0]
    assert view([record(0), record(1)], line("r0", 1), line("r1", 101)) == []


def test_others_at_the_server_are_told() -> None:
    records = [record(0), record(1)]
    own = [line("r0", 1, 50), line("r1-0", 101), line("r1-1", 101)]
    assert view(records, *own, line("warm-up", -9, -1), line("later", 200)) == []
    assert "answered 2 other requests" in view(records, *own, line("x", -5, 20), line("y-0", 120))[0]
    # what we gave up before we heard its name is ours
    assert view([record(0), record(1, response_id=None)], line("r0", 1), line("z", 101)) == []
