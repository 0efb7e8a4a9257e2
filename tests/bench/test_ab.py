"""Two servers in turns."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
import psutil
import pytest

from forebay.bench.ab import Compared, compare_files, compare_served, headline_of, order_of, same_answers
from forebay.bench.client.observer import NoObserver
from forebay.bench.comparison import Comparison, MetricComparison
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import Result, read_result, write_result
from forebay.bench.served import Server, served
from forebay.bench.server_process import ServerProcess
from forebay.core.request import WaitReason
from forebay.errors import BenchError
from forebay.observe.recorder import read_record
from tests.bench.profiles import closed_loop, tiny_profile


def record(index: int, digest: str | None, **fields: object) -> RequestRecord:
    times = {"intended_ns": 0, "sent_ns": 0, "end_ns": 1, "planned_output_tokens": 1}
    return RequestRecord(**{**times, "index": index, "output_digest": digest, **fields})


def test_who_goes_first_alternates() -> None:
    assert ["".join(order_of(pair)) for pair in range(4)] == ["AB", "BA", "AB", "BA"]


def test_answers_are_compared_where_both_are_whole() -> None:
    a = [record(0, "x"), record(1, "y"), record(2, "z"), record(3, "w", cancelled=True), record(4, None)]
    failed = Failure(kind=FailureKind.CUT)
    b = [record(0, "x"), record(1, "other"), record(2, "z", failure=failed), record(3, "w"), record(4, None)]
    found = same_answers(a, b)
    assert (found.same, found.of) == (1, 2)


def test_the_headline_is_throughput_where_requests_follow_each_other() -> None:
    metrics = [
        MetricComparison(name=name, a=1.0, b=1.0, higher_is_better=True, verdict="not comparable")
        for name in ("request_rate", "e2e_s.p95", "goodput", "output_token_rate")
    ]
    both = Comparison(kind="serve", a="a", b="b", interleaved=True, metrics=metrics)
    assert headline_of(both, closed_loop=True).name == "output_token_rate"
    assert headline_of(both, closed_loop=False).name == "goodput"
    no_slo = msgspec.structs.replace(both, metrics=[m for m in metrics if m.name != "goodput"])
    assert headline_of(no_slo, closed_loop=False).name == "e2e_s.p95"


class Looking(NoObserver):
    """Notes which of the two servers are stopped whenever a request is answered."""

    seen: ClassVar[list[tuple[str, list[bool]]]] = []

    def __init__(self, words: str) -> None:
        self._side = words.split(", ")[1][0]

    def first_token(self, ttft_s: float) -> None:
        servers = sorted(psutil.Process().children(), key=lambda process: process.create_time())[-2:]
        self.seen.append((self._side, [process.status() == psutil.STATUS_STOPPED for process in servers]))


@pytest.fixture(scope="module")
def identical() -> Compared:
    return compare_served(
        tiny_profile(), tiny_profile(), closed_loop(), names=("one", "two"), pairs=2, warmup=1,
        watch=lambda words, requests: Looking(words),
    )  # fmt: skip


def test_two_identical_profiles_give_the_same_answers_and_no_verdict(identical: Compared) -> None:
    assert (identical.answers.same, identical.answers.of) == (16, 16)
    assert identical.headline.name == "output_token_rate"
    assert identical.headline.verdict == "not comparable"  # two pairs are no evidence
    assert identical.headline.ratio is not None
    assert identical.comparison.interleaved


def test_the_document_has_pairs_and_both_sides(identical: Compared) -> None:
    document = msgspec.json.decode(msgspec.json.encode(identical.document), type=Result)
    assert (document.kind, document.label) == ("compare", "one and two")
    assert [(row["pair"], row["order"]) for row in document.rows] == [(0, "AB"), (1, "BA")]
    assert all(row["a_completed"] == row["b_completed"] == row["same_answers"] == 8 for row in document.rows)
    assert [(run.values["pair"], run.values["side"]) for run in document.runs] == [(0, 0), (0, 1), (1, 1), (1, 0)]
    assert [summary.completed for summary in document.buckets.values()] == [16, 16]
    assert list(document.buckets) == ["A: one", "B: two"]
    assert document.target["a"]["profile"] == document.target["b"]["profile"]
    assert document.target["comparison"]["metrics"][0]["name"] == "output_token_rate"


def test_files_are_compared_like_sides(identical: Compared, tmp_path: Path) -> None:
    sides = []
    for side, run in ((0, "a.json"), (1, "b.json.gz")):
        runs = [one for one in identical.document.runs if one.values["side"] == side]
        name, summary = list(identical.document.buckets.items())[side]
        changes = {"kind": "serve", "label": name, "runs": runs, "rows": [], "buckets": {}, "summary": summary}
        sides.append(tmp_path / run)
        write_result(msgspec.structs.replace(identical.document, **changes), sides[-1])
    found = compare_files(*sides)
    assert found.headline == identical.headline
    assert found.answers == identical.answers
    assert list(found.document.buckets) == ["A: A: one", "B: B: two"]
    a = read_result(sides[0])
    one, *others = a.runs[0].records
    wrong = msgspec.structs.replace(one, output_digest="another")
    first = msgspec.structs.replace(a.runs[0], records=(wrong, *others))
    said = {"answer_class": "one/class"}
    write_result(msgspec.structs.replace(a, runs=[first, *a.runs[1:]], target=said), sides[0])
    assert not any("answers differ" in warning for warning in compare_files(*sides).comparison.warnings)
    write_result(msgspec.structs.replace(read_result(sides[1]), target=said), sides[1])
    found = compare_files(*sides)
    assert found.answers.same == found.answers.of - 1
    assert any("1 of 16 answers differ although" in warning for warning in found.comparison.warnings)
    changed = msgspec.structs.replace(a, workload={"digest": "another"})
    write_result(changed, sides[0])
    other = compare_files(*sides)
    assert other.answers.of == 0  # not the same requests
    assert any("different workloads" in warning for warning in other.comparison.warnings)


def test_no_prompt_comes_twice(identical: Compared) -> None:
    """Not from the warm-up, nor from an earlier pair: the prefix cache of neither would hide what is measured."""
    assert [summary.cached_tokens for summary in identical.document.buckets.values()] == [0, 0]


UNEVEN = closed_loop(requests=24, concurrency=4, input="8..24", output="lognormal:3,1.5,1..24")


def test_static_batching_says_the_same() -> None:
    found = compare_served(
        tiny_profile(), tiny_profile(batching="static"), UNEVEN, names=("continuous", "static"), pairs=2, warmup=2
    )
    assert (found.answers.same, found.answers.of) == (48, 48)
    assert found.document.target["b"]["settings"]["scheduler.batching"] == "static"


def test_static_batching_makes_requests_wait_for_the_batch() -> None:
    """What makes it slower. Counted in the servers' records: on a busy machine the clock says nothing."""

    def waits(batching: str) -> int:
        with served(tiny_profile(batching=batching)) as server:
            workloads, _ = server.planned(UNEVEN, runs=1, warmup=0)
            server.measure(workloads)  # which waits for the record of all of it
            assert server.record is not None
            steps = read_record(server.record).steps
        return sum(skipped.reason == WaitReason.BATCH for step in steps for skipped in step.skipped)

    assert waits("continuous") == 0
    assert waits("static") >= 5


