"""The search for the highest rate, against servers that are functions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from forebay.bench.rate_search import Probe, find_rate
from forebay.errors import BenchError


def server(edge: float, *, noise: float = 0.0, requests: int = 200) -> Callable[[float], Probe]:
    """Attains all below `edge`, and ever less above it; each request is a coin with that chance, plus noise."""
    rng = random.Random(7)

    def probe(rate: float) -> Probe:
        chance = min(1.0, edge / rate) ** 2 if rate > edge else 1.0
        chance = min(1.0, max(0.0, chance + rng.uniform(-noise, noise)))
        return Probe(rate=rate, attained=sum(rng.random() < chance for _ in range(requests)) / requests)

    return probe


@pytest.mark.parametrize("edge", [0.03, 0.9, 1.0, 7.3, 100.0, 2500.0])
@pytest.mark.parametrize("width", [0.1, 0.03])
def test_the_edge_is_found_within_the_width(edge: float, width: float) -> None:
    found = find_rate(server(edge, requests=10_000), attain=1.0, width=width)
    assert found.rate is not None
    assert found.fails_at is not None
    assert found.rate <= edge < found.fails_at <= found.rate * (1 + width) * (1 + 1e-9)
    assert found.notes == ()
    assert [probe.why for probe in found.probes][-2:] == ["confirmed", "well above"]


def test_noise_moves_it_little_and_every_probe_is_kept() -> None:
    edge, attain = 20.0, 0.9  # (edge / rate)^2 = 0.9 at 21.1
    found = find_rate(server(edge, noise=0.02), attain=attain, start=3.0)
    assert found.rate is not None
    assert 18 < found.rate < 23
    assert [probe.rate for probe in found.probes[:4]] == [3.0, 6.0, 12.0, 24.0]
    assert all(probe.holds == (probe.attained >= attain) for probe in found.probes)


def test_a_server_that_is_slow_in_the_middle_is_reported() -> None:
    """From 3 to 5 it fails, above it holds: a doubling search alone would say 3."""
    found = find_rate(lambda rate: Probe(rate=rate, attained=0.2 if 3 < rate < 5 else 1.0))
    assert found.rate == pytest.approx(3, rel=0.1)
    assert any(note.startswith("not monotone: ") and "yet 6 held" in note for note in found.notes), found.notes


def test_a_rate_that_does_not_hold_again_is_not_the_answer() -> None:
    """It tires: from the sixth probe on it can do half of what it could."""
    made: list[float] = []

    def probe(rate: float) -> Probe:
        made.append(rate)
        return Probe(rate=rate, attained=1.0 if rate <= (10 if len(made) < 6 else 5) else 0.5)

    found = find_rate(probe)
    assert found.rate is not None
    assert 4.5 < found.rate <= 5
    assert any("did not hold again" in note for note in found.notes)
    assert any("held once and failed once" in note for note in found.notes)
    assert made[-2] == found.rate  # confirmed at what is reported


def test_a_disturbed_probe_is_repeated_once() -> None:
    made: list[float] = []

    def probe(rate: float) -> Probe:
        made.append(rate)
        disturbed = made.count(rate) == 1 or rate == 4
        attained = 0.0 if disturbed and rate != 4 else float(rate <= 5)
        return Probe(rate=rate, attained=attained, invalid_reasons=("others",) if disturbed else ())

    found = find_rate(probe)
    assert found.rate == pytest.approx(5, rel=0.1)
    assert made[:6] == [1, 1, 2, 2, 4, 4]
    assert found.notes == ("disturbed, and when repeated again, at 4 a second: the probes' rows say by what",)
    assert found.probes[1].why == "first, repeated: others"
    assert found.probes[0].as_row()["valid"] is False


@pytest.mark.parametrize(("attained", "note"), [(1.0, "no rate failed up to 65536"), (0.0, "no rate held down to")])
def test_an_edge_that_is_nowhere(attained: float, note: str) -> None:
    found = find_rate(lambda rate: Probe(rate=rate, attained=attained))
    assert found.rate == (65536 if attained else None)
    assert any(text.startswith(note) for text in found.notes)


def test_no_lower_rate_is_tried_once_none_can_hold() -> None:
    """Half of the requests are too slow even where they meet no other one, which they do below 0.2 a second."""
    found = find_rate(lambda rate: Probe(rate=rate, attained=0.5, ceiling=1.0 if rate > 0.2 else 0.62))
    assert [probe.rate for probe in found.probes] == [1.0, 0.5, 0.25, 0.125]
    assert (found.rate, found.hopeless) == (None, True)
    assert found.notes == (
        "no rate held down to 0.125 a second; not even requests that met no other one did, so no lower rate can; "
        "loosen the SLO",
    )
    assert not find_rate(lambda rate: Probe(rate=rate, attained=0.5)).hopeless  # it was never seen


def test_an_interrupt_keeps_what_is_known() -> None:
    def probe(rate: float) -> Probe:
        if rate > 4:
            raise KeyboardInterrupt
        return Probe(rate=rate, attained=1.0)

    found = find_rate(probe)
    assert (found.interrupted, found.rate, len(found.probes)) == (True, 4.0, 3)


@pytest.mark.parametrize("wrong", [{"start": 0.0}, {"start": float("nan")}, {"attain": 1.1}, {"width": -0.5}])
def test_wrong_arguments(wrong: dict[str, float]) -> None:
    with pytest.raises(BenchError, match=next(iter(wrong))):
        find_rate(server(1.0), **wrong)


def test_an_interrupt_of_the_first_probe() -> None:
    def probe(rate: float) -> Probe:
        raise KeyboardInterrupt

    found = find_rate(probe)
    assert (found.interrupted, found.hopeless, found.rate, found.probes) == (True, False, None, ())
