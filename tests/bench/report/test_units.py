"""Numbers as text."""

from __future__ import annotations

import pytest

from forebay.bench.report import units
from forebay.bench.report.columns import column


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (123.456, None, "123"),
        (12.3456, None, "12.3"),
        (0.0123456, None, "0.0123"),
        (123.456, (117.6, 129.3), "123"),  # half width 5.9: units
        (123.456, (122.2, 124.7), "123.5"),  # half width 1.25: one digit more
        (1234.56, (1000.0, 1470.0), "1,230"),  # half width 235: tens
        (1234.56, (500.0, 1900.0), "1,200"),  # half width 700: hundreds
        (0.5, (0.4999, 0.5001), "0.5000"),  # never more than a digit beyond three
        (2.165, (0.1, 300.0), "2"),  # a wide interval never rounds a figure to nothing
        (0.0, (0.0, 0.0), "0"),
        (-4.25, None, "\N{MINUS SIGN}4.25"),
        (float("inf"), None, units.ABSENT),
        (None, None, units.ABSENT),
    ],
)
def test_a_figure_has_the_digits_its_interval_justifies(
    value: float | None, interval: tuple[float, float] | None, shown: str
) -> None:
    assert units.figure(value, units.NO_UNIT, interval) == shown


def test_bounds_end_at_the_same_place_as_their_figure() -> None:
    unit = units.duration_unit(0.1234)
    assert unit.name == "ms"
    assert units.figure(0.1234, unit, (0.1100, 0.1321)) == "123"
    assert units.bounds((0.1100, 0.1321), unit) == "110 to 132"
    assert units.bounds(None, unit) == ""
    assert units.bounds((0.1, 300.0)) == "0.10 to 300"
    assert units.bounds((0.0, 300.0)) == "0 to 300"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0125, "12.5 ms"), (2.5, "2.50 s"), (7200.0, "120 min"), (4.2e-5, "42.0 µs"), (3e-9, "3.00 ns"), (0.0, "0 ms")],
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert units.duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("value", "text"), [(950, "950"), (12_345, "12.3k"), (2.5e6, "2.5M"), (-3e9, "\N{MINUS SIGN}3G")]
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert units.short(value) == text


def test_clean_leaves_nothing_that_could_break_a_line_or_turn_it_round() -> None:
    assert units.clean("a\x00b\x1b[31m\u202ec\ud800\x85") == "a\ufffdb\ufffd[31m\ufffdc\ufffd\ufffd"
    assert units.clean("ünï\tcode\n") == "ünï\tcode\n"


@pytest.mark.parametrize(
    ("name", "values", "head", "texts"),
    [
        ("ttft_p95_s", [0.1, 0.25, None], "ttft p95, ms", ["100", "250", units.ABSENT]),
        ("working_set_bytes", [3 * 2**20, 2**20], "working set, MiB", ["3.00", "1.00"]),
        ("floor_fraction", [0.5, 0.25], "floor fraction, %", ["50.0", "25.0"]),
        ("decode_token_rate", [3e6, 2e6], "decode token, M/s", ["3.00", "2.00"]),
        ("ttft_s_range", [[0.1, 0.2]], "ttft from, to, ms", ["100 to 200"]),
        ("threads", [2, 64], "threads", ["2", "64"]),
        ("gbps_median", [21.44, None], "median, GB/s", ["21.4", units.ABSENT]),
        ("format", [None, "q4_0"], "format", [units.ABSENT, "q4_0"]),
        ("profile", ["e349505ac0785a1b7d0c4c9ae349505ac0785a1b"], "profile", ["e349505ac078…"]),
        ("pareto", [True, False], "pareto", ["yes", "no"]),
        ("probes", [[{"rate": 1}, {"rate": 2}]], "probes", ["2 entries"]),
    ],
)
def test_the_end_of_a_name_says_the_unit_of_its_column(
    name: str, values: list[object], head: str, texts: list[str]
) -> None:
    found, cells = column(name, values)
    assert (found, [cell.text for cell in cells]) == (head, texts)


def test_a_column_can_take_the_unit_of_each_row() -> None:
    head, cells = column("median", [0.5, 2.0**21], ["s", "B"])
    assert head == "median"
    assert [cell.text.replace("\N{NO-BREAK SPACE}", " ") for cell in cells] == ["500 ms", "2.00 MiB"]