@pytest.mark.usefixtures("identical")
def test_the_one_that_is_not_measured_is_paused() -> None:
    assert len(Looking.seen) == 2 * 2 * 8
    assert {(side, *stopped) for side, stopped in Looking.seen} == {("A", False, True), ("B", True, False)}


def test_a_server_that_dies_meanwhile_is_a_clear_error() -> None:
    class Killing(NoObserver):
        def sent(self, session: int, turn: int) -> None:
            assert server.process is not None
            psutil.Process(server.process.pid).kill()

    with served(tiny_profile(), name="mortal") as server:
        (workload,), _ = server.planned(closed_loop(), runs=1, warmup=0)
        with pytest.raises(BenchError, match="the server was killed by SIGKILL during the measurement"):
            server.run_once(workload, Killing())


def test_servers_that_run_already_are_left_running(tiny_server: ServerProcess) -> None:
    there = Server(url=tiny_server.url, tokenizer=tiny_profile().model.source)
    found = compare_served(there, there, closed_loop(requests=2), pairs=1, warmup=0)
    assert found.document.target["a"]["url"] == tiny_server.url
    assert (found.answers.same, found.answers.of) == (2, 2)
    tiny_server.check()


def test_wrong_arguments() -> None:
    with pytest.raises(BenchError, match="pairs must be at least 1"):
        compare_served(tiny_profile(), tiny_profile(), closed_loop(), pairs=0)
    with pytest.raises(BenchError, match="concurrency must be from 1"):
        compare_served(tiny_profile(), tiny_profile(), closed_loop(concurrency=0))
    with pytest.raises(BenchError, match="base_url"):
        compare_served(tiny_profile(), Server(url="http://x y"), closed_loop())
