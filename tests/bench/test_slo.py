from __future__ import annotations

import pytest

from forebay.bench.slo import SLO, parse_slo
from forebay.errors import BenchError
from forebay.observe.latency import RequestTimes

MS = 1_000_000


def times(*token_ms: int, end_ms: int) -> RequestTimes:
    return RequestTimes.between(0, [token * MS for token in token_ms], end_ms * MS)


def test_bounds_are_read_in_any_order_and_unit() -> None:
    slo = parse_slo("e2e:5s, itl:50ms,ttft:500ms,tpot:39.5us")
    assert slo.limits_ns == (("ttft", 500 * MS), ("itl", 50 * MS), ("tpot", 39_500), ("e2e", 5000 * MS))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("ttft:500ms,itl:50ms,tpot:40ms,e2e:5s", "ttft:500ms,itl:50ms,tpot:40ms,e2e:5s"),
        ("e2e:1500ms", "e2e:1.5s"),
        ("ttft:0.5ms", "ttft:500us"),
        ("ttft:1500.25us", "ttft:1500.25us"),
        ("itl:0.001us", "itl:0.001us"),
        ("e2e:999999999.999999999s", "e2e:999999999.999999999s"),
        ("e2e:60.0s", "e2e:60s"),
    ],
)
def test_text_of_an_slo_is_read_back_to_the_same(text: str, written: str) -> None:
    assert str(parse_slo(text)) == written
    assert parse_slo(written) == parse_slo(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not a name"),
        ("ttft", "'ttft' is not a name, a colon"),
        ("ttft:500ms,", "'' is not a name"),
        ("tfft:500ms", "'tfft:500ms' names no latency we know; known are ttft, itl, tpot, e2e"),
        ("ttft:500", "'ttft:500' has no unit we know; known are us, ms, s"),
        ("ttft:500min", "known are us, ms, s"),
        ("ttft:-5ms", "'ttft:-5ms' is not a name"),
        ("ttft:1e99s", "is not a name"),
        ("ttft:0ms", "nothing keeps"),
        ("ttft:1ms,ttft:2ms", "ttft stands twice"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(BenchError) as error:
        parse_slo(text)
    assert words in error.value.message


def test_a_bound_that_is_met_exactly_holds() -> None:
    seen = times(500, 550, 600, end_ms=700)
    assert parse_slo("ttft:500ms,itl:50ms,tpot:50ms,e2e:700ms").holds(seen)
    for broken in ("ttft:499.999ms", "itl:49.999ms", "tpot:49.999ms", "e2e:699.999ms"):
        assert not parse_slo(broken).holds(seen)


def test_itl_is_judged_at_the_95th_percentile_of_the_request() -> None:
    """Of 41 gaps, positions 0 to 40: p95 is at 38, so two late ones are let pass and three are not."""
    usual = [10 * index for index in range(39)]
    two_late = times(*usual, *(usual[-1] + late for late in (10, 110, 210)), end_ms=10_000)
    three_late = times(*usual, *(usual[-1] + late for late in (100, 200, 300)), end_ms=10_000)
    assert len(two_late.itl) == len(three_late.itl) == 41
    assert parse_slo("itl:10ms").holds(two_late)
    assert not parse_slo("itl:10ms").holds(three_late)


def test_a_latency_that_does_not_exist_holds() -> None:
    slo = parse_slo("ttft:1us,itl:1us,tpot:1us,e2e:1s")
    assert slo.holds(times(end_ms=900))
    assert parse_slo("itl:1us,tpot:1us").holds(times(800, end_ms=900))
    assert SLO(()).holds(times(1, 2, end_ms=3))
