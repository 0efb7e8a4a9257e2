from __future__ import annotations

from forebay.observe.latency import RequestTimes
from tests.observe.test_metrics import LIFE, MS, life


def test_times_are_distances_between_events() -> None:
    times = RequestTimes.of(LIFE)
    assert (times.queue, times.ttft, times.itl, times.e2e) == (0.010, 0.030, (0.010, 0.020), 0.061)
    assert times.tpot == 0.015


def test_times_of_a_request_that_was_admitted_twice_or_never() -> None:
    again = life(("received", 0), ("queued", 1), ("admitted", 5), ("preempted", 6), ("admitted", 50), ("token", 60))
    assert RequestTimes.of(again).queue == 0.004
    refused = RequestTimes.of(life(("received", 0), ("tokenized", 1)))
    assert refused == RequestTimes(queue=None, ttft=None, itl=(), tpot=None, e2e=None)
    assert RequestTimes.of(life(("received", 0), ("token", 1))).tpot is None


def test_tokens_that_arrive_together_have_no_gap_between_them() -> None:
    times = RequestTimes.between(0, [10 * MS, 10 * MS, 30 * MS], 40 * MS)
    assert (times.ttft, times.itl, times.tpot, times.e2e) == (0.010, (0.0, 0.020), 0.010, 0.040)
