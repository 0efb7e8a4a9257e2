"""Arrival times are those of the plan, whatever the server does."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import resource
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.bench.client.load import Endpoint, play, run_load
from forebay.bench.client.pace import Pacer
from forebay.bench.plan import Session
from forebay.bench.record import RequestRecord
from forebay.errors import BenchError
from tests.bench.client.playing import run, turn_of, workload_of
from tests.support.fake_openai import FakeServer, done, fake_server, finish, generation, script, stall, text, usage
from tests.support.server_process import eventually

NS = 1_000_000_000
QUICK = generation(2, ttft_s=0.005, itl_s=0.005)
STALL_S = 0.5

SCRIPTS = {
    "stalling": [QUICK, QUICK, QUICK, QUICK, script(stall(STALL_S), *QUICK["acts"]), QUICK],
    "paced": [generation(5, ttft_s=0.03, itl_s=0.01)],
    "long": [generation(1000, ttft_s=0, itl_s=0.01)],
}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with fake_server(SCRIPTS, "--ttft", "0.005", "--itl", "0.005") as running:
        yield running


def at(at_s: float, key: str, **fields: Any) -> Session:
    return Session(at_s=at_s, turns=(turn_of(key, max_tokens=2, **fields),))


def percent(values: list[float], percentile: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]


def start_of(records: tuple[RequestRecord, ...], at_s: list[float]) -> int:
    """The start of the run, from which every intended moment must be exactly as planned."""
    start_ns = records[0].intended_ns - round(at_s[0] * NS)
    assert [record.intended_ns - start_ns for record in records] == [round(s * NS) for s in at_s]
    return start_ns


CONSTANT = [i / 100 for i in range(200)]
RANDOM = random.Random(1)
POISSON = list(itertools.accumulate(RANDOM.expovariate(100) for _ in range(200)))


@pytest.mark.parametrize("at_s", [CONSTANT, POISSON], ids=["constant", "poisson"])
def test_an_open_loop_keeps_its_rate(server: FakeServer, at_s: list[float]) -> None:
    key = f"open {at_s[1]}"
    records = run(server, *(at(s, key) for s in at_s))
    start_of(records, at_s)
    assert all(record.completed for record in records)
    # the pace of all requests together, so that one pause of this machine at either end does not decide it
    sent_s = [record.sent_ns / NS for record in records]
    assert statistics.linear_regression(at_s, sent_s).slope == pytest.approx(1, rel=0.02)
    came_s = [request["head_ns"] / NS for request in server.requests(key)]
    assert statistics.linear_regression(at_s, came_s).slope == pytest.approx(1, rel=0.02)
    lag_s = [(record.sent_ns - record.intended_ns) / NS for record in records]
    assert min(lag_s) >= 0
    assert percent(lag_s, 50) < 0.005
    assert percent(lag_s, 90) < 0.05


def test_a_stalling_server_delays_no_request_and_hides_none(server: FakeServer) -> None:
    """Coordinated omission: requests that were due in the stall were sent in it, and their latency holds their wait."""
    at_s = [i / 50 for i in range(60)]
    records = run(server, *(at(s, "stalling") for s in at_s))
    start_ns = start_of(records, at_s)
    assert all((record.sent_ns - record.intended_ns) / NS < 0.25 for record in records)
    assert percent([(record.sent_ns - record.intended_ns) / NS for record in records], 50) < 0.005
    waited_s = [(record.token_ns[0] - record.intended_ns) / NS for record in records]
    # the fifth request stalls all: who is due s seconds into the stall waits for the rest of it
    stall_at_s = (records[4].sent_ns - start_ns) / NS
    behind = [(s, w) for s, w in zip(at_s, waited_s, strict=True) if stall_at_s + 0.02 < s < stall_at_s + STALL_S]
    assert len(behind) > 20
    assert all(w > stall_at_s + STALL_S - s for s, w in behind)
    assert sum(w > STALL_S / 2 for w in waited_s) > 10


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_closed_loop_keeps_its_places(server: FakeServer, concurrency: int) -> None:
    key = f"closed {concurrency}"
    turns = 2  # of each session
    records = run(server, *[Session(turns=(turn_of(key, max_tokens=2),) * turns)] * 12, concurrency=concurrency)
    assert [record.index for record in records] == list(range(12 * turns))
    assert all(record.completed for record in records)
    assert server.stamps()["most_open"][key] == concurrency
    first = {record.session: record for record in records if record.turn == 0}
    ends = {record.end_ns for record in records if record.turn == turns - 1}
    start_ns = first[0].intended_ns
    assert [first[i].intended_ns for i in range(concurrency)] == [start_ns] * concurrency
    later = [first[i].intended_ns for i in range(concurrency, 12)]
    # the end of a response, which comes right after its finish reason; not the moment the loop noticed
    assert all(
        end_ns <= free_ns < end_ns + NS // 20 for end_ns, free_ns in zip(sorted(ends), sorted(later), strict=False)
    )
    assert len(set(later)) == len(later)
    events = sorted([(r.intended_ns, 1) for r in first.values()] + [(end_ns, -1) for end_ns in ends])
    assert max(itertools.accumulate(change for _, change in events)) == concurrency


def test_a_place_waits_for_a_session_that_is_due_later(server: FakeServer) -> None:
    early, late = run(server, at(0.0, "any"), at(0.3, "any"), concurrency=1)
    assert late.intended_ns == early.intended_ns + 3 * NS // 10


def test_a_start_that_is_given_is_the_start(server: FakeServer) -> None:
    start_ns = time.monotonic_ns() + NS // 5
    endpoint = Endpoint(base_url=server.url, model="m")
    (record,) = run_load(workload_of(at(0.1, "any")), endpoint, start_ns=start_ns)
    assert record.intended_ns == start_ns + NS // 10
    assert record.sent_ns >= record.intended_ns


class Watcher:
    """Notes what it is told. `flowing`: more than 20 gaps."""

    def __init__(self) -> None:
        self.was_sent: list[tuple[int, int]] = []
        self.ttft_s: list[float] = []
        self.gaps: list[tuple[float, int]] = []
        self.records: list[RequestRecord] = []
        self.flowing = asyncio.Event()

    def sent(self, session: int, turn: int) -> None:
        self.was_sent.append((session, turn))

    def first_token(self, ttft_s: float) -> None:
        self.ttft_s.append(ttft_s)

    def tokens(self, gap_s: float, count: int) -> None:
        self.gaps.append((gap_s, count))
        if len(self.gaps) > 20:
            self.flowing.set()

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)


def test_an_observer_sees_what_the_records_say(server: FakeServer) -> None:
    watcher = Watcher()
    records = run(server, turn_of("paced"), turn_of("paced"), concurrency=1, observer=watcher)
    assert watcher.was_sent == [(0, 0), (1, 0)]
    assert watcher.records == list(records)
    assert watcher.ttft_s == [(record.token_ns[0] - record.intended_ns) / NS for record in records]
    gaps = [(b - a) / NS for record in records for a, b in itertools.pairwise(record.token_ns)]
    assert watcher.gaps == [(gap, 1) for gap in gaps]


def test_cancelling_hangs_up_and_loses_no_record(server: FakeServer) -> None:
    watcher = Watcher()

    async def main() -> None:
        workload = workload_of(turn_of("quick", max_tokens=2), turn_of("long"), turn_of("long"), at(60.0, "never"))
        running = asyncio.ensure_future(play(workload, Endpoint(base_url=server.url, model="m"), watcher))
        await watcher.flowing.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 5
    assert [record.bucket for record in watcher.records] == ["quick"]
    assert eventually(lambda: all(request["gone_ns"] for request in server.requests("long")))
    assert len(server.requests("long")) == 2
    assert server.requests("never") == []
    assert not [thread for thread in threading.enumerate() if thread.name == "forebay-bench-pacer"]


class Interrupter(Watcher):
    """Presses Ctrl-C once the first answer has ended."""

    def ended(self, record: RequestRecord) -> None:
        super().ended(record)
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_run(server: FakeServer) -> None:
    watcher = Interrupter()
    workload = workload_of(turn_of("interrupted", max_tokens=2), turn_of("long"))
    with pytest.raises(KeyboardInterrupt):
        run_load(workload, Endpoint(base_url=server.url, model="m"), watcher)
    assert [record.bucket for record in watcher.records] == ["interrupted"]


class CollectorWatcher(Watcher):
    def sent(self, session: int, turn: int) -> None:
        assert not gc.isenabled()
        super().sent(session, turn)


def test_the_process_is_left_as_it_was(server: FakeServer) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    watcher = CollectorWatcher()
    run(server, turn_of("any", max_tokens=2), observer=watcher)
    assert watcher.was_sent == [(0, 0)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


@pytest.mark.parametrize("concurrency", [None, 1])
def test_a_body_that_is_no_json_is_named(server: FakeServer, concurrency: int | None) -> None:
    bad = turn_of("any", body={"stop": object()})
    with pytest.raises(BenchError, match="JSON"):
        run(server, turn_of("any", max_tokens=2), turn_of("any", max_tokens=2), bad, concurrency=concurrency)


def test_many_at_once(server: FakeServer) -> None:
    """More connections than a shell allows files by default are no failures of the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        records = run(server, *[turn_of("crowd", max_tokens=2)] * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(record.completed for record in records)


def test_a_pacer_wakes_in_order_and_never_early() -> None:
    async def main() -> list[tuple[int, int]]:
        start_ns = time.monotonic_ns() + NS // 10  # all are waiting by then
        woken: list[tuple[int, int]] = []

        async def wait(number: int) -> None:
            when_ns = start_ns + number * 3_700_000
            await pacer.until(when_ns)
            woken.append((number, time.monotonic_ns() - when_ns))

        with Pacer() as pacer:
            await asyncio.gather(*(wait(number) for number in (5, 3, 30, 0, 1, 12)))
        return woken

    woken = asyncio.run(main())
    assert [number for number, _ in woken] == [0, 1, 3, 5, 12, 30]
    assert min(late_ns for _, late_ns in woken) >= 0
    assert statistics.median(late_ns for _, late_ns in woken) < 2_000_000


def test_a_place_is_free_when_the_response_has_ended_not_when_the_answer_has() -> None:
    late_usage = script(text(1), finish(), usage(1, after_s=0.2), done())
    with fake_server({"late": late_usage}) as server:
        records = run(server, turn_of("late"), turn_of("late"), concurrency=1)
        (first, _) = server.requests("late")
        last_byte_ns = next(before for kind, before, _ in first["sent"] if kind == "done")
    assert records[1].intended_ns >= last_byte_ns  # the wait for usage is no latency of the next request
    assert records[0].end_ns < last_byte_ns - 100_000_000
