"""One stream by length of its context, on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay import LLM
from forebay.bench.latency import Sample, measure_latency, row_of
from forebay.bench.offline import open_llm
from forebay.errors import BenchError
from tests.bench.profiles import tiny_profile


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with open_llm(tiny_profile()) as llm:
        yield llm


def test_figures_of_known_times() -> None:
    samples = [Sample(0.5, (0.1, 0.1)), Sample(0.25, (0.1, 0.3)), Sample(1.0, (0.1, 0.1))]
    row = row_of(100, samples)
    assert (row["length"], row["repeats"]) == (100, 3)
    assert (row["ttft_s"], row["ttft_s_range"]) == (0.5, [0.25, 1.0])
    assert (row["prefill_token_rate"], row["prefill_token_rate_range"]) == (200, [100, 400])
    assert (row["decode_token_rate"], row["decode_token_rate_range"]) == (10, [5, 10])
    assert row["itl_p50_s"] == 0.1
    assert row["itl_p99_s"] == pytest.approx(0.29)  # between the last two of six, by linear interpolation


def test_every_length_is_measured_from_an_empty_cache(llm: LLM) -> None:
    seen: list[int] = []
    result = measure_latency(llm, lengths=(16, 64, 128), output=5, repeats=2, label="tiny", on_sample=seen.append)
    assert [row["length"] for row in result.rows] == [16, 64, 128]
    assert seen == [16, 64, 128, 16, 64, 128, 64, 128, 16]  # one not counted, then in an order that rotates
    for row in result.rows:
        low, high = row["ttft_s_range"]
        assert 0 < low <= row["ttft_s"] <= high
        assert row["prefill_token_rate"] == pytest.approx(row["length"] / row["ttft_s"], rel=abs(high / low))
        assert row["decode_token_rate"] > 0
    steps = llm.recorder.last()
    assert sum(step.num_prefill_tokens for step in steps) == 3 * (16 + 64 + 128)  # nothing came from the cache
    assert sum(step.num_decode_tokens for step in steps) == 3 * 3 * (5 - 1)
    assert [set(run.values) for run in result.runs] == [set(result.runs[0].values)] * 2
    assert min(run.values["length_64_ttft_s"] for run in result.runs) == result.rows[1]["ttft_s_range"][0]
    assert (result.kind, result.label, result.target["max_model_len"]) == ("latency", "tiny", 256)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lengths": (250,), "output": 10}, "a prompt of 250 tokens and 10 of output do not fit"),
        ({"lengths": ()}, "lengths must be"),
        ({"lengths": (8, 8)}, "different"),
        ({"lengths": (8,), "output": 1}, "output must be at least 2"),
        ({"lengths": (8,), "repeats": 0}, "repeats must be at least 1"),
    ],
)
def test_wrong_arguments(llm: LLM, wrong: dict[str, int], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        measure_latency(llm, **wrong)
