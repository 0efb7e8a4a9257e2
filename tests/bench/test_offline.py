"""Throughput in process, on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forebay import LLM
from forebay.bench.offline import measure_offline, open_llm, play
from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.record import RequestRecord
from forebay.bench.result import Result
from forebay.bench.serve import planned
from forebay.bench.slo import parse_slo
from forebay.errors import BenchError
from tests.bench.profiles import closed_loop, tiny_profile


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with open_llm(tiny_profile()) as llm:
        yield llm


@pytest.fixture(scope="module")
def result(llm: LLM) -> Result:
    workloads, warmup = planned(closed_loop(requests=6, output="3..9"), llm.tokenizer, runs=2, warmup=2)
    return measure_offline(llm, workloads, warmup=warmup, slo=parse_slo("ttft:60s"), seed=3, label="tiny")


def one_turn(**fields: Any) -> Workload:
    turn = {"prompt": [1, 300, 301], "prompt_tokens": 3, "max_tokens": 4, "body": {"ignore_eos": True}, **fields}
    return Workload(sessions=(Session(turns=(Turn(**turn),)),), concurrency=1)


def test_tokens_are_exact_and_rates_are_tokens_over_time(llm: LLM, result: Result) -> None:
    summary = result.summary
    assert summary is not None
    workloads, _ = planned(closed_loop(requests=6, output="3..9"), llm.tokenizer, runs=2)
    assert summary.output_tokens == sum(turn.max_tokens for w in workloads for turn in w.turns())
    assert summary.prompt_tokens == 2 * 6 * 16
    assert (summary.boundary, summary.requests, summary.completed) == ("in_process", 12, 12)
    assert summary.output_token_rate == pytest.approx(summary.output_tokens / summary.duration_s)
    assert summary.duration_s == pytest.approx(
        sum(max(r.end_ns for r in run.records) - min(r.intended_ns for r in run.records) for run in result.runs) / 1e9
    )
    assert summary.cached_tokens == 0  # each run begins with an empty prefix cache
    assert (summary.slo_attained, summary.counted_by) == (1.0, {"chunks": 12})
    assert summary.queue_s is not None


def test_steps_of_the_runs_hold_their_tokens(result: Result) -> None:
    assert result.steps is not None
    assert result.summary is not None
    total = result.summary.prompt_tokens + result.summary.output_tokens - result.summary.requests  # not the last ones
    assert sum(result.steps.prefill_tokens) + sum(result.steps.decode_tokens) == total
    assert max(result.steps.requests) == 2


def test_a_place_is_taken_when_it_becomes_free(result: Result) -> None:
    for run in result.runs:
        records = run.records
        changes = sorted([(r.intended_ns, 1) for r in records] + [(r.end_ns, -1) for r in records])
        open_now = [sum(change for _, change in changes[: i + 1]) for i in range(len(changes))]
        assert max(open_now) == 2
        ends = sorted(r.end_ns for r in records)
        for record in sorted(records, key=lambda r: r.intended_ns)[2:]:
            assert record.intended_ns > ends[0]
        assert all(r.intended_ns <= r.sent_ns <= r.token_ns[0] <= r.token_ns[-1] <= r.end_ns for r in records)


def test_the_document_says_what_was_measured(result: Result) -> None:
    assert (result.kind, result.label, result.seed) == ("offline", "tiny", 3)
    assert result.workload["requests"] == 12
    assert result.workload["warmup_requests"] == 2
    assert result.target["settings"]["kv.block_size"].startswith("8 ")
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result).summary == result.summary


def test_equal_workloads_give_equal_answers(llm: LLM) -> None:
    (workload,), _ = planned(closed_loop(), llm.tokenizer)
    again = msgspec.structs.replace(workload, concurrency=7)

    def digests(records: tuple[RequestRecord, ...]) -> list[str | None]:
        return [record.output_digest for record in records]

    assert digests(play(llm, workload)) == digests(play(llm, again))


def test_a_run_finds_no_prefix_of_the_one_before(llm: LLM) -> None:
    (workload,), _ = planned(closed_loop(requests=2), llm.tokenizer)
    result = measure_offline(llm, [workload, workload], warmup=workload)
    assert [record.cached_tokens for run in result.runs for record in run.records] == [0] * 4


def test_what_a_turn_asks_for(llm: LLM) -> None:
    (record,) = play(llm, one_turn(prompt="Once upon a time", max_tokens=8, expected="little"))
    assert (record.correct, record.output_tokens, record.prompt_tokens) == (
        True,
        8,
        len(llm.tokenizer.encode("Once upon a time")),
    )
    (record,) = play(llm, one_turn(prompt="Once upon a time", expected="no such text", bucket="other"))
    assert (record.correct, record.bucket, record.finish_reason) == (False, "other", "length")


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (msgspec.structs.replace(one_turn(), concurrency=None), "give --concurrency"),
        (one_turn(cancel_after_tokens=2), "hang up or read slowly"),
        (one_turn(body={"tools": []}), "'tools' needs a server"),
        (one_turn(body={"temperature": -1}), "temperature must be"),
        (one_turn(prompt=[{"role": "user", "content": "x"}]), "no chat template"),
        (one_turn(max_tokens=10**6), "cannot run: .*context length"),
        (Workload(sessions=(), concurrency=1), "no request"),
        (Workload(sessions=(Session(turns=one_turn().sessions[0].turns * 2),), concurrency=1), "several turns"),
    ],
)
def test_what_only_a_server_can_do_is_refused(llm: LLM, workload: Workload, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        play(llm, workload)
