"""Known answers: every figure here is worked out by hand from the times beside it."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.bench.metrics import best_share, by_bucket, server_records, shifted, summarize, times_of
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import Distribution
from forebay.bench.slo import parse_slo
from forebay.core.messages import Event
from forebay.errors import BenchError
from forebay.observe.latency import RequestTimes
from forebay.observe.recorder import RequestLine

MS = 1_000_000


def record(
    intended: int, tokens: tuple[int, ...], end: int, counts: tuple[int, ...] | None = None, **changes: Any
) -> RequestRecord:
    """Times in ms; sent 1 ms after it was intended; 10 prompt tokens, 4 of them cached."""
    counts = (1,) * len(tokens) if counts is None else counts
    values: dict[str, Any] = {
        "index": 0,
        "intended_ns": intended * MS,
        "sent_ns": (intended + 1) * MS,
        "token_ns": tuple(token * MS for token in tokens),
        "token_counts": counts,
        "end_ns": end * MS,
        "planned_output_tokens": sum(counts),
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": sum(counts),
        "finish_reason": "length",
    }
    return RequestRecord(**{**values, **changes})


def line(*facts: tuple[str, int], reason: str = "length", **changes: Any) -> RequestLine:
    """Times in ms; 10 prompt tokens, 4 of them cached."""
    values: dict[str, Any] = {
        "request_id": "cmpl-1",
        "child_index": 0,
        "reason": reason,
        "num_prompt_tokens": 10,
        "num_cached_tokens": 4,
        "events": tuple(Event(kind=kind, t_ns=ms * MS) for kind, ms in facts),
    }
    return RequestLine(**{**values, **changes})


def sure(found: Distribution | None) -> Distribution:
    assert found is not None
    return found


# 100: TTFT 500 ms; gaps 250, 750; E2E 2000
THREE = record(100, (600, 850, 1600), 2100)
# TTFT 1000 ms, E2E 1000: one token and no gap
ONE = record(1100, (2100,), 2100)
FAILED = record(0, (10,), 9100, failure=Failure(kind=FailureKind.CUT), finish_reason=None)
CANCELLED = record(200, (300, 310), 320, cancelled=True, prompt_tokens=None, cached_tokens=None,
                   planned_prompt_tokens=7)  # fmt: skip
REFUSED = record(500, (), 510, failure=Failure(kind=FailureKind.OVERLOADED, http_status=429), prompt_tokens=None,
                 planned_prompt_tokens=1000)  # fmt: skip


def test_times_count_from_the_intended_send() -> None:
    times = times_of(THREE)
    assert times == RequestTimes(queue=None, ttft=0.5, itl=(0.25, 0.75), tpot=0.5, e2e=2.0)
    assert times_of(ONE) == RequestTimes(queue=None, ttft=1.0, itl=(), tpot=None, e2e=1.0)


def test_a_chunk_of_several_tokens_is_one_gap_and_gaps_of_0() -> None:
    times = times_of(record(0, (500, 1000, 2000), 2000, counts=(2, 3, 1)))
    assert times.itl == (0.0, 0.5, 0.0, 0.0, 1.0)
    assert (times.ttft, times.tpot, times.e2e) == (0.5, 0.3, 2.0)
    later = times_of(record(0, (500, 1000), 2000, counts=(0, 2)))  # a chunk that bore no token is none
    assert (later.ttft, later.itl) == (1.0, (0.0,))


@pytest.mark.parametrize("counts", [(1,), (1, -1), (1, 2**60)])
def test_a_damaged_record_is_named(counts: tuple[int, ...]) -> None:
    with pytest.raises(BenchError, match="record 3: token_counts"):
        times_of(record(0, (1, 2), 3, counts=counts, index=3))


def test_no_requests_have_no_latencies_and_rates_of_0() -> None:
    for runs in ([], [[]], [[], []]):
        found = summarize(runs, slo=parse_slo("ttft:1s"))
        assert (found.duration_s, found.requests, found.completed) == (0.0, 0, 0)
        assert (found.request_rate, found.output_token_rate, found.total_token_rate, found.goodput) == (0, 0, 0, 0)
        assert (found.ttft_s, found.itl_s, found.tpot_s, found.e2e_s, found.send_lag_s) == (None,) * 5
        assert (found.slo_attained, found.correct, found.failures, found.intervals) == (None, None, {}, {})


def test_two_requests_by_hand() -> None:
    """From 100 ms to 2100 ms: 2 s, 2 requests, 4 tokens out, 20 in."""
    found = summarize([[THREE, ONE]], slo=parse_slo("ttft:500ms"))
    assert found.boundary == "client_send"
    assert (found.duration_s, found.requests, found.completed, found.cancelled) == (2.0, 2, 2, 0)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (20, 8, 4)
    assert (found.request_rate, found.output_token_rate, found.total_token_rate) == (1.0, 2.0, 12.0)
    assert (found.goodput, found.slo_attained) == (0.5, 0.5)
    assert found.counted_by == {"usage": 2}
    ttft, itl, tpot, e2e, lag = map(sure, (found.ttft_s, found.itl_s, found.tpot_s, found.e2e_s, found.send_lag_s))
    assert (ttft.count, ttft.mean, ttft.min, ttft.p50, ttft.max) == (2, 0.75, 0.5, 0.75, 1.0)
    assert (itl.count, itl.mean, itl.p50, itl.max) == (2, 0.5, 0.5, 0.75)
    assert (tpot.count, tpot.mean) == (1, 0.5)
    assert (e2e.count, e2e.mean) == (2, 1.5)
    assert (lag.min, lag.max) == (0.001, 0.001)
    assert found.queue_s is None
    assert found.intervals == {}


def test_what_failed_or_was_cancelled_is_counted_but_has_no_latency() -> None:
    """The failed one ends last, at 9100 ms, and began first, at 0: it makes the run longer and nothing else."""
    slo = parse_slo("ttft:500ms")
    alone = summarize([[THREE, ONE]])
    found = summarize([[THREE, FAILED, CANCELLED, ONE, REFUSED]], slo=slo)
    assert (found.requests, found.completed, found.cancelled) == (5, 2, 1)
    assert found.failures == {"overloaded": 1, "cut": 1}
    assert found.duration_s == 9.1
    assert (found.ttft_s, found.itl_s, found.tpot_s) == (alone.ttft_s, alone.itl_s, alone.tpot_s)
    assert (found.e2e_s, found.send_lag_s) == (alone.e2e_s, alone.send_lag_s)
    # tokens: those of THREE and ONE, and of the cancelled one 2, after a prompt of 7 that was planned
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (27, 8, 6)
    assert found.request_rate == 2 / 9.1
    assert found.output_token_rate == 6 / 9.1
    assert found.goodput == 1 / 9.1
    assert found.slo_attained == 0.25  # one of four: two failures are misses, the cancelled one is not asked
    assert found.counted_by == {"usage": 2}


def test_duration_counts_from_the_intended_send_and_not_from_the_first_byte() -> None:
    """A client that sends a second late has taken that second."""
    late = record(0, (1500,), 2000, sent_ns=1000 * MS)
    assert summarize([[late]]).duration_s == 2.0
    assert summarize([[late]]).request_rate == 0.5


def test_durations_of_runs_add_up_and_not_the_time_between_them() -> None:
    """Runs of 2 s and 6 s, an hour apart: 4 requests in 8 s."""
    hour = 3_600_000
    second = [record(hour, (hour + 500,), hour + 1000), record(hour + 1000, (hour + 2000,), hour + 6000)]
    found = summarize([[THREE, ONE], second])
    assert (found.duration_s, found.requests, found.request_rate) == (8.0, 4, 0.5)
    assert found.output_token_rate == 0.75
    assert (sure(found.ttft_s).count, found.ttft_s.mean) == (4, 0.75)
    assert found.intervals == {}


def test_rates_have_intervals_from_three_runs_on() -> None:
    """Runs of 2 s with 1, 2 and 3 requests: 0.5, 1 and 1.5 a second; t is 4.3027, so 1 -+ 4.3027 * 0.5 / sqrt(3)."""
    runs = [[record(0, (1000,), 2000)] * count for count in (1, 2, 3)]
    found = summarize(runs, slo=parse_slo("ttft:1s"))
    assert found.request_rate == 1.0
    assert set(found.intervals) == {"request_rate", "output_token_rate", "total_token_rate", "goodput"}
    assert found.intervals["request_rate"] == pytest.approx((0.0, 1 + 1.24208), abs=1e-4)  # no rate is below 0
    assert found.intervals["total_token_rate"] == pytest.approx((0.0, 11 + 11 * 1.24208), abs=1e-3)
    assert "goodput" not in summarize(runs).intervals


def test_answers_that_were_checked() -> None:
    marks = (True, False, True, None, True)
    found = summarize([[record(0, (1,), 2, correct=mark, counted_by="chunks" if mark else "spread") for mark in marks]])
    assert found.correct == 0.75
    assert found.counted_by == {"chunks": 3, "spread": 2}


def test_rates_of_buckets_add_up() -> None:
    short = record(0, (500,), 1000, bucket="short")
    long = record(0, (500, 1000), 4000, bucket="long")
    broken = record(0, (), 100, bucket="broken", failure=Failure(kind=FailureKind.CONNECT))
    runs = [[short, long, short], [broken, short]]  # 4 s and 1 s
    found, whole = by_bucket(runs), summarize(runs)
    assert list(found) == ["short", "long", "broken"]
    assert {name: one.duration_s for name, one in found.items()} == {"short": 5.0, "long": 5.0, "broken": 5.0}
    assert {name: one.request_rate for name, one in found.items()} == {"short": 0.6, "long": 0.2, "broken": 0.0}
    assert (whole.request_rate, whole.output_token_rate) == (0.8, 1.0)
    assert found["broken"].failures == {"connect": 1}
    assert found["broken"].ttft_s is None
    assert (sure(found["long"].e2e_s).count, found["long"].e2e_s.mean) == (1, 4.0)


LIFE = (("received", 0), ("tokenized", 1), ("queued", 2), ("admitted", 12), ("chunk", 12), ("token", 30),
        ("token", 40), ("token", 60), ("finished", 61))  # fmt: skip


def test_the_same_life_is_the_same_from_both_sides() -> None:
    """With the boundary at the same place, events and a client's record give the same latencies."""
    (served,) = server_records([line(*LIFE)])
    seen = record(0, (30, 40, 60), 61)
    of_events = RequestTimes.of(line(*LIFE).events)
    assert times_of(served) == of_events
    assert of_events == RequestTimes(queue=0.010, ttft=0.030, itl=(0.010, 0.020), tpot=0.015, e2e=0.061)
    client = times_of(seen)
    assert (client.ttft, client.itl, client.tpot, client.e2e) == (0.030, (0.010, 0.020), 0.015, 0.061)
    ours, theirs = summarize([[served]], boundary="server_receive"), summarize([[seen]])
    assert (ours.ttft_s, ours.itl_s, ours.e2e_s) == (theirs.ttft_s, theirs.itl_s, theirs.e2e_s)
    assert (ours.duration_s, ours.prompt_tokens, ours.cached_tokens, ours.output_tokens) == (0.061, 10, 4, 3)
    assert (sure(ours.queue_s).count, ours.queue_s.mean) == (1, 0.010)
    assert ours.send_lag_s is None


