"""Length distributions: what is read, what is drawn, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.workload.lengths import MOST, Lengths, PairLengths, parse_lengths
from forebay.errors import BenchError

FORMS = ["256", "64..512", "lognormal:256,0.6", "lognormal:300,1.2,16..1024", "lognormal:50,0", " 7 ", "9..9"]


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("text", FORMS)
def test_drawn_lengths_have_the_mean_that_is_promised(text: str) -> None:
    lengths = parse_lengths(text, "input")
    drawn = np.array(lengths.draw(rng(), 40_000))
    assert lengths.low <= drawn.min() <= drawn.max() <= lengths.high
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - lengths.mean()) < 4 * error + 0.02


def test_every_length_of_a_range_is_equally_likely() -> None:
    counts = np.bincount(parse_lengths("3..12", "input").draw(rng(), 20_000), minlength=13)
    assert counts[:3].sum() == 0
    assert (((counts[3:] - 2000) ** 2) / 2000).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001


def test_a_lognormal_has_its_median_and_sigma() -> None:
    logs = np.log(parse_lengths("lognormal:4000,0.6", "input").draw(rng(), 40_000))
    assert abs(np.median(logs) - np.log(4000)) < 0.02
    assert abs(logs.std() - 0.6) < 0.01


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is no length"),
        ("0", "must rise and lie between 1"),
        ("-4", "'-4' is no length"),
        ("12.5", "is no length"),
        ("5..4", "must rise"),
        ("1..", "is no length"),
        (f"{MOST + 1}", f"between 1 and {MOST}"),
        ("9" * 5000, "is no length"),
        ("normal:3,4", "unknown distribution 'normal'"),
        ("lognormal:256", "needs a median and a sigma"),
        ("lognormal:256,0.6,1..9,4", "needs a median and a sigma"),
        ("lognormal:abc,0.6", "median 'abc' must be a number from 1"),
        ("lognormal:256,nan", "sigma 'nan' must be a number from 0 to 5"),
        ("lognormal:256,inf", "sigma 'inf'"),
        ("lognormal:0.1,1", "median '0.1'"),
        ("lognormal:256,0.6,9", None),
    ],
)
def test_errors_name_the_field_and_the_part(text: str, words: str | None) -> None:
    if words is None:
        assert parse_lengths(text, "output").high == 9
        return
    with pytest.raises(BenchError, match="output ") as caught:
        parse_lengths(text, "output")
    assert words in str(caught.value)


@given(st.text("0123456789.,:lognrma-e ", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        lengths = parse_lengths(text, "input")
    except BenchError:
        return
    assert 1 <= lengths.low <= min(lengths.draw(rng(), 20)) <= lengths.high <= MOST


@given(
    median=st.integers(1, 3000),
    sigma=st.floats(0, 5),
    least=st.integers(1, 40),
    room=st.integers(0, 500),
    fixed_output=st.booleans(),
)
def test_pairs_fit_whatever_is_drawn(median: int, sigma: float, least: int, room: int, fixed_output: bool) -> None:
    limit = least + 10 + room
    wild = Lengths("lognormal", 1, MOST, median, sigma)
    pairs = PairLengths(wild, Lengths("fixed", 10, 10) if fixed_output else wild, least, limit)
    inputs, outputs, changed = pairs.draw(rng(), 50)
    assert all(new >= least and out >= 1 and new + out <= limit for new, out in zip(inputs, outputs, strict=True))
    if fixed_output:
        assert set(outputs) == {10}
    untouched = wild.draw(rng(), 50)
    assert (changed > 0) >= (list(inputs) != untouched)


def test_a_range_that_does_not_fit_is_refused_and_not_cut() -> None:
    with pytest.raises(
        BenchError, match="prompts of 90 with answers of 20 tokens do not fit, max_model_len leaves 100"
    ):
        PairLengths(parse_lengths("10..90", "input"), parse_lengths("20", "output"), 1, 100)
    with pytest.raises(BenchError, match="input from 10 tokens: the least possible here is 31"):
        PairLengths(parse_lengths("10..90", "input"), parse_lengths("20", "output"), 31, None)
    assert PairLengths(parse_lengths("10..80", "input"), parse_lengths("20", "output"), 1, 100)
