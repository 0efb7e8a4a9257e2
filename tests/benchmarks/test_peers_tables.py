"""The tables of a comparison, from rows by hand."""

from __future__ import annotations

from typing import Any

from document import Findings, document
from tables import as_markdown


def row(engine: str, cell: str, **more: Any) -> dict[str, Any]:
    return {
        "transport": "in_process", "engine": engine, "setting": "q8_0", "weights": "Q8_0", "round": 0, "cell": cell,
        "output_token_rate": 100.0, "ttft_p50_s": 0.128, "ttft_p95_s": 0.2, "tpot_p50_s": 0.005, "itl_p50_s": 0.005,
        "itl_p95_s": 0.006, "peak_rss_mb": 900.0, "invalid": [], **more,
    }  # fmt: skip


def lines(*rows: dict[str, Any], **more: Any) -> list[str]:
    return as_markdown(document("smollm2-135m", Findings(rows=list(rows), **more))).splitlines()


def test_one_stream_has_two_speeds_and_ours_their_share_of_the_floor() -> None:
    """256 / 0.128 s = 2000 token/s; 0.032 / 0.128 = 25 %; 0.002 / 0.005 = 40 %."""
    ours = row("forebay", "1 stream", decode_floor_s=0.002, prompt_floor_s=0.032)
    found = lines(row("other", "1 stream", output_token_rate=90.0), ours)
    speeds, latencies = "prompt token/s | % of floor | decode token/s | % of floor", "TTFT p50 ms | TTFT p95 ms"
    assert f"| engine | setting | {speeds} | {latencies} | ITL p50 ms | ITL p95 ms | valid rounds |" in found
    at = found.index("| forebay | q8_0 | 2,000 | 25 | 200 | 40 | 128 | 200 | 5.0 | 6.0 | 1 of 1 |")
    assert found[at + 1] == "| other | q8_0 | 2,000 |  | 200 |  | 128 | 200 | 5.0 | 6.0 | 1 of 1 |"
    assert any(line.startswith("Of floor: ") for line in found)


def test_without_floors_there_are_no_columns_for_them() -> None:
    found = lines(row("other", "1 stream"))
    assert not any("floor" in line for line in found)


def test_each_cell_is_ordered_by_what_it_is_about() -> None:
    slow_prompt = row("a", "prompt of 6,000", ttft_p50_s=10.0, tpot_p50_s=0.001)
    fast_prompt = row("b", "prompt of 6,000", ttft_p50_s=5.0, tpot_p50_s=0.009)
    slow_decode = row("a", "context of 7,900", tpot_p50_s=0.02, output_token_rate=9.0)
    fast_decode = row("b", "context of 7,900", tpot_p50_s=0.01, output_token_rate=5.0)
    found = [line.split(" | ")[0] for line in lines(slow_prompt, fast_prompt, slow_decode, fast_decode)]
    assert "### In process, long contexts" in found
    assert [line for line in found if line in ("| a", "| b")] == ["| b", "| a", "| b", "| a"]


def test_median_of_valid_rounds_or_a_mark() -> None:
    rounds = [row("a", "8 streams", round=n, output_token_rate=rate) for n, rate in enumerate((10.0, 20.0, 90.0))]
    bad = row("b", "8 streams", output_token_rate=5.0, invalid=["others ran"])
    found = lines(*rounds, {**rounds[2], "output_token_rate": 1000.0, "invalid": ["others ran"]}, bad)
    assert "| a | q8_0 | 20 | 128 | 200 | 5.0 | 6.0 | 3 of 4 |" in found
    assert "| b | q8_0 | 5 (!) | 128 (!) | 200 (!) | 5.0 (!) | 6.0 (!) | 0 of 1 |" in found


def test_engines_with_their_memory_and_their_start() -> None:
    facts = {
        "in_process, long/a q8_0": {"version": "a 1", "bits_per_weight": 8.51, "kv_dtype": "int8", "kv_tokens": 8000},
        "in_process/a q8_0": {
            "version": "a 1", "bits_per_weight": 8.51, "kv_dtype": "f16", "mean_nll": 0.0, "kv_tokens": 20480,
            "start_s": 0.75, "first_token_s": 0.05,
        },
        "in_process/b bf16": {"kv_tokens": None, "kv_dtype": "bf16"},
        "http/a q8_0": {"start_s": 1.5, "first_token_s": 0.125},
        "http/c w8a8": {"kv_tokens": 100, "kv_dtype": "bf16"},
    }  # fmt: skip
    rows = (
        row("a", "32 streams", pss_mb=700.0),
        row("a", "32 streams", pss_mb=712.4, round=1, peak_rss_mb=950.0),
        row("a", "1 stream", peak_rss_mb=5000.0),
        row("a", "context of 7,900", pss_mb=400.0),
    )
    found = lines(*rows, facts=facts)
    at = found.index("| a | q8_0 | a 1 | 8.51 | f16 | 1.000 | 32 streams | 20,480 | 950 | 712 |")
    assert found[at + 1 : at + 4] == [
        "| b | bf16 |  |  | bf16 |  |  | as needed |  |  |",
        "| a | q8_0 | a 1 | 8.51 | int8 |  | context of 7,900 | 8,000 | 900 | 400 |",
        "| c | w8a8 |  |  | bf16 |  |  | 100 |  |  |",
    ]
    assert "| a | q8_0 | in process | 0.75 | 50 | 0.80 |" in found
    assert "| a | q8_0 | over HTTP | 1.50 | 125 | 1.62 |" in found


def test_reasons_are_short_and_break_no_table() -> None:
    error = "the driver ended; its log ends:\nsome | line\n\nValueError: too | much"
    sweep = [{"transport": "in_process", "engine": "a", "setting": "s", "error": error}]
    found = lines(sweep=sweep, unavailable={"in_process, long/a s": error})
    assert "| in_process | a | s | the driver ended; its log ends: … ValueError: too \\| much |" in found
    assert "Not measured: in_process, long/a s: the driver ended; its log ends: … ValueError: too \\| much" in found
