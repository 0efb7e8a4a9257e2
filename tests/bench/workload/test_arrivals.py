"""Arrival processes have the rate and the burstiness that they are named for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.workload.arrivals import MAX_ARRIVALS, parse_arrivals
from forebay.errors import BenchError


def rng(seed: int = 11) -> np.random.Generator:
    return np.random.default_rng(seed)


def kolmogorov_smirnov(values: np.ndarray, cdf: Callable[[Any], Any]) -> float:
    """sqrt(n) times the greatest distance of the sample's distribution from `cdf`; 1.95 is passed with p = 0.001."""
    expected = cdf(np.sort(values))
    n = len(values)
    above = np.arange(1, n + 1) / n - expected
    below = expected - np.arange(n) / n
    return float(math.sqrt(n) * max(above.max(), below.max()))


def test_constant_is_a_metronome() -> None:
    assert parse_arrivals("constant:4").offsets(rng(), requests=5) == [0, 0.25, 0.5, 0.75, 1]
    assert parse_arrivals("constant:4").offsets(rng(), duration_s=1) == [0, 0.25, 0.5, 0.75]


def test_at_once_is_at_once() -> None:
    assert parse_arrivals("at-once").offsets(rng(), requests=3) == [0, 0, 0]


def test_poisson_gaps_are_exponential_with_the_rate_asked_for() -> None:
    gaps = np.diff(parse_arrivals("poisson:5").offsets(rng(), requests=20_000), prepend=0)
    assert abs(gaps.mean() * 5 - 1) < 0.02
    assert abs(gaps.std() / gaps.mean() - 1) < 0.02
    assert kolmogorov_smirnov(gaps, lambda x: 1 - np.exp(-5 * x)) < 1.95


@pytest.mark.parametrize("cv", [0.25, 0.5, 1, 2, 4])
def test_gamma_gaps_have_the_rate_and_coefficient_of_variation_asked_for(cv: float) -> None:
    gaps = np.diff(parse_arrivals(f"gamma:3,{cv}").offsets(rng(), requests=60_000), prepend=0)
    assert abs(gaps.mean() * 3 - 1) < 4 * cv / math.sqrt(60_000)
    assert abs(gaps.std() / gaps.mean() / cv - 1) < 0.03


@pytest.mark.parametrize(
    ("text", "share_until", "total"),
    [
        ("ramp:1..9@1000", lambda t: (t + 8 * t**2 / 2000) / 5000, 5000),
        ("ramp:9..1@1000", lambda t: (9 * t - 8 * t**2 / 2000) / 5000, 5000),
        ("ramp:0..10@1000", lambda t: t**2 / 1e6, 5000),
        ("ramp:4..4@1000", lambda t: t / 1000, 4000),
        ("steps:2,8,5@400", lambda t: np.interp(t, [0, 400, 800, 1200], [0, 800, 4000, 6000]) / 6000, 6000),
    ],
)
def test_changing_rates_follow_their_line_and_end(text: str, share_until: Callable[[Any], Any], total: int) -> None:
    arrivals = parse_arrivals(text)
    times = np.array(arrivals.offsets(rng()))
    assert abs(len(times) - total) < 3.3 * math.sqrt(total)
    assert times.max() < arrivals.end_s
    assert kolmogorov_smirnov(times, share_until) < 1.95


ENDLESS = ["constant:7.5", "poisson:20", "gamma:20,0.5", "gamma:20,3", "ramp:5..40@60", "steps:5,40,1@20"]


@given(text=st.sampled_from(ENDLESS), requests=st.integers(1, 300), duration_s=st.floats(0.01, 50))
def test_offsets_rise_and_keep_both_limits(text: str, requests: int, duration_s: float) -> None:
    times = parse_arrivals(text).offsets(rng(), requests=requests, duration_s=duration_s)
    assert len(times) <= requests
    assert times == sorted(times)
    assert all(0 <= time < duration_s for time in times)
    longer = parse_arrivals(text).offsets(rng(), requests=requests * 2, duration_s=duration_s * 2)
    assert longer[: len(times)] == times  # a longer run begins like a shorter one


def test_the_seed_decides() -> None:
    arrivals = parse_arrivals("poisson:5")
    assert arrivals.offsets(rng(1), requests=9) == arrivals.offsets(rng(1), requests=9)
    assert arrivals.offsets(rng(1), requests=9) != arrivals.offsets(rng(2), requests=9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown kind ''"),
        ("possion:3", "unknown kind 'possion'"),
        ("at-once:3", "unknown kind"),
        ("poisson", "rate '' must be a number"),
        ("poisson:0", "rate '0'"),
        ("poisson:-1", "rate '-1'"),
        ("constant:nan", "rate 'nan'"),
        ("poisson:inf", "rate 'inf'"),
        ("gamma:3", "CV ''"),
        ("gamma:3,0", "CV '0'"),
        ("gamma:3,1e9", "CV '1e9'"),
        ("ramp:3@9", "'3' must be two rates"),
        ("ramp:0..0@9", "one of the two rates"),
        ("ramp:1..2", "seconds after @ ''"),
        ("ramp:1..x@4", "rate 'x'"),
        ("steps:@4", "rate ''"),
        ("steps:1,,2@4", "rate ''"),
        ("steps:1,2@0", "seconds after @ '0'"),
    ],
)
def test_errors_name_the_part(text: str, words: str) -> None:
    with pytest.raises(BenchError) as caught:
        parse_arrivals(text)
    assert str(caught.value).startswith(f"arrivals {text!r}: ")
    assert words in str(caught.value)


@given(st.text("poisnramteg:.,@0123456789-e", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        arrivals = parse_arrivals(text)
    except BenchError:
        return
    assert len(arrivals.offsets(rng(), requests=5)) <= 5


def test_what_never_ends_or_is_too_much_is_refused() -> None:
    for text in ("poisson:3", "at-once"):
        with pytest.raises(BenchError, match="requests"):
            parse_arrivals(text).offsets(rng())
    for text in ("constant:100000", "gamma:100000,2", "steps:100000@1000"):
        with pytest.raises(BenchError, match=f"more than {MAX_ARRIVALS} requests"):
            parse_arrivals(text).offsets(rng(), duration_s=1000)