def test_a_preempted_request_waited_once_and_its_gap_is_long() -> None:
    (served,) = server_records([
        line(("received", 0), ("queued", 1), ("admitted", 5), ("token", 10), ("preempted", 11), ("admitted", 500),
             ("chunk", 500), ("token", 510), ("finished", 510)),
    ])  # fmt: skip
    times = times_of(served)
    assert (times.queue, times.ttft, times.itl) == (0.004, 0.010, (0.5,))


def test_how_completions_end_at_the_server() -> None:
    begun, never = LIFE[:6], LIFE[:3]
    lines = [
        line(*LIFE, reason="stop"),
        line(*begun, reason="aborted"),
        line(*never, reason="abort"),
        line(*never, reason="overloaded"),
        line(*never, reason="context_length"),
        line(*begun, reason="numerics"),
        line(*never, reason="unavailable"),
        line(reason="unavailable"),  # refused before it had any event
    ]
    found = server_records(lines)
    kinds = [None if one.failure is None else one.failure.kind for one in found]
    assert kinds == [None, None, None, "overloaded", "client_error", "stream_error", "server_error"]
    assert [one.cancelled for one in found] == [False, True, True, False, False, False, False]
    assert [one.end_ns // MS for one in found] == [61, 30, 2, 2, 2, 30, 2]
    assert [one.index for one in found] == list(range(7))
    summary = summarize([found], boundary="server_receive")
    assert (summary.requests, summary.completed, summary.cancelled) == (7, 1, 2)
    assert sum(summary.failures.values()) == 4
    assert sure(summary.queue_s).count == 1


def test_a_shifted_record_has_the_same_latencies() -> None:
    whole = record(100, (600, 850), 2100, headers_ns=590 * MS)
    moved = shifted(whole, 7)
    assert (moved.intended_ns, moved.sent_ns, moved.headers_ns, moved.end_ns) == (
        100 * MS + 7,
        101 * MS + 7,
        590 * MS + 7,
        2100 * MS + 7,
    )
    assert moved.token_ns == (600 * MS + 7, 850 * MS + 7)
    assert times_of(moved) == times_of(whole)
    assert shifted(moved, -7) == whole
    (served,) = server_records([line(*LIFE)])
    assert shifted(served, 5).queue_s == served.queue_s


def test_intervals_come_from_the_seed() -> None:
    records = [record(0, (10 + index * index, 100 + 3 * index), 200 + index) for index in range(20)]
    first, again, other = (summarize([records], seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.ttft_s is not None
    assert other.ttft_s is not None
    assert first.ttft_s.mean == other.ttft_s.mean
    assert first.ttft_s.intervals != other.ttft_s.intervals


def test_the_best_share_is_that_of_requests_which_met_no_other_one() -> None:
    slo = parse_slo("e2e:100ms")

    def of(*spans: tuple[int, int], **changes: Any) -> list[RequestRecord]:
        return [record(begin, (end,), end, **changes) for begin, end in spans]

    apart = [(1000 * i, 1000 * i + (80 if i < 3 else 120)) for i in range(8)]
    assert best_share(of(*apart), slo) == 3 / 8  # nobody met anybody: that is what there is
    crowd = of((10_000, 10_050), (10_040, 10_090), (10_090, 10_100))  # the last one begins when the others have ended
    assert best_share(of(*apart) + crowd[:2], slo) == pytest.approx(0.6943, abs=1e-4)  # Wilson's bound of 3 of 8
    assert best_share(of(*apart[:3]) + crowd, slo) == 1.0  # too few to say
    assert best_share(crowd, slo) == 1.0
    cancelled = of((20_000, 20_050), (20_010, 20_060), cancelled=True)
    assert best_share(of(*apart) + cancelled[:1], slo) == 3 / 8
    assert best_share(of(*apart[:2], (3000, 9000)) + cancelled, slo) == 2 / 3  # those that were cancelled met
    failed = of(*apart, failure=Failure(kind=FailureKind.SERVER_ERROR))
    assert best_share(failed, slo) == 0.0
    assert best_share(failed[:4] + of(*apart[4:]), slo) == 0.0  # four fail, four are too slow
    assert best_share([], slo) == 0.0
